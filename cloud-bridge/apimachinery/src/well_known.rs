//! Words of Kubernetes that several parts know.

/// On a pod that only shows what a node runs by itself: its static pod's hash.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
