//! Words of Kubernetes that several parts know.

/// Marks the copy of a static pod in the API; its value is a kubelet's hash of the manifest, of our nodes the static pod's uid.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
