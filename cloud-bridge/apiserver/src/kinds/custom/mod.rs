//! The kind of custom resources: definitions, their schemas, and what follows from them.

pub(crate) mod approval;
pub(crate) mod definition;
pub(crate) mod schema;
pub(crate) mod strategy;
pub(crate) mod validate;

use serde_json::Value;

use crate::resource::Resource;

/// Where definitions are stored.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The finalizer that keeps a definition until its objects are gone.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether an update of a custom object raises its generation.
pub(crate) fn generation_changed(resource: &Resource, new: &Value, old: &Value) -> bool {
    let body = |value: &Value| {
        let mut value = value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("metadata");
            if resource.has_subresource("status") {
                map.remove("status");
            }
        }
        value
    };
    body(new) != body(old)
}
