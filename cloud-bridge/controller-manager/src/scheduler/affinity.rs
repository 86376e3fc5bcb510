//! Which pods a pod wants near it, and which not: inter-pod affinity (K8s pkg/scheduler/framework/plugins/interpodaffinity).
//! Pure.

use std::collections::HashMap;

use serde_json::Value;

use super::pod::Pod;
use super::selector::{add_label_keys, selects_some};
use apimachinery::json::{integer, items, present, text};
use apimachinery::selector::selects;

/// The labels of each namespace.
pub(super) type Namespaces = HashMap<String, Value>;

/// What a required affinity term of a pod that is there weighs for one that comes (K8s `HardPodAffinityWeight`).
const HARD_WEIGHT: i64 = 1;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Affinity {
    near: Vec<Term>,
    apart: Vec<Term>,
    rather_near: Vec<Term>,
    rather_apart: Vec<Term>,
}

/// One term: pods of some labels in some namespaces, on nodes with the same value of a label.
#[derive(Debug, Clone, PartialEq)]
struct Term {
    /// Null selects nothing.
    selector: Value,
    namespaces: Vec<String>,
    /// Null selects none.
    namespace_selector: Value,
    topology_key: String,
    weight: i64,
}

impl Affinity {
    pub(super) fn of(spec: &Value, namespace: &str, labels: &Value) -> Self {
        let list = |kind: &str, field: &str| items(&spec["affinity"][kind], field).to_vec();
        let required = |kind: &str| -> Vec<Term> {
            let terms = list(kind, "requiredDuringSchedulingIgnoredDuringExecution");
            terms.iter().map(|term| Term::of(term, namespace, labels, 0)).collect()
        };
        let preferred = |kind: &str| -> Vec<Term> {
            let terms = list(kind, "preferredDuringSchedulingIgnoredDuringExecution");
            let weight = |one: &Value| integer(one, "weight").unwrap_or_default();
            terms.iter().map(|one| Term::of(&one["podAffinityTerm"], namespace, labels, weight(one))).collect()
        };
        Self {
            near: required("podAffinity"),
            apart: required("podAntiAffinity"),
            rather_near: preferred("podAffinity"),
            rather_apart: preferred("podAntiAffinity"),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn has_required(&self) -> bool {
        !self.near.is_empty() || !self.apart.is_empty()
    }

    pub(super) fn has_preferred(&self) -> bool {
        !self.rather_near.is_empty() || !self.rather_apart.is_empty()
    }
}

impl Term {
    fn of(term: &Value, namespace: &str, labels: &Value, weight: i64) -> Self {
        let mut namespaces: Vec<String> =
            items(term, "namespaces").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let namespace_selector = present(term, "namespaceSelector").cloned().unwrap_or_default();
        if namespaces.is_empty() && namespace_selector.is_null() {
            namespaces.push(namespace.to_owned());
        }
        let mut selector = term["labelSelector"].clone();
        add_label_keys(&mut selector, items(term, "matchLabelKeys"), "In", labels);
        add_label_keys(&mut selector, items(term, "mismatchLabelKeys"), "NotIn", labels);
        Self { selector, namespaces, namespace_selector, topology_key: text(term, "topologyKey").to_owned(), weight }
    }

    fn matches(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        let namespace = &pod.key.0;
        let of_namespace = || {
            let labels = namespaces.get(namespace).unwrap_or(&Value::Null);
            !self.namespace_selector.is_null() && selects(&self.namespace_selector, labels)
        };
        (self.namespaces.contains(namespace) || of_namespace()) && selects_some(&self.selector, &pod.labels)
    }
}

/// How many pods there are for a label and its value.
type Counts = HashMap<(String, String), i64>;

fn count(counts: &mut Counts, key: &str, labels: &Value, by: i64) {
    let Some(value) = labels.get(key).and_then(Value::as_str) else { return };
    let pair = (key.to_owned(), value.to_owned());
    let sum = counts.get(&pair).copied().unwrap_or_default().saturating_add(by);
    if sum == 0 {
        counts.remove(&pair)
    } else {
        counts.insert(pair, sum)
    };
}

fn counted(counts: &Counts, key: &str, labels: &Value) -> Option<i64> {
    let value = labels.get(key).and_then(Value::as_str)?;
    Some(counts.get(&(key.to_owned(), value.to_owned())).copied().unwrap_or_default())
}

/// What there is near the nodes, for one pod to be placed.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// Pods that are there and want to be apart from this one.
    kept_off: Counts,
    near: Counts,
    apart: Counts,
}

impl State {
    /// `other` is on a node with these labels (`by` is 1), or no longer (-1).
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, node: &Value, by: i64, namespaces: &Namespaces) {
        for term in other.affinity.apart.iter().filter(|term| term.matches(pod, namespaces)) {
            count(&mut self.kept_off, &term.topology_key, node, by);
        }
        let own = &pod.affinity;
        if !own.near.is_empty() && own.near.iter().all(|term| term.matches(other, namespaces)) {
            own.near.iter().for_each(|term| count(&mut self.near, &term.topology_key, node, by));
        }
        for term in own.apart.iter().filter(|term| term.matches(other, namespaces)) {
            count(&mut self.apart, &term.topology_key, node, by);
        }
    }

