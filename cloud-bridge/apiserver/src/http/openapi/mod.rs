//! OpenAPI documents, as much as kubectl needs: `/openapi/v3` (index and one document per group version, where
//! kubectl looks for the `fieldValidation` parameter of PATCH and for the schemas of `explain`) and
//! `/openapi/v2` in JSON and in the protobuf form that kubectl before 1.27 insists on. Everything is generated
//! for each request, so that nothing large stays in memory. Knows no HTTP.

mod protobuf;
mod schema;
mod v3;

use std::sync::Arc;

use serde_json::{Value, json};

use super::discovery::VERSION;
use crate::resource::Resource;

pub use v3::{group_document, index};

/// True when the `Accept` header asks for the protobuf form of `/openapi/v2`.
pub fn wants_protobuf(accept: &str) -> bool {
    accept.contains("proto-openapi.spec.v2@v1.0+protobuf") || accept.contains("googleapis.gnostic.OpenAPIv2")
}

/// `/openapi/v2` as JSON: PATCH operations with their parameters and kinds, no definitions. kubectl skips its
/// own validation for a kind without definition; the server validates instead.
pub fn v2_json(resources: &[Arc<Resource>]) -> Value {
    let mut paths = serde_json::Map::new();
    for resource in resources {
        paths.insert(v3::object_path(resource), json!({"patch": v3::patch_operation(resource, false)}));
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "definitions": {},
    })
}

/// `/openapi/v2` as protobuf (`openapi.v2.Document`), the same content.
pub fn v2_protobuf(resources: &[Arc<Resource>]) -> Vec<u8> {
    protobuf::document(resources)
}
