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
    /// What the component did or tried, in the form of events that have an `eventTime`. None for the older form, in which
    /// most controllers of Kubernetes still write.
    pub(crate) action: Option<&'static str>,
}
