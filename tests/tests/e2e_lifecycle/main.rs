//! Life and end of a pod: hooks, probes, termination messages, sidecars. As in Kubernetes' node conformance tests.

mod ephemeral;
mod hooks;
mod messages;
mod probes;
mod processes;
mod resize;
mod restarts;

use serde_json::Value;

/// Status of the container `name`, init containers included.
fn status(pod: &Value, name: &str) -> Value {
    let of = |list: &str| pod["status"][list].as_array().cloned().unwrap_or_default();
    let all = of("containerStatuses").into_iter().chain(of("initContainerStatuses"));
    all.into_iter().find(|one| one["name"] == name).unwrap_or(Value::Null)
}

/// `Reason: message` of all events about a pod, oldest first.
fn events(kubectl: &sampan_tests::Kubectl, pod: &str) -> Vec<String> {
    let text = kubectl.ok(&["get", "events", "--field-selector", &format!("involvedObject.name={pod}"), "-o", "json"]);
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let text = |event: &Value| {
        format!("{}: {}", event["reason"].as_str().unwrap_or_default(), event["message"].as_str().unwrap_or_default())
    };
    list["items"].as_array().into_iter().flatten().map(text).collect()
}
