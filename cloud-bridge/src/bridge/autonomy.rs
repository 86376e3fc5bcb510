//! How long the pods of a silent node stay: the value of `sampan.dev/autonomy` on a Node, applied as tolerations of its
//! pods. Owns that decision; the patch is sent by `informers`.
//!
//! A cluster evicts the pods of an unreachable node after the `tolerationSeconds` of each pod, which admission sets to
//! 300 (K8s plugin/pkg/admission/defaulttolerationseconds). The seconds of an existing pod may be changed (K8s
//! pkg/apis/core/validation, `validateOnlyAddedTolerations`), and the eviction controller obeys them, so no webhook is
//! needed. Seconds that a user chose are never changed.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sampan_duration::Typed;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::slim::{SlimNode, SlimPod};

/// Annotation. On a Node: how long its pods stay if it is silent (`90s`, `30m`, `24h`, `7d`, `forever`). On a pod: the
/// value that the bridge has applied.
pub(super) const AUTONOMY: &str = "sampan.dev/autonomy";

/// Taints of a silent node.
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// How long pods stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Seconds(u64),
    Forever,
}

impl Span {
    fn parse(text: &str) -> Option<Self> {
        if text == "forever" {
            return Some(Self::Forever);
        }
        let seconds = text.parse::<Typed>().ok()?.0.as_secs();
        // Seconds are signed 64-bit numbers in the API.
        i64::try_from(seconds).is_ok().then_some(Self::Seconds(seconds))
    }

    fn seconds(self) -> Option<u64> {
        if let Self::Seconds(seconds) = self { Some(seconds) } else { None }
    }

    fn text(self) -> String {
        self.seconds().map_or_else(|| "forever".to_owned(), |seconds| format!("{seconds}s"))
    }
}

/// The annotations of all Nodes.
#[derive(Debug)]
pub(super) struct Autonomy {
    nodes: Mutex<Nodes>,
    /// Seconds that admission sets in pods without an own value.
    default: u64,
}

#[derive(Debug, Default)]
struct Nodes {
    /// Whether all Nodes were seen: a node that is not in the map then has no annotation.
    listed: bool,
    spans: HashMap<String, Span>,
    /// Nodes that were not seen yet when one of their pods came, to which an annotation was applied before.
    undecided: HashSet<String>,
}

impl Autonomy {
    pub(super) fn new(default: u64) -> Self {
        Self { nodes: Mutex::default(), default }
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the annotation of a Node. True if it changed, so its pods must be checked.
    pub(super) fn node(&self, node: &SlimNode) -> bool {
        let said = node.metadata.annotations.as_ref().and_then(|all| all.get(AUTONOMY));
        let span = said.and_then(|text| Span::parse(text));
        if let (Some(text), None) = (said, span) {
            log::warn!(
                "node {}: annotation {AUTONOMY}: {text:?} is not understood: use a number with s, m, h or d, or \"forever\"",
                node.name()
            );
        }
        let mut nodes = self.nodes();
        let before = match span {
            Some(span) => nodes.spans.insert(node.name().to_owned(), span),
            None => nodes.spans.remove(node.name()),
        };
        before != span
    }

    /// All Nodes were seen. Returns those whose pods must be checked, because they have no annotation any more.
    pub(super) fn listed(&self) -> HashSet<String> {
        let mut nodes = self.nodes();
        nodes.listed = true;
        let mut undecided = std::mem::take(&mut nodes.undecided);
        undecided.retain(|name| !nodes.spans.contains_key(name));
        undecided
    }

    pub(super) fn forget(&self, node: &str) {
        self.nodes().spans.remove(node);
    }

    /// The merge patch that applies a pod's Node's annotation; `None` if it is applied, or not known yet.
    pub(super) fn patch(&self, pod: &SlimPod) -> Option<Value> {
        let mut nodes = self.nodes();
        let span = nodes.spans.get(pod.node()).copied();
        if span.is_none() && !nodes.listed {
            if pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(AUTONOMY)) {
                nodes.undecided.insert(pod.node().to_owned());
            }
            return None;
        }
        patch(pod, span, self.default)
    }
}

