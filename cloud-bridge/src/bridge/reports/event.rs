//! Events: creates a new one, and counts up the earlier one for a repetition, as Kubernetes components do.

use sampan_json::SetField;
use std::sync::PoisonError;

use edge_protocol::message::ObjectKey;
use edge_protocol::names::event_name;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Reports;
use super::correlator::{Correlator, Decision, same};
use super::failure::Failure;
use crate::bridge::requests::{Patch, code, is_path_segment};
use crate::bridge::told::kinds::Kind;

/// Namespace of events about cluster-scoped objects (K8s pkg/apis/core/validation, `legacyValidateEvent`).
const DEFAULT: &str = "default";

/// Maximum length of a text in an event, in bytes; longer ones are cut. Texts of container runtimes have some hundreds.
const LONGEST_TEXT: usize = 4096;

/// Fields of an event that the node may set. Labels, owners and finalizers are not among them.
const FIELDS: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "series",
    "action",
    "reportingComponent",
    "reportingInstance",
];

impl Reports {
    pub(super) async fn write_event(&self, event: &Value) -> Result<(), Failure> {
        let namespace = text(&event["metadata"]["namespace"]).unwrap_or(DEFAULT);
        let name = text(&event["metadata"]["name"]).unwrap_or_default();
        if !is_path_segment(namespace) || !is_path_segment(name) {
            return Err(Failure::Refused(format!("{namespace:?}/{name:?} is no name of an event")));
        }
        // `authorize` has checked the object that the event is about; the event belongs into its namespace.
        if namespace != text(&event["involvedObject"]["namespace"]).unwrap_or(DEFAULT) {
            return Err(Failure::Refused(format!("an event about another namespace than {namespace}")));
        }
        let event = &complete(event, namespace, &self.node.name);
        let same = same(event);
        let list = format!("/api/v1/namespaces/{namespace}/events");
        let times = event["count"].as_u64().unwrap_or(1);
        let decision = self.correlator().decide(same, name, times);
        if let Decision::Nothing = decision {
            return Ok(());
        }
        if let Decision::Count { name: known, uid, count } = decision {
            // With the uid, the API refuses the patch for another event of that name.
            let patch = json!({"metadata": {"uid": uid}, "count": count, "lastTimestamp": event["lastTimestamp"],
                "message": event["message"]});
            match self.requests.patch(&format!("{list}/{known}"), Patch::Merge, &patch).await {
                Ok(_) => {
                    self.correlator().written(same, &known, &uid, name, count);
                    return Ok(());
                }
                // The API deletes events after a while.
                Err(error) if matches!(code(&error), Some(404 | 409 | 422)) => self.correlator().forget(same),
                Err(error) => return Err(error.into()),
            }
        }
        let uid = match self.requests.create(&list, event).await {
            Ok(written) => written.metadata.uid,
            // This node wrote it before its connection broke off; or it is another's event, which the node may not see.
            Err(error) if code(&error) == Some(409) => self.own_event(&format!("{list}/{name}"), event).await?,
            Err(error) => return Err(error.into()),
        };
        self.correlator().written(same, name, &uid, name, times);
        Ok(())
    }

