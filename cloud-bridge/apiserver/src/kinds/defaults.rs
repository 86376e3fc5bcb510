//! What defaults of several kinds have in common. The kinds follow pkg/apis/*/v1/defaults.go of Kubernetes 1.36. Pure
//! and idempotent.

use serde_json::Value;

use apimachinery::json::set_default_text;
use apimachinery::quantity::canonicalize_list;

/// Removes fields whose zero value the API server's encoding leaves out.
pub(crate) fn drop_zero(value: &mut Value, fields: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        for field in fields {
            let zero = match map.get(*field) {
                Some(Value::Bool(b)) => !b,
                Some(Value::String(s)) => s.is_empty(),
                Some(Value::Array(a)) => a.is_empty(),
                Some(Value::Object(o)) => o.is_empty(),
                Some(Value::Number(n)) => n.as_i64() == Some(0),
                _ => false,
            };
            if zero {
                map.remove(*field);
            }
        }
    }
}

const READ_ONLY: &[&str] = &["readOnly"];
const FILE_SYSTEM: &[&str] = &["fsType", "readOnly"];
const DISK: &[&str] = &["fsType", "partition", "readOnly"];

/// The sources of volumes, with their fields that have no pointer in Go and are left out when zero
/// (K8s staging/src/k8s.io/api/core/v1/types.go, `VolumeSource` and `PersistentVolumeSource`).
const SOURCES: &[(&str, &[&str])] = &[
    ("awsElasticBlockStore", DISK),
    ("azureFile", READ_ONLY),
    ("cephfs", &["path", "user", "secretFile", "readOnly"]),
    ("cinder", FILE_SYSTEM),
    ("configMap", &["name"]),
    ("fc", FILE_SYSTEM),
    ("flexVolume", FILE_SYSTEM),
    ("flocker", &["datasetName", "datasetUUID"]),
    ("gcePersistentDisk", DISK),
    ("gitRepo", &["revision", "directory"]),
    ("glusterfs", READ_ONLY),
    ("iscsi", &["iscsiInterface", "fsType", "readOnly", "chapAuthDiscovery", "chapAuthSession"]),
    ("nfs", READ_ONLY),
    ("persistentVolumeClaim", READ_ONLY),
    ("photonPersistentDisk", &["fsType"]),
    ("portworxVolume", FILE_SYSTEM),
    ("quobyte", &["readOnly", "user", "group", "tenant"]),
    ("rbd", &["fsType", "pool", "user", "keyring", "readOnly"]),
    ("scaleIO", &["sslEnabled", "protectionDomain", "storagePool", "storageMode", "volumeName", "fsType", "readOnly"]),
    ("secret", &["secretName"]),
    ("storageos", &["volumeName", "volumeNamespace", "fsType", "readOnly"]),
    ("vsphereVolume", &["fsType", "storagePolicyName", "storagePolicyID"]),
];

/// Removes the zero values of the source of a volume, which is one of the fields of `holder`. A client in Go that reads and
/// writes an object leaves them out: with them, that would be a change of what cannot change.
pub(crate) fn volume_source(holder: &mut Value) {
    for (source, fields) in SOURCES {
        if let Some(source) = holder.get_mut(*source) {
            drop_zero(source, fields);
        }
    }
}

/// `limits` and `requests` in canonical form; empty lists go.
pub(crate) fn resource_lists(resources: &mut Value) {
    for list in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(list) {
            canonicalize_list(list);
        }
    }
    drop_zero(resources, &["limits", "requests", "claims"]);
}

/// The spec of a claim, also of one in a pod.
pub(crate) fn claim_spec(spec: &mut Value) {
    drop_zero(spec, &["volumeName"]);
    set_default_text(spec, "volumeMode", "Filesystem");
    if let Some(resources) = spec.get_mut("resources").filter(|r| r.is_object()) {
        resource_lists(resources);
    }
}
