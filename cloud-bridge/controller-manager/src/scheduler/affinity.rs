//! Which pods a pod wants near it, and which not: inter-pod affinity (K8s pkg/scheduler/framework/plugins/interpodaffinity).
//! Pure.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::pod::Pod;
use super::selector::{add_label_keys, selects_some};
use apimachinery::json::{integer, items, present, text};
use apimachinery::selector::selects;

/// The labels of each namespace.
pub(super) type Namespaces = HashMap<String, Value>;

/// Weight of a required affinity term of an existing pod for a new one (K8s `HardPodAffinityWeight`).
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

    /// The namespaces of the pods that the required terms may be about.
    pub(super) fn required_scope(&self) -> Scope<'_> {
        Scope::of(self.near.iter().chain(&self.apart))
    }

    /// The namespaces of the pods that the preferred terms may be about.
    pub(super) fn preferred_scope(&self) -> Scope<'_> {
        Scope::of(self.rather_near.iter().chain(&self.rather_apart))
    }

    /// Whether a pod that comes may help one with these terms.
    pub(super) fn is_drawn_to(&self, other: &Pod, namespaces: &Namespaces) -> bool {
        self.near.iter().any(|term| term.matches(other, namespaces))
    }

    /// Whether the deletion of a pod may help one with these terms.
    pub(super) fn minds(&self, other: &Pod, namespaces: &Namespaces) -> bool {
        self.near.iter().chain(&self.apart).any(|term| term.matches(other, namespaces))
    }

    /// Whether these terms prefer or avoid a node because of the other pod.
    pub(super) fn likes_or_dislikes(&self, other: &Pod, namespaces: &Namespaces) -> bool {
        let terms = self.rather_near.iter().chain(&self.rather_apart).chain(&self.near);
        { terms }.any(|term| term.matches(other, namespaces))
    }

    /// Whether a pod with these terms keeps the other off.
    pub(super) fn keeps_off(&self, other: &Pod, namespaces: &Namespaces) -> bool {
        self.apart.iter().any(|term| term.matches(other, namespaces))
    }
}

/// Namespaces of the pods that terms may be about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scope<'a> {
    Named(BTreeSet<&'a str>),
    All,
}

