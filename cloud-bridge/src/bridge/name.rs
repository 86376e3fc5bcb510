//! Names of objects whose kind is known.

use kube::api::ObjectMeta;

/// Namespace and name.
pub(super) type Name = (String, String);

/// The name of an object, from its metadata.
pub(super) fn name_of(metadata: &ObjectMeta) -> Name {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}
