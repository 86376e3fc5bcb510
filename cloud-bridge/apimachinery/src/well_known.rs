//! Words of Kubernetes that several parts know.

/// Marks the copy of a static pod in the API; its value is a kubelet's hash of the manifest, of our nodes the static pod's uid.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Objects of a list that a watch asks for at a time: an embedded API reads and writes them, and they are parsed, in one step of the
/// thread, a pod in some 0.2 ms.
pub const PAGE: u32 = 25;