    /// Why the pod cannot be on a node with these labels, and whether it could if others went.
    pub(super) fn objection(&self, pod: &Pod, node: &Value, namespaces: &Namespaces) -> Option<(&'static str, bool)> {
        if !self.is_near(pod, node, namespaces) {
            return Some(("node(s) didn't match pod affinity rules", false));
        }
        let is_taken = |term: &Term| counted(&self.apart, &term.topology_key, node).is_some_and(|count| count > 0);
        if pod.affinity.apart.iter().any(is_taken) {
            return Some(("node(s) didn't match pod anti-affinity rules", true));
        }
        if self.kept_off.keys().any(|(key, _)| counted(&self.kept_off, key, node).is_some_and(|count| count > 0)) {
            return Some(("node(s) didn't satisfy existing pods anti-affinity rules", true));
        }
        None
    }

    fn is_near(&self, pod: &Pod, node: &Value, namespaces: &Namespaces) -> bool {
        let terms = &pod.affinity.near;
        let counts: Option<Vec<i64>> = terms.iter().map(|term| counted(&self.near, &term.topology_key, node)).collect();
        let Some(counts) = counts else { return false };
        // The first one of pods that want to be together has nobody to be near to.
        counts.iter().all(|count| *count > 0)
            || self.near.is_empty() && terms.iter().all(|term| term.matches(pod, namespaces))
    }
}

/// How well nodes suit, by what pods prefer.
#[derive(Debug, Default)]
pub(super) struct Preferences(Counts);

impl Preferences {
    /// `other` is on a node with these labels.
    pub(super) fn count(&mut self, pod: &Pod, other: &Pod, node: &Value, namespaces: &Namespaces) {
        let mut add = |terms: &[Term], of: &Pod, sign: i64| {
            for term in terms.iter().filter(|term| term.matches(of, namespaces)) {
                count(&mut self.0, &term.topology_key, node, sign * term.weight);
            }
        };
        add(&pod.affinity.rather_near, other, 1);
        add(&pod.affinity.rather_apart, other, -1);
        add(&other.affinity.rather_near, pod, 1);
        add(&other.affinity.rather_apart, pod, -1);
        for term in other.affinity.near.iter().filter(|term| term.matches(pod, namespaces)) {
            count(&mut self.0, &term.topology_key, node, HARD_WEIGHT);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn score(&self, node: &Value) -> i64 {
        let here = |(key, value): &&(String, String)| node.get(key).and_then(Value::as_str) == Some(value.as_str());
        self.0.iter().filter(|(pair, _)| here(pair)).fold(0, |sum: i64, (_, count)| sum.saturating_add(*count))
    }
}
