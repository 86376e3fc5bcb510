//! Attributes of a request for admission (K8s apiserver `admission.Attributes`).

use std::sync::Arc;

use serde_json::Value;

use crate::auth::request_info::ResourcePath;
use crate::resource::Resource;
use crate::state::Inner;
use apimachinery::meta;
use apimachinery::user::UserInfo;

/// A request on an object, without its verb and its body.
pub(crate) struct Attributes<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) user: &'a UserInfo,
    pub(crate) resource: Arc<Resource>,
    pub(crate) path: &'a ResourcePath,
}

/// Name of an object in a refusal; it may have no name yet.
pub(super) fn subject(value: &Value) -> &str {
    match (meta::text(value, "name"), meta::text(value, "generateName")) {
        ("", "") => "Unknown",
        ("", prefix) => prefix,
        (name, _) => name,
    }
}
