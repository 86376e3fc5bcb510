//! What `recursiveReadOnly` of a volume mount means. Pure.

use k8s_openapi::api::core::v1::VolumeMount;

/// Whether what is mounted below a read-only mount is read-only as well
/// (K8s pkg/kubelet/kubelet_pods.go, `resolveRecursiveReadOnly`).
///
/// # Errors
/// What the pod asks for cannot be had, or contradicts itself.
pub fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, String> {
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("" | "Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    let asks = format!("volume {:?} requested recursive read-only mode, but it is not", mount.name);
    if !mount.read_only.unwrap_or(false) {
        return Err(format!("{asks} read-only"));
    }
    match mount.mount_propagation.as_deref() {
        None | Some("" | "None") => {}
        Some(other) => return Err(format!("{asks} compatible with propagation {other:?}")),
    }
    match mode {
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => Err(format!("{asks} supported by the runtime")),
        other => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn recursion_of_read_only_is_resolved_as_the_kubelet_does() {
        let resolve = |mount: Value, supported| {
            let mut all = json!({"name": "v", "mountPath": "/v"});
            all.as_object_mut().unwrap().extend(mount.as_object().unwrap().clone());
            recursive_read_only(&serde_json::from_value(all).unwrap(), supported)
        };
        assert_eq!(resolve(json!({"readOnly": true}), true), Ok(false));
        let asked = |mode: &str| json!({"readOnly": true, "recursiveReadOnly": mode});
        assert_eq!((resolve(asked("IfPossible"), true), resolve(asked("IfPossible"), false)), (Ok(true), Ok(false)));
        assert_eq!(resolve(asked("Enabled"), true), Ok(true));
        assert!(resolve(asked("Enabled"), false).unwrap_err().contains("not supported by the runtime"));
        assert!(resolve(json!({"recursiveReadOnly": "IfPossible"}), true).unwrap_err().contains("it is not read-only"));
        let shared = json!({"readOnly": true, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"});
        assert!(resolve(shared, true).unwrap_err().contains("not compatible with propagation"));
    }
}