impl<'a> Scope<'a> {
    fn of(terms: impl Iterator<Item = &'a Term> + Clone) -> Self {
        if terms.clone().any(|term| !term.namespace_selector.is_null()) {
            return Self::All;
        }
        Self::Named(terms.flat_map(|term| term.namespaces.iter().map(String::as_str)).collect())
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

/// Numbers of pods by topology key, then by value.
#[derive(Debug, Default)]
struct Counts(HashMap<String, HashMap<String, i64>>);

impl Counts {
    fn add(&mut self, key: &str, labels: &Value, by: i64) {
        let Some(value) = labels.get(key).and_then(Value::as_str).filter(|_| by != 0) else { return };
        let Some(values) = self.0.get_mut(key) else {
            self.0.insert(key.to_owned(), HashMap::from([(value.to_owned(), by)]));
            return;
        };
        let Some(sum) = values.get_mut(value) else {
            values.insert(value.to_owned(), by);
            return;
        };
        *sum = sum.saturating_add(by);
        if *sum == 0 {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(key);
            }
        }
    }

    /// The number at a node with these labels, if it has one of this key.
    fn at(&self, key: &str, labels: &Value) -> Option<i64> {
        let value = labels.get(key).and_then(Value::as_str)?;
        Some(self.0.get(key).and_then(|values| values.get(value)).copied().unwrap_or_default())
    }

    /// The counts for a node with these labels: one lookup for each label, for any number of counted pods.
    fn all_at(&self, labels: &Value) -> impl Iterator<Item = i64> {
        let labels = labels.as_object().filter(|_| !self.is_empty()).into_iter().flatten();
        labels.filter_map(|(key, value)| self.0.get(key.as_str())?.get(value.as_str()?).copied())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Pods near the nodes, as far as they matter for one pod to be placed. Holds for every pod of its namespace with the same
/// labels and affinity.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Existing pods with anti-affinity to this one.
    kept_off: Counts,
    near: Counts,
    apart: Counts,
}

impl State {
    /// Counts the anti-affinity of `other` against `pod`: `by` pods like it are on a node with these labels; a negative
    /// `by` removes them.
    pub(super) fn count_theirs(&mut self, pod: &Pod, other: &Pod, node: &Value, by: i64, namespaces: &Namespaces) {
        for term in other.affinity.apart.iter().filter(|term| term.matches(pod, namespaces)) {
            self.kept_off.add(&term.topology_key, node, by);
        }
    }

    /// Counts `other` for what `pod` wants itself.
    pub(super) fn count_own(&mut self, pod: &Pod, other: &Pod, node: &Value, by: i64, namespaces: &Namespaces) {
        let own = &pod.affinity;
        if !own.near.is_empty() && own.near.iter().all(|term| term.matches(other, namespaces)) {
            own.near.iter().for_each(|term| self.near.add(&term.topology_key, node, by));
        }
        for term in own.apart.iter().filter(|term| term.matches(other, namespaces)) {
            self.apart.add(&term.topology_key, node, by);
        }
    }

    /// Why the pod cannot be on a node with these labels, and whether it could if others went.
    pub(super) fn objection(&self, pod: &Pod, node: &Value, namespaces: &Namespaces) -> Option<(&'static str, bool)> {
        if !self.is_near(pod, node, namespaces) {
            return Some(("node(s) didn't match pod affinity rules", false));
        }
        let is_taken = |term: &Term| self.apart.at(&term.topology_key, node).is_some_and(|count| count > 0);
        if pod.affinity.apart.iter().any(is_taken) {
            return Some(("node(s) didn't match pod anti-affinity rules", true));
        }
        if self.kept_off.all_at(node).any(|count| count > 0) {
            return Some(("node(s) didn't satisfy existing pods anti-affinity rules", true));
        }
        None
    }

    fn is_near(&self, pod: &Pod, node: &Value, namespaces: &Namespaces) -> bool {
        let terms = &pod.affinity.near;
        let counts: Option<Vec<i64>> = terms.iter().map(|term| self.near.at(&term.topology_key, node)).collect();
        let Some(counts) = counts else { return false };
        // The first pod of a group that must be together has no other pod to be near to.
        counts.iter().all(|count| *count > 0)
            || self.near.is_empty() && terms.iter().all(|term| term.matches(pod, namespaces))
    }
}

/// Scores of nodes by the preferences of pods.
#[derive(Debug, Default)]
pub(super) struct Preferences(Counts);

impl Preferences {
    /// Counts for `pod` what `number` pods like `other` prefer, which are on a node with these labels.
    pub(super) fn count_theirs(&mut self, pod: &Pod, other: &Pod, node: &Value, number: i64, namespaces: &Namespaces) {
        self.add(&other.affinity.rather_near, pod, node, number, namespaces);
        self.add(&other.affinity.rather_apart, pod, node, -number, namespaces);
        for term in other.affinity.near.iter().filter(|term| term.matches(pod, namespaces)) {
            self.0.add(&term.topology_key, node, number.saturating_mul(HARD_WEIGHT));
        }
    }

    /// Counts them for what `pod` prefers itself.
    pub(super) fn count_own(&mut self, pod: &Pod, other: &Pod, node: &Value, number: i64, namespaces: &Namespaces) {
        self.add(&pod.affinity.rather_near, other, node, number, namespaces);
        self.add(&pod.affinity.rather_apart, other, node, -number, namespaces);
    }

    fn add(&mut self, terms: &[Term], of: &Pod, node: &Value, number: i64, namespaces: &Namespaces) {
        for term in terms.iter().filter(|term| term.matches(of, namespaces)) {
            self.0.add(&term.topology_key, node, number.saturating_mul(term.weight));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn score(&self, node: &Value) -> i64 {
        self.0.all_at(node).fold(0, i64::saturating_add)
    }
}
