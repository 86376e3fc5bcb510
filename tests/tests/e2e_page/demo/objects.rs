//! The objects of the demo, a water works, as JSON. Pure.

use std::net::SocketAddr;
use std::path::Path;

use sampan_tests::manifest::shell;
use serde_json::{Value, json};

use super::SHOWN;

/// Namespace of all objects of the demo.
pub(super) const NAMESPACE: &str = "water";
/// Registry in the names of images. `example` is reserved, so no such domain exists (RFC 2606).
pub(super) const REGISTRY: &str = "registry.aldermere.example";
/// The image of the fleet job, in that registry.
pub(super) const IMAGE: &str = "telemetry:2.4";
/// Device, property and value of each reading.
pub(super) const READINGS: [(&str, &str, &str); 2] =
    [("level-hill", "level", "4.82"), ("outlet-hill", "position", "40")];

/// Workloads of the gateways. `leak-report` fails.
pub(super) fn workloads() -> [Value; 5] {
    const WORK: &str = "exec sleep 100000";
    let fails = "echo 'leak-report: no connection to the archive' >&2; exit 1";
    [
        workload("DaemonSet", "telemetry", &json!({}), WORK),
        workload("DaemonSet", "pump-control", &json!({"station": "pump"}), WORK),
        with_replicas(workload("Deployment", "water-quality", &json!({"station": "treatment"}), WORK), 2),
        workload("Deployment", "level-control", &json!({"district": "hill"}), WORK),
        workload("Deployment", "leak-report", &json!({"district": "hill"}), fails),
    ]
}

fn workload(kind: &str, name: &str, on: &Value, script: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "nodeSelector": on, "containers": [shell(name, script)]},
            },
        },
    })
}

fn with_replicas(mut workload: Value, replicas: u32) -> Value {
    workload["spec"]["replicas"] = replicas.into();
    workload
}

/// Two devices with their models.
pub(super) fn devices() -> [Value; 4] {
    let level = json!({"name": "level", "type": "FLOAT", "accessMode": "ReadOnly", "minimum": "0", "maximum": "6", "unit": "m"});
    let position = json!({"name": "position", "type": "INT", "accessMode": "ReadWrite", "minimum": "0", "maximum": "100", "unit": "%"});
    [
        of_devices("DeviceModel", "level-meter", &json!({"properties": [level]})),
        of_devices("DeviceModel", "outlet-valve", &json!({"properties": [position]})),
        device("level-hill", "level-meter", &json!({"name": "level", "reportToCloud": true})),
        device(
            "outlet-hill",
            "outlet-valve",
            &json!({"name": "position", "reportToCloud": true, "desired": {"value": "40"}}),
        ),
    ]
}

fn device(name: &str, model: &str, property: &Value) -> Value {
    let spec = json!({"deviceModelRef": {"name": model}, "nodeName": SHOWN, "properties": [property]});
    of_devices("Device", name, &spec)
}

fn of_devices(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "devices.kubeedge.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The message that a sensor publishes (docs/devices.md).
pub(super) fn reading(property: &str, value: &str) -> Value {
    json!({"event_id": "1", "timestamp": 0, "twin": {property: {"actual": {"value": value}}}})
}

/// Two fleet jobs: an image for all gateways, one of which is down, and an upgrade that waits for a user's
/// confirmation.
pub(super) fn jobs() -> [Value; 2] {
    let digest = format!("sha256:{}", "5c".repeat(32));
    [
        job(
            "ImagePrePullJob",
            "telemetry-2-4",
            &json!({"imagePrePullTemplate": {
                "images": [format!("{REGISTRY}/{IMAGE}")], "concurrency": 4,
                "labelSelector": {"matchLabels": {"node-role.kubernetes.io/edge": ""}},
            }}),
        ),
        job(
            "NodeUpgradeJob",
            "to-1-4",
            &json!({
                "version": "v1.4.0", "image": format!("{REGISTRY}/sampan"), "requireConfirmation": true,
                "imageDigestGatter": {"amd64": digest, "arm64": digest},
                "labelSelector": {"matchLabels": {"station": "treatment"}},
            }),
        ),
    ]
}

fn job(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "operations.kubeedge.io/v1alpha2", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Configuration of docker-registry, which is YAML and so may be JSON.
pub(super) fn registry(address: SocketAddr, files: &Path) -> Value {
    json!({"version": 0.1, "log": {"level": "warn"}, "http": {"addr": address.to_string()},
        "storage": {"filesystem": {"rootdirectory": files}}})
}
