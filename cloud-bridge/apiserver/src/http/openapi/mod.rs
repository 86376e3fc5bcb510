//! OpenAPI documents. `/openapi/v3` is an index and one document per group version: kubectl reads the `fieldValidation`
//! parameter of PATCH there, and the schemas for `explain`. `/openapi/v2` is JSON or protobuf, with only what kubectl
//! before 1.27 requires. Making one takes the longer the more definitions there are. Knows no HTTP.

mod custom;
mod form;
mod kinds;
mod protobuf;
mod schema;
mod v3;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::discovery::VERSION;
use crate::resource::Resource;
use form::Form;

pub use v3::{group_document, index};

/// True when the `Accept` header asks for the protobuf form of `/openapi/v2`.
pub fn wants_protobuf(accept: &str) -> bool {
    accept.contains("proto-openapi.spec.v2@v1.0+protobuf") || accept.contains("googleapis.gnostic.OpenAPIv2")
}

/// `/openapi/v2` as JSON: PATCH operations with their parameters and kinds, and the schema of each kind.
pub fn v2_json(resources: &[Arc<Resource>]) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for resource in resources {
        paths.insert(v3::object_path(resource), json!({"patch": v3::patch_operation(resource, false)}));
        kinds::add(&mut definitions, Form::V2, resource);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "definitions": definitions,
    })
}

/// `/openapi/v2` as protobuf (`openapi.v2.Document`): the paths. kubectl skips its own validation for a kind without
/// definition; the server validates instead.
pub fn v2_protobuf(resources: &[Arc<Resource>]) -> Vec<u8> {
    protobuf::document(resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_v2_lead_somewhere_and_every_kind_has_a_schema() {
        let all = crate::kinds::resources();
        let document = v2_json(&all);
        for reference in document.to_string().split("#/definitions/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(document["definitions"][name].is_object(), "{name}");
        }
        let kinds: Vec<&Value> = document["definitions"]
            .as_object()
            .into_iter()
            .flat_map(Map::values)
            .flat_map(|schema| schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten())
            .collect();
        for resource in &all {
            assert!(kinds.contains(&&form::kind_of(resource)), "{}", resource.kind);
        }
        assert!(!document.to_string().contains("#/components/"));
    }
}