fn patch(pod: &SlimPod, span: Option<Span>, default: u64) -> Option<Value> {
    let noted = pod.metadata.annotations.as_ref().and_then(|all| all.get(AUTONOMY));
    if pod.metadata.deletion_timestamp.is_some() || (span.is_none() && noted.is_none()) {
        return None;
    }
    let noted = noted.and_then(|text| Span::parse(text));
    let mut tolerations = pod.spec["tolerations"].as_array()?.clone();
    let wanted = span.unwrap_or(Span::Seconds(default));
    let mut changed = false;
    for one in &mut tolerations {
        let about = one["key"].as_str().is_some_and(|key| TAINTS.contains(&key)) && one["effect"] == "NoExecute";
        let seconds = one["tolerationSeconds"].as_u64();
        // Set by admission, or by the bridge from an earlier annotation.
        let ours = seconds == Some(default) || noted.is_some_and(|noted| noted.seconds() == seconds);
        if about && ours && seconds != wanted.seconds() {
            match wanted.seconds() {
                Some(seconds) => one.set("tolerationSeconds", seconds.into()),
                None => drop(one.as_object_mut()?.remove("tolerationSeconds")),
            }
            changed = true;
        }
    }
    changed.then(|| {
        json!({
            "metadata": {
                "uid": pod.uid(),
                "resourceVersion": pod.metadata.resource_version,
                "annotations": {AUTONOMY: span.map(Span::text)},
            },
            "spec": {"tolerations": tolerations},
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(seconds: &Value, noted: &Value) -> SlimPod {
        let toleration = |key: &str, seconds: &Value| {
            let mut one = json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
            if !seconds.is_null() {
                one["tolerationSeconds"] = seconds.clone();
            }
            one
        };
        let mut metadata = json!({"name": "p", "uid": "u", "resourceVersion": "7"});
        if !noted.is_null() {
            metadata["annotations"] = json!({AUTONOMY: noted});
        }
        serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": "n", "tolerations": [
            toleration("dedicated", &json!(300)), toleration(TAINTS[0], seconds), toleration(TAINTS[1], seconds),
        ]}}))
        .unwrap()
    }

    fn seconds(patch: &Value) -> Vec<Value> {
        patch["spec"]["tolerations"].as_array().unwrap().iter().map(|one| one["tolerationSeconds"].clone()).collect()
    }

    #[test]
    fn defaults_follow_the_node_and_choices_stay() {
        let day = Some(Span::Seconds(86_400));
        let patch = |pod: &SlimPod, span| patch(pod, span, 300);
        let given = patch(&pod(&json!(300), &Value::Null), day).unwrap();
        assert_eq!(seconds(&given), [300, 86_400, 86_400], "the taint of somebody else is none of ours");
        assert_eq!(given["metadata"]["annotations"][AUTONOMY], "86400s");
        assert_eq!(given["metadata"]["resourceVersion"], "7");
        assert_eq!(patch(&pod(&json!(86_400), &json!("86400s")), day), None, "it has it");
        assert_eq!(patch(&pod(&json!(60), &Value::Null), day), None, "chosen by a user");
        assert_eq!(patch(&pod(&Value::Null, &Value::Null), day), None, "for ever, chosen by a user");
        let longer = patch(&pod(&json!(86_400), &json!("86400s")), Some(Span::Forever)).unwrap();
        assert_eq!(seconds(&longer), [json!(300), Value::Null, Value::Null]);
        let shorter = patch(&pod(&Value::Null, &json!("forever")), day).unwrap();
        assert_eq!(seconds(&shorter), [300, 86_400, 86_400]);
        let back = patch(&pod(&json!(86_400), &json!("86400s")), None).unwrap();
        assert_eq!(seconds(&back), [300, 300, 300]);
        assert_eq!(back["metadata"]["annotations"][AUTONOMY], Value::Null, "a merge patch removes it");
        assert_eq!(patch(&pod(&json!(300), &Value::Null), None), None);
        // If admission sets other seconds, those are the default.
        assert_eq!(super::patch(&pod(&json!(300), &Value::Null), day, 60), None);
        let given = super::patch(&pod(&json!(60), &Value::Null), day, 60).unwrap();
        assert_eq!(seconds(&given), [300, 86_400, 86_400]);
    }

    #[test]
    fn pods_that_come_before_their_nodes_are_checked_again() {
        let pod = pod(&json!(86_400), &json!("86400s"));
        let autonomy = Autonomy::new(300);
        assert_eq!(autonomy.patch(&pod), None, "its node may have the annotation");
        assert_eq!(autonomy.listed(), HashSet::from(["n".to_owned()]));
        assert!(autonomy.patch(&pod).is_some(), "it has none any more");
        assert!(autonomy.listed().is_empty());

        let autonomy = Autonomy::new(300);
        assert_eq!(autonomy.patch(&pod), None);
        let node = json!({"metadata": {"name": "n", "annotations": {AUTONOMY: "24h"}}});
        assert!(autonomy.node(&serde_json::from_value(node).unwrap()), "which has its pods checked");
        assert!(autonomy.listed().is_empty());
    }

    #[test]
    fn reads_spans() {
        for (text, span) in [
            ("90s", Some(Span::Seconds(90))),
            ("30m", Some(Span::Seconds(1800))),
            ("24h", Some(Span::Seconds(86_400))),
            ("7d", Some(Span::Seconds(604_800))),
            ("forever", Some(Span::Forever)),
            ("", None),
            ("1h30m", Some(Span::Seconds(5400))),
            ("7", Some(Span::Seconds(7))),
            ("-1s", None),
            ("1w", None),
            ("99999999999999999d", None),
        ] {
            assert_eq!(Span::parse(text), span, "{text}");
        }
    }
}
