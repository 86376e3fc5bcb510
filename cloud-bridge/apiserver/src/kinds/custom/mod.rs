//! The kind of custom resources: definitions, their schemas, and what follows from them.

pub(crate) mod approval;
pub(crate) mod cel;
pub(crate) mod definition;
mod embedded;
mod list_types;
mod lists;
mod patterns;
mod scale;
pub(crate) mod schema;
pub(crate) mod strategy;
mod structural;
pub(crate) mod validate;
mod walk;

/// Where definitions are stored.
pub(crate) const STORAGE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The finalizer that keeps a definition until its objects are deleted.
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
