//! Manifests of test pods, as JSON. Owns their common parts; does not know what a test does with them.

use std::path::Path;

use serde_json::{Value, json};

use crate::node::BUSYBOX;

/// A pod on `node` with a short grace period, so that the end of a test does not wait.
#[must_use]
pub fn pod(name: &str, node: &str, containers: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": containers}
    })
}

/// A container that runs `script` in busybox's shell.
#[must_use]
pub fn shell(name: &str, script: &str) -> Value {
    json!({"name": name, "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script]})
}

/// `value` with the fields of `more` added or replaced at its top level.
///
/// # Panics
/// One of them is not a JSON object.
#[must_use]
pub fn with(mut value: Value, more: &Value) -> Value {
    let fields = more.as_object().expect("an object").clone();
    value.as_object_mut().expect("an object").extend(fields);
    value
}

/// `pod` with fields of its `spec` added or replaced.
#[must_use]
pub fn with_spec(mut pod: Value, more: &Value) -> Value {
    let spec = pod["spec"].take();
    pod["spec"] = with(spec, more);
    pod
}

/// A hostPath volume.
#[must_use]
pub fn host_path(name: &str, path: &Path) -> Value {
    json!({"name": name, "hostPath": {"path": path}})
}

/// The id of a container in its OCI runtime, from `status.containerStatuses[]`; empty without one.
#[must_use]
pub fn container_id(status: &Value) -> String {
    status["containerID"].as_str().and_then(|id| id.split_once("://")).map(|(_, id)| id.to_owned()).unwrap_or_default()
}
