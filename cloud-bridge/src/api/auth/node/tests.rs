//! What `node` promises, case by case.

use serde_json::{Value, json};

use super::names;
use super::restrict::forbidden_labels;

#[test]
fn references_are_found_everywhere() {
    let spec = json!({
        "serviceAccountName": "sa",
        "imagePullSecrets": [{"name": "pull"}],
        "volumes": [{"secret": {"secretName": "vol"}}, {"projected": {"sources": [{"configMap": {"name": "proj"}}]}}, {"persistentVolumeClaim": {"claimName": "pvc"}}],
        "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "init"}}}]}],
        "containers": [{"envFrom": [{"configMapRef": {"name": "from"}}]}],
    });
    for (resource, name) in [
        ("serviceaccounts", "sa"),
        ("secrets", "pull"),
        ("secrets", "vol"),
        ("secrets", "init"),
        ("configmaps", "proj"),
        ("configmaps", "from"),
        ("persistentvolumeclaims", "pvc"),
    ] {
        assert!(names(&spec, resource, name), "{resource} {name}");
    }
    assert!(!names(&spec, "secrets", "from") && !names(&spec, "configmaps", "vol"));
}

#[test]
fn kubernetes_labels_are_reserved() {
    let new = json!({"kubernetes.io/hostname": "a", "a.kubernetes.io/x": "1", "mine": "1", "node-restriction.kubernetes.io/y": "1", "node.kubernetes.io/z": "1"});
    assert_eq!(forbidden_labels(&new, &Value::Null), ["a.kubernetes.io/x", "node-restriction.kubernetes.io/y"]);
}
