//! `/openapi/v3`: the index of group versions and the document of each.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::form::{Form, kind_of};
use super::kinds;
use crate::http::discovery::VERSION;
use crate::resource::Resource;

/// `/openapi/v3`: the location of each group version's document. The hash lets clients cache a document permanently, so
/// it must change with the resources.
pub fn index(resources: &[Arc<Resource>]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        let root = root_path(&resource.group, &resource.version);
        if !paths.contains_key(&root) {
            let hash = content_hash(resources, &resource.group, &resource.version);
            paths.insert(root.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{root}?hash={hash}")}));
        }
    }
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/GROUP/VERSION`: paths with a PATCH operation per resource, and a
/// schema per kind. `None` if the version does not exist.
pub fn group_document(resources: &[Arc<Resource>], group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources.iter().filter(|r| r.group == group && r.version == version) {
        let operation = json!({"x-kubernetes-group-version-kind": kind_of(resource)});
        paths.insert(
            object_path(resource),
            json!({"get": operation, "patch": patch_operation(resource, true), "parameters": []}),
        );
        kinds::add(&mut schemas, Form::V3, resource);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// `/api/v1/namespaces/{namespace}/pods/{name}`.
pub(super) fn object_path(resource: &Resource) -> String {
    let root = root_path(&resource.group, &resource.version);
    let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    format!("/{root}{namespace}/{}/{{name}}", resource.plural)
}

/// The PATCH operation: its query parameters, and the kind that it is about. Without a request body, so that
/// kubectl takes merge keys from its own types instead of from a schema.
pub(super) fn patch_operation(resource: &Resource, v3: bool) -> Value {
    let parameters: Vec<Value> = PATCH_PARAMETERS
        .iter()
        .map(|(name, kind)| {
            if v3 {
                json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
            } else {
                json!({"name": name, "in": "query", "type": kind, "uniqueItems": true})
            }
        })
        .collect();
    json!({"parameters": parameters, "x-kubernetes-group-version-kind": kind_of(resource)})
}

/// Query parameters of every PATCH, with their types.
pub(super) const PATCH_PARAMETERS: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];

fn root_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Changes whenever a resource of the version is added, removed or renamed.
fn content_hash(resources: &[Arc<Resource>], group: &str, version: &str) -> String {
    let mut text = String::from(env!("CARGO_PKG_VERSION"));
    for resource in resources.iter().filter(|r| r.group == group && r.version == version) {
        let schema = resource.strategy().schema().map(Value::to_string).unwrap_or_default();
        let _ = write!(text, "/{}:{}:{}:{schema}", resource.plural, resource.kind, resource.namespaced);
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(16).fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02X}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_patch_operation_with_field_validation() {
        let all = crate::kinds::resources();
        for resource in &all {
            let document = group_document(&all, &resource.group, &resource.version).expect("a document");
            let patch = &document["paths"][object_path(resource)]["patch"];
            assert_eq!(patch["x-kubernetes-group-version-kind"], kind_of(resource));
            assert!(patch["parameters"].to_string().contains("fieldValidation"), "{}", resource.kind);
        }
        assert!(group_document(&all, "example.io", "v1").is_none());
        assert!(index(&all)["paths"]["api/v1"].is_object());
    }
}
