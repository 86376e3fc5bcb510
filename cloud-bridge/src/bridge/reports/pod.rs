//! Status and deletion of a pod.

use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::failure::Failure;
use crate::bridge::requests::{Patch, Requests, code, is_path_segment};

/// Fields of `PodStatus` that the node owns and may clear. A patch leaves fields alone that it does not name, so those
/// that the node no longer reports are set to null.
const CLEARED: [&str; 7] = [
    "message",
    "reason",
    "podIP",
    "podIPs",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Patches the status, as a kubelet does: conditions merge by type, so those of other controllers stay. With `version`,
/// only if the pod still has that resource version.
pub(super) async fn status(
    requests: &Requests,
    version: Option<String>,
    namespace: &str,
    name: &str,
    uid: &str,
    status: &Value,
) -> Result<(), Failure> {
    let path = format!("{}/status", path(namespace, name)?);
    let mut patch = status_patch(uid, status).ok_or_else(|| Failure::Refused("the status is no object".to_owned()))?;
    if let Some(version) = &version {
        patch.set_at(&["metadata", "resourceVersion"], version.as_str().into());
    }
    match requests.patch(&path, Patch::Strategic, &patch).await {
        // Also without a version: the API gives up after some conflicts with other writers.
        Err(error) if code(&error) == Some(409) => Err(Failure::Changed),
        other => Ok(other.map(drop)?),
    }
}

/// Deletes the object without a grace period. It is also a success if the object is gone, or another pod has its name.
pub(super) async fn gone(requests: &Requests, namespace: &str, name: &str, uid: &str) -> Result<(), Failure> {
    match requests.delete_now(&path(namespace, name)?, uid).await {
        Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Sets the pod's Ready condition with a [`ready_patch`]. It is also a success if the pod was changed meanwhile: the
/// watch delivers its present state, which may be not ready in truth.
pub(super) async fn ready(requests: &Requests, namespace: &str, name: &str, patch: &Value) -> Result<(), Failure> {
    match requests.patch(&format!("{}/status", path(namespace, name)?), Patch::Strategic, patch).await {
        Err(error) if code(&error) == Some(409) => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// The patch that sets the Ready condition and nothing else, in this version of the pod if it is known.
pub(super) fn ready_patch(uid: &str, version: Option<u64>, now: Timestamp) -> Value {
    let time = rfc3339(now);
    let condition =
        json!({"type": "Ready", "status": "True", "lastTransitionTime": time, "reason": null, "message": null});
    let mut patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
    if let Some(version) = version {
        patch.set_at(&["metadata", "resourceVersion"], version.to_string().into());
    }
    patch
}

pub(super) fn path(namespace: &str, name: &str) -> Result<String, Failure> {
    if !is_path_segment(namespace) || !is_path_segment(name) {
        return Err(Failure::Refused(format!("{namespace:?}/{name:?} is no name of a pod")));
    }
    Ok(format!("/api/v1/namespaces/{namespace}/pods/{name}"))
}

/// Conditions that a node sets only while they are true.
const PASSING: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// A strategic merge patch that makes `status` the node's part of the pod's status. The uid in it makes the API
/// refuse the patch for another pod of the same name.
fn status_patch(uid: &str, status: &Value) -> Option<Value> {
    let mut fields = status.as_object()?.clone();
    for name in CLEARED {
        fields.entry(name).or_insert(Value::Null);
    }
    // Addresses merge by ip: a removed one would stay, and the API refuses two of one family.
    for name in ["podIPs", "hostIPs"] {
        if let Some(Value::Array(addresses)) = fields.get_mut(name) {
            addresses.insert(0, json!({"$patch": "replace"}));
        }
    }
    // Conditions merge by type: one that was reported before must not stay if it no longer holds.
    for condition in fields.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        for name in ["reason", "message"] {
            condition.as_object_mut().map(|all| all.entry(name).or_insert(Value::Null));
        }
    }
    if let Some(conditions) = fields.get_mut("conditions").and_then(Value::as_array_mut) {
        for name in PASSING {
            if !conditions.iter().any(|condition| condition["type"] == name) {
                conditions.push(json!({"$patch": "delete", "type": name}));
            }
        }
    }
    let mut patch = json!({"metadata": {"uid": uid}});
    // The macro would copy it.
    patch.set("status", fields.into());
    Some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_restored_only_in_the_version_that_was_seen() {
        let patch = ready_patch("u1", Some(7), Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"], json!({"uid": "u1", "resourceVersion": "7"}));
        assert_eq!(patch["status"]["conditions"][0]["status"], "True");
        assert_eq!(ready_patch("u1", None, Timestamp::UNIX_EPOCH)["metadata"], json!({"uid": "u1"}));
    }

    #[test]
    fn a_status_replaces_what_the_node_owns() {
        let status = json!({"phase": "Running", "podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}],
                            "conditions": [{"type": "Ready", "status": "True"}]});
        let patch = status_patch("u1", &status).unwrap();
        assert_eq!(patch["metadata"], json!({"uid": "u1"}));
        assert_eq!(patch["status"]["podIPs"], json!([{"$patch": "replace"}, {"ip": "10.0.0.2"}]));
        assert_eq!(patch["status"]["message"], Value::Null);
        assert!(patch["status"].as_object().unwrap().contains_key("containerStatuses"));
        let condition = json!({"type": "Ready", "status": "True", "reason": null, "message": null});
        let gone = |name: &str| json!({"$patch": "delete", "type": name});
        let all = json!([condition, gone("PodResizePending"), gone("PodResizeInProgress")]);
        assert_eq!(patch["status"]["conditions"], all);
        assert!(!patch["status"].as_object().unwrap().contains_key("startTime"));
        assert_eq!(status_patch("u1", &json!("x")), None);
    }

    #[test]
    fn names_are_checked() {
        assert!(path("ns", "a/../b").is_err());
        assert_eq!(path("ns", "web").ok().as_deref(), Some("/api/v1/namespaces/ns/pods/web"));
    }
}
