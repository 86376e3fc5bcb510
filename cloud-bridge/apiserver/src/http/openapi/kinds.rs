//! The schema of each kind, wherever it is from.

use sampan_json::SetField;
use serde_json::{Map, Value, json};

use super::form::{Form, kind_of};
use super::{custom, schema};
use crate::codec::messages;
use crate::resource::Resource;

/// Adds the schema of a kind and what that refers to: that of a custom resource's definition, or of the shape of a
/// built-in kind.
pub(super) fn add(schemas: &mut Map<String, Value>, form: Form, resource: &Resource) {
    let message = messages::message_name(&resource.group, &resource.version, &resource.kind);
    let shaped = if resource.is_custom() { None } else { schema::add(schemas, form, &message) };
    let (name, mut schema) = match shaped {
        Some(name) => {
            let mut schema = schemas.get(&name).cloned().unwrap_or_default();
            let described = format!("{} in {}.", resource.kind, resource.api_version());
            schema.set("description", described.into());
            schema.set_at(&["properties", "apiVersion"], json!({"type": "string"}));
            schema.set_at(&["properties", "kind"], json!({"type": "string"}));
            (name, schema)
        }
        None => (model_name(resource), custom::published(schemas, form, resource)),
    };
    schema.set("x-kubernetes-group-version-kind", json!([kind_of(resource)]));
    schemas.insert(name, schema);
}

/// The name of a custom kind's schema: its group backwards, its version and its kind.
fn model_name(resource: &Resource) -> String {
    let reversed: Vec<&str> = resource.group.rsplit('.').collect();
    format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind)
}
