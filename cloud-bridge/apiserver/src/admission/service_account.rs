//! The volume with token, authority and namespace that a pod gets for its service account. Pure.
//! K8s plugin/pkg/admission/serviceaccount/admission.go.

use edge_protocol::json::SetField;
use serde_json::{Value, json};

use crate::auth::accounts::ROOT_CA;
use apimachinery::json::items_mut;

/// Where programs look for their account.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// An hour and the seven seconds by which API servers recognise a token that nobody chose.
const SECONDS: i64 = 3607;

/// Adds volume and mounts unless pod or account declines; `name` is for a volume that is needed.
pub(crate) fn inject(account: &Value, pod: &mut Value, name: impl FnOnce() -> String) {
    let wanted = pod["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account["automountServiceAccountToken"].as_bool());
    if wanted == Some(false) {
        return;
    }
    let name = name();
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        for container in pod.get_mut("spec").into_iter().flat_map(|spec| items_mut(spec, list)) {
            let Some(container) = container.as_object_mut() else { continue };
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            if mounts.is_null() {
                *mounts = json!([]);
            }
            let Some(mounts) = mounts.as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                needed = true;
            }
        }
    }
    if !needed {
        return;
    }
    let volume = json!({"name": name, "projected": {"sources": [
        {"serviceAccountToken": {"expirationSeconds": SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ], "defaultMode": 0o644}});
    match pod.at_mut(&["spec", "volumes"]) {
        Some(Value::Array(volumes)) => volumes.push(volume),
        _ => pod.set_at(&["spec", "volumes"], json!([volume])),
    }
}
