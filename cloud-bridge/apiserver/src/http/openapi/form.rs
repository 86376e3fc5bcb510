//! The versions of OpenAPI, and their common parts.

use serde_json::{Value, json};

use crate::resource::Resource;

/// The version of OpenAPI that a schema is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    V2,
    V3,
}

impl Form {
    /// A schema that is another one's, by its name. Beside a plain reference v3 allows nothing.
    pub(super) fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]}),
        }
    }
}

/// Group, version and kind, as extensions of a document have them.
pub(super) fn kind_of(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}
