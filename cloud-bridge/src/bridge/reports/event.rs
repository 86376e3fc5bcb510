//! Events: a new one is created; one that repeats an earlier one only counts it up, as Kubernetes components do.

use edge_protocol::json::SetField;
use std::collections::HashMap;
use std::sync::PoisonError;

use edge_protocol::message::ObjectKey;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Failure, Reports, code};
use crate::bridge::requests::{Patch, is_path_segment};

/// Different events remembered per node; beyond it the oldest memory goes and its event is created anew.
const REMEMBERED: usize = 1024;

/// What makes two events the same.
type Same = String;

/// Events written lately.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    known: HashMap<Same, Known>,
    clock: u64,
}

#[derive(Debug)]
struct Known {
    /// Name of the object in the API.
    name: String,
    count: u64,
    /// Name the node gave the newest occurrence: one that comes again is not counted again.
    newest: String,
    used: u64,
}

/// What to do with an event.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    Create,
    /// Raise the count of the object with this name.
    Count {
        name: String,
        count: u64,
    },
    /// It was written before.
    Nothing,
}

impl Correlator {
    /// `times`: how often it happened; more than once while the node had no link.
    fn decide(&mut self, same: &str, name: &str, times: u64) -> Decision {
        self.clock += 1;
        match self.known.get_mut(same) {
            None => Decision::Create,
            Some(known) if known.newest == name => Decision::Nothing,
            Some(known) => {
                known.used = self.clock;
                Decision::Count { name: known.name.clone(), count: known.count + times }
            }
        }
    }

    fn written(&mut self, same: Same, name: &str, newest: &str, count: u64) {
        if self.known.len() >= REMEMBERED && !self.known.contains_key(&same) {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.used).map(|(same, _)| same.clone());
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        let used = self.clock;
        self.known.insert(same, Known { name: name.to_owned(), count, newest: newest.to_owned(), used });
    }

    fn forget(&mut self, same: &str) {
        self.known.remove(same);
    }
}

impl Reports {
    pub(super) async fn write_event(&self, event: &Value) -> Result<(), Failure> {
        let namespace = text(&event["metadata"]["namespace"]).unwrap_or("default");
        let name = text(&event["metadata"]["name"]).unwrap_or_default();
        if !is_path_segment(namespace) || !is_path_segment(name) {
            return Err(Failure::Refused(format!("{namespace:?}/{name:?} is no name of an event")));
        }
        let same = same(event);
        let list = format!("/api/v1/namespaces/{namespace}/events");
        let times = event["count"].as_u64().unwrap_or(1);
        let decision = self.correlator().decide(&same, name, times);
        if let Decision::Nothing = decision {
            return Ok(());
        }
        if let Decision::Count { name: known, count } = decision {
            let patch = json!({"count": count, "lastTimestamp": event["lastTimestamp"], "message": event["message"]});
            match self.requests.patch(&format!("{list}/{known}"), Patch::Merge, &patch).await {
                Ok(_) => {
                    self.correlator().written(same, &known, name, count);
                    return Ok(());
                }
                // The API forgets events after a while.
                Err(error) if code(&error) == Some(404) => self.correlator().forget(&same),
                Err(error) => return Err(error.into()),
            }
        }
        match self.requests.create(&list, &complete(event, namespace, &self.node.name)).await {
            Ok(_) => {}
            // Written before a connection broke off.
            Err(error) if code(&error) == Some(409) => {}
            Err(error) => return Err(error.into()),
        }
        self.correlator().written(same, name, name, event["count"].as_u64().unwrap_or(1));
        Ok(())
    }

    fn correlator(&self) -> std::sync::MutexGuard<'_, Correlator> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An event that tells users why a node does not have an object as it is in the API.
pub(crate) fn refusal_event(node: &str, key: &ObjectKey, uid: &str, reason: &str, now: Timestamp) -> Value {
    json!({
        "metadata": {"name": format!("{}.{:x}", key.name, now.as_nanosecond()), "namespace": key.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": key.kind, "namespace": key.namespace, "name": key.name, "uid": uid},
        "type": "Warning",
        "reason": "FailedSync",
        "message": format!("node {node} cannot apply this object: {reason}"),
        "source": {"component": "cloud-bridge", "host": node},
        "firstTimestamp": now.to_string(),
        "lastTimestamp": now.to_string(),
        "count": 1,
    })
}

/// The fields that client-go compares, too.
fn same(event: &Value) -> Same {
    let involved = &event["involvedObject"];
    let parts = [
        &event["source"]["component"],
        &event["source"]["host"],
        &involved["kind"],
        &involved["namespace"],
        &involved["name"],
        &involved["uid"],
        &involved["fieldPath"],
        &event["type"],
        &event["reason"],
        &event["message"],
    ];
    parts.map(|part| part.as_str().unwrap_or_default()).join("\u{0}")
}

/// What the API needs; and the node in it is the one that speaks.
fn complete(event: &Value, namespace: &str, node: &str) -> Value {
    let mut event = event.clone();
    if let Some(fields) = event.as_object_mut() {
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("kind".to_owned(), "Event".into());
        if fields.get("count").is_none_or(Value::is_null) {
            fields.insert("count".to_owned(), 1.into());
        }
    }
    event.set_at(&["metadata", "namespace"], namespace.into());
    if event["source"].is_object() {
        event.set_at(&["source", "host"], node.into());
    }
    if event["reportingInstance"].is_string() {
        event.set("reportingInstance", node.into());
    }
    event
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_and_repetitions_of_the_link_are_not() {
        let mut correlator = Correlator::default();
        assert_eq!(correlator.decide("s", "p.1", 1), Decision::Create);
        correlator.written("s".into(), "p.1", "p.1", 1);
        assert_eq!(correlator.decide("s", "p.1", 1), Decision::Nothing);
        assert_eq!(correlator.decide("s", "p.2", 1), Decision::Count { name: "p.1".into(), count: 2 });
        correlator.written("s".into(), "p.1", "p.2", 2);
        assert_eq!(correlator.decide("s", "p.3", 4), Decision::Count { name: "p.1".into(), count: 6 });
        correlator.forget("s");
        assert_eq!(correlator.decide("s", "p.4", 1), Decision::Create);
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = Correlator::default();
        for number in 0..REMEMBERED + 10 {
            correlator.decide(&number.to_string(), "e", 1);
            correlator.written(number.to_string(), "e", "e", 1);
        }
        assert_eq!(correlator.known.len(), REMEMBERED);
        assert_eq!(correlator.decide("0", "f", 1), Decision::Create, "the oldest went");
    }

    #[test]
    fn events_differ_by_message_and_object_but_not_by_time() {
        let event = json!({"message": "m", "involvedObject": {"uid": "u"}, "lastTimestamp": "1"});
        let mut later = event.clone();
        later["lastTimestamp"] = "2".into();
        assert_eq!(same(&event), same(&later));
        later["message"] = "n".into();
        assert_ne!(same(&event), same(&later));
    }
}