    /// The uid of an existing event, if this node wrote it about the same object.
    async fn own_event(&self, path: &str, event: &Value) -> Result<String, Failure> {
        // A node may write events, but not read them.
        let found: Value = self.own.get(path).await?;
        let speaker = found["source"]["host"] == *self.node.name || found["reportingInstance"] == *self.node.name;
        if !speaker || found["involvedObject"]["uid"] != event["involvedObject"]["uid"] {
            return Err(Failure::Refused("an event of this name is there already, and of somebody else".to_owned()));
        }
        Ok(found["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    fn correlator(&self) -> std::sync::MutexGuard<'_, Correlator> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that tells users why a node does not have an object as it is in the API.
pub(crate) fn refusal_event(node: &str, key: &ObjectKey, uid: &str, reason: &str, now: Timestamp) -> Value {
    let version = Kind::of(key).map_or("v1", |kind| kind.facts().api);
    json!({
        "metadata": {"name": event_name(&key.name, &format!("{:x}", now.as_nanosecond())), "namespace": key.namespace},
        "involvedObject": {"apiVersion": version, "kind": key.kind, "namespace": key.namespace, "name": key.name, "uid": uid},
        "type": "Warning",
        "reason": "FailedSync",
        "message": format!("node {node} cannot apply this object: {reason}"),
        "source": {"component": "cloud-bridge", "host": node},
        "firstTimestamp": now.to_string(),
        "lastTimestamp": now.to_string(),
        "count": 1,
    })
}

/// A warning about a Node, beside the kubelet's (which give the node's name as its uid).
pub(super) fn node_warning(node: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {"name": event_name(node, &format!("{:x}", now.as_nanosecond())), "namespace": DEFAULT},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "cloud-bridge", "host": node},
        "firstTimestamp": now.to_string(),
        "lastTimestamp": now.to_string(),
        "count": 1,
    })
}

/// Returns the event with what the API needs, the fields that a node may set, and the reporting node as its source.
fn complete(event: &Value, namespace: &str, node: &str) -> Value {
    let name = event["metadata"]["name"].clone();
    let said = FIELDS.into_iter().filter_map(|field| Some((field.to_owned(), cut(event.get(field)?))));
    let mut event = Value::Object(said.collect::<Map<_, _>>());
    event.set("metadata", json!({"namespace": namespace, "name": name}));
    if !event["source"].is_object() {
        event.set("source", json!({}));
    }
    event.set_at(&["source", "host"], node.into());
    if event["reportingInstance"].as_str().is_some_and(|instance| !instance.is_empty()) {
        event.set("reportingInstance", node.into());
    }
    event.set("apiVersion", "v1".into());
    event.set("kind", "Event".into());
    if event["count"].as_u64().is_none_or(|count| count == 0) {
        event.set("count", 1.into());
    }
    event
}

/// Cuts long texts at any depth; the depth was checked before.
fn cut(value: &Value) -> Value {
    match value {
        Value::String(text) => text[..text.floor_char_boundary(LONGEST_TEXT)].into(),
        Value::Array(items) => items.iter().map(cut).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), cut(value))).collect(),
        other => other.clone(),
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g27_an_event_says_who_speaks_and_nothing_that_is_not_a_nodes_to_say() {
        let event = json!({
            "metadata": {"name": "p.1", "namespace": "ns", "labels": {"a": "b"}, "ownerReferences": [{}], "finalizers": ["x"]},
            "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"},
            "message": "m".repeat(2 << 20), "reason": "Lie", "source": "x", "reportingInstance": "other", "count": -3,
            "somethingElse": {"deep": 1},
        });
        let event = complete(&event, "ns", "edge-1");
        assert_eq!(event["metadata"], json!({"name": "p.1", "namespace": "ns"}));
        assert_eq!((&event["source"], &event["reportingInstance"]), (&json!({"host": "edge-1"}), &json!("edge-1")));
        assert_eq!((event["message"].as_str().map(str::len), &event["count"]), (Some(LONGEST_TEXT), &json!(1)));
        assert_eq!(event.get("somethingElse"), None);
        let kept = complete(&json!({"source": {"component": "kubelet", "host": "x"}, "count": 4}), "ns", "edge-1");
        assert_eq!(kept["source"], json!({"component": "kubelet", "host": "edge-1"}));
        assert_eq!((&kept["count"], kept.get("reportingInstance")), (&json!(4), None));
    }
    #[test]
    fn refusal_names_the_version_of_its_object() {
        let version = |key: ObjectKey| {
            let event = refusal_event("edge-1", &key, "u", "why", Timestamp::UNIX_EPOCH);
            event["involvedObject"]["apiVersion"].clone()
        };
        assert_eq!(version(Kind::ConfigMap.key("ns", "m")), "v1");
        assert_eq!(version(Kind::Device.key("ns", "d")), "devices.kubeedge.io/v1beta1");
        assert_eq!(version(Kind::RuntimeClass.key("", "quick")), "node.k8s.io/v1");
    }
}
