//! Which strategy each built-in kind has.

use super::kinds;
use super::strategy::{Plain, Strategy};

/// The strategy of the built-in kind `kind` of `group` (empty for the core group).
pub fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    match (group, kind) {
        ("", "ConfigMap") => &kinds::CONFIG_MAP,
        ("", "Endpoints") => &kinds::ENDPOINTS,
        ("" | "events.k8s.io", "Event") => &kinds::EVENT,
        ("", "Namespace") => &kinds::NAMESPACE,
        ("", "Node") => &kinds::NODE,
        ("", "PersistentVolume") => &kinds::PERSISTENT_VOLUME,
        ("", "PersistentVolumeClaim") => &kinds::PERSISTENT_VOLUME_CLAIM,
        ("", "Pod") => &kinds::POD,
        ("", "Secret") => &kinds::SECRET,
        ("", "Service") => &kinds::SERVICE,
        ("", "ServiceAccount") => &kinds::SERVICE_ACCOUNT,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &kinds::CRD,
        ("coordination.k8s.io", "Lease") => &kinds::LEASE,
        ("discovery.k8s.io", "EndpointSlice") => &kinds::ENDPOINT_SLICE,
        ("node.k8s.io", "RuntimeClass") => &kinds::RUNTIME_CLASS,
        _ => &Plain,
    }
}
