//! The taints that follow from how a node is (K8s pkg/controller/nodelifecycle/node_lifecycle_controller.go,
//! `doNoScheduleTaintingPass`, `processTaintBaseEviction`). Pure.

use serde_json::{Value, json};

use super::node::SlimNode;
use apimachinery::json::text;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, its status, and the key of the taint.
const CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// Whether a node that is not ready may have a taint that evicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evict {
    Yes,
    /// Only as a replacement of an existing one: the rate limit delays a new one.
    Held,
    No,
}

/// Whether the node needs an evicting taint but does not have one: it waits for its turn.
pub(super) fn is_to_be_evicted(node: &SlimNode) -> bool {
    ["False", "Unknown"].contains(&node.ready()) && !evicts_already(node)
}

fn evicts_already(node: &SlimNode) -> bool {
    let ours = |taint: &Value| is(taint, NOT_READY, "NoExecute") || is(taint, UNREACHABLE, "NoExecute");
    node.spec.taints.iter().any(ours)
}

/// The taints that the node should have, if they are not those that it has.
pub(super) fn wanted(node: &SlimNode, evict: Evict, now: &str) -> Option<Vec<Value>> {
    let held = &node.spec.taints;
    let holds = |key: &str, effect: &str| held.iter().any(|taint| is(taint, key, effect));
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (condition, status, key) in CONDITIONS {
        if node.status.conditions.iter().any(|one| one.kind == condition && one.status == status) {
            wanted.push((key, "NoSchedule"));
            let evicts = match evict {
                Evict::Yes => true,
                Evict::Held => evicts_already(node),
                Evict::No => false,
            };
            if condition == "Ready" && evicts {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    if node.spec.unschedulable == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let stays = |taint: &&Value| !is_ours(taint) || wanted.iter().any(|(key, effect)| is(taint, key, effect));
    let mut taints: Vec<Value> = held.iter().filter(stays).cloned().collect();
    let missing: Vec<_> = wanted.iter().filter(|(key, effect)| !holds(key, effect)).collect();
    if missing.is_empty() && taints.len() == held.len() {
        return None;
    }
    let made = |(key, effect): &&(&str, &str)| json!({"key": key, "effect": effect, "timeAdded": now});
    taints.extend(missing.iter().map(made));
    Some(taints)
}

fn is(taint: &Value, key: &str, effect: &str) -> bool {
    text(taint, "key") == key && text(taint, "effect") == effect
}

/// Whether the taint follows from the state of a node, independent of its author.
fn is_ours(taint: &Value) -> bool {
    let key = text(taint, "key");
    match text(taint, "effect") {
        "NoSchedule" => key == UNSCHEDULABLE || CONDITIONS.iter().any(|(.., own)| *own == key),
        "NoExecute" => [NOT_READY, UNREACHABLE].contains(&key),
        _ => false,
    }
}

/// The taints that evict pods. Those of silent nodes only if `evicts`: a pod may still run there, so eviction must be
/// enabled explicitly.
pub(super) fn no_execute(node: &SlimNode, evicts: bool) -> Vec<Value> {
    let counts = |taint: &&Value| text(taint, "effect") == "NoExecute" && (evicts || !is_ours(taint));
    let taints = node.spec.taints.iter().filter(counts);
    // The time of a taint does not affect which pods it evicts.
    let bare = |taint: &Value| json!({"key": taint["key"], "value": taint["value"], "effect": taint["effect"]});
    taints.map(bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(conditions: &[(&str, &str)], spec: &Value) -> SlimNode {
        let conditions: Vec<Value> =
            conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        let node = json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}});
        serde_json::from_value(node).unwrap()
    }

    fn taint(key: &str, effect: &str) -> Value {
        json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect})
    }

    fn told(node: &SlimNode, evict: Evict) -> Option<Vec<String>> {
        let say = |taint: &Value| {
            format!("{}:{}", text(taint, "key").trim_start_matches("node.kubernetes.io/"), text(taint, "effect"))
        };
        Some(wanted(node, evict, "2026-01-01T00:00:00Z")?.iter().map(say).collect())
    }

    #[test]
    fn taints_follow_conditions() {
        type Conditions = &'static [(&'static str, &'static str)];
        let cases: [(Conditions, Value, &[&str]); 6] = [
            (&[("Ready", "False")], json!({}), &["not-ready:NoSchedule", "not-ready:NoExecute"]),
            (&[("Ready", "Unknown")], json!({}), &["unreachable:NoSchedule", "unreachable:NoExecute"]),
            (
                &[("Ready", "True"), ("MemoryPressure", "True"), ("DiskPressure", "True"), ("PIDPressure", "True")],
                json!({"taints": null}),
                &["memory-pressure:NoSchedule", "disk-pressure:NoSchedule", "pid-pressure:NoSchedule"],
            ),
            (&[("NetworkUnavailable", "True")], json!({}), &["network-unavailable:NoSchedule"]),
            (&[("Ready", "True")], json!({"unschedulable": true}), &["unschedulable:NoSchedule"]),
            // Replaces own taints by key and effect, and keeps those of others.
            (
                &[("Ready", "Unknown"), ("MemoryPressure", "Unknown")],
                json!({"taints": [taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute"),
                    taint("memory-pressure", "NoSchedule"), taint("memory-pressure", "NoExecute"),
                    {"key": "mine", "effect": "NoExecute"}]}),
                &["memory-pressure:NoExecute", "mine:NoExecute", "unreachable:NoSchedule", "unreachable:NoExecute"],
            ),
        ];
        for (conditions, spec, taints) in cases {
            let node = node(conditions, &spec);
            assert_eq!(told(&node, Evict::Yes).unwrap(), taints, "{conditions:?} {spec}");
        }
        let well = node(&[("Ready", "True"), ("DiskPressure", "False")], &json!({"taints": [taint("x", "NoExecute")]}));
        assert_eq!(told(&well, Evict::Yes), None);
        assert_eq!(told(&node(&[], &json!({})), Evict::Yes), None, "one that has said nothing yet");
        let taints = [taint("unreachable", "NoSchedule"), taint("unreachable", "NoExecute")];
        let silent = node(&[("Ready", "Unknown")], &json!({"taints": taints}));
        assert_eq!(told(&silent, Evict::Yes), None, "it is so already");
        let back = node(&[("Ready", "True")], &json!({"taints": taints}));
        assert_eq!(told(&back, Evict::Yes), Some(Vec::new()));
    }

    #[test]
    fn taint_that_evicts_waits_for_its_turn() {
        let silent = node(&[("Ready", "Unknown")], &json!({}));
        for evict in [Evict::Held, Evict::No] {
            assert_eq!(told(&silent, evict).unwrap(), ["unreachable:NoSchedule"]);
        }
        let tainted = |key: &str| {
            node(
                &[("Ready", "Unknown")],
                &json!({"taints": [taint("unreachable", "NoSchedule"), taint(key, "NoExecute")]}),
            )
        };
        assert_eq!(told(&tainted("unreachable"), Evict::Held), None, "what is under way goes on");
        let swapped = told(&tainted("not-ready"), Evict::Held).unwrap();
        assert_eq!(swapped, ["unreachable:NoSchedule", "unreachable:NoExecute"]);
        assert_eq!(told(&tainted("unreachable"), Evict::No).unwrap(), ["unreachable:NoSchedule"]);
        let waits = [&silent, &tainted("not-ready"), &node(&[("Ready", "True")], &json!({})), &node(&[], &json!({}))];
        assert_eq!(waits.map(is_to_be_evicted), [true, false, false, false]);
    }

    #[test]
    fn a_silent_node_is_no_reason_to_go_unless_asked_for() {
        let taints = [taint("unreachable", "NoExecute"), taint("unreachable", "NoSchedule"), taint("x", "NoExecute")];
        let node = node(&[], &json!({"taints": taints}));
        let keys =
            |evicts: bool| no_execute(&node, evicts).iter().map(|one| text(one, "key").to_owned()).collect::<Vec<_>>();
        assert_eq!(keys(false), ["node.kubernetes.io/x"]);
        assert_eq!(keys(true), ["node.kubernetes.io/unreachable", "node.kubernetes.io/x"]);
    }
}
