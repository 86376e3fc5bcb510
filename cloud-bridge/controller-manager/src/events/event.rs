//! An event, as controllers make it.

use k8s_openapi::api::core::v1::ObjectReference;

/// An event about an object.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) about: ObjectReference,
    /// `Normal` or `Warning`.
    pub(crate) kind: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) component: &'static str,
}
