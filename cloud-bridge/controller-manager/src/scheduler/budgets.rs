//! PodDisruptionBudgets, as far as preemption asks them (K8s pkg/scheduler/framework/preemption,
//! `filterVictimsWithPDBViolation`). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::pod::{Pod, PodKey};
use super::selector::{is_empty, selects_some};
use apimachinery::json::{entries, integer};

#[derive(Debug, Default)]
pub(super) struct Budgets(BTreeMap<PodKey, Budget>);

#[derive(Debug)]
struct Budget {
    selector: Value,
    allowed: i64,
    /// Pods that were allowed to go and are still there.
    disrupted: BTreeSet<String>,
}

impl Budgets {
    pub(super) fn put(&mut self, key: PodKey, budget: &Value) {
        let status = &budget["status"];
        let budget = Budget {
            selector: budget["spec"]["selector"].clone(),
            allowed: integer(status, "disruptionsAllowed").unwrap_or_default(),
            disrupted: entries(status, "disruptedPods").map(|(name, _)| name.clone()).collect(),
        };
        self.0.insert(key, budget);
    }

    pub(super) fn remove(&mut self, key: &PodKey) {
        self.0.remove(key);
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.0.keys()
    }

    /// The pods that would break a budget if they went, in this order, and those that would not.
    pub(super) fn split<'p>(&self, pods: Vec<&'p Arc<Pod>>) -> (Vec<&'p Arc<Pod>>, Vec<&'p Arc<Pod>>) {
        let mut left: BTreeMap<&PodKey, i64> = BTreeMap::new();
        pods.into_iter().partition(|pod| self.breaks(pod, &mut left))
    }

    fn breaks<'a>(&'a self, pod: &Pod, left: &mut BTreeMap<&'a PodKey, i64>) -> bool {
        let (namespace, name) = &pod.key;
        let first = (namespace.clone(), String::new());
        let own = self.0.range(first..).take_while(|(key, _)| key.0 == *namespace);
        for (key, budget) in own.filter(|(_, one)| one.is_about(pod) && !one.disrupted.contains(name)) {
            let left = left.entry(key).or_insert(budget.allowed);
            *left = left.saturating_sub(1);
            if *left < 0 {
                return true;
            }
        }
        false
    }
}

impl Budget {
    /// One that selects all says nothing here, as in Kubernetes.
    fn is_about(&self, pod: &Pod) -> bool {
        !is_empty(&self.selector)
            && pod.labels.as_object().is_some_and(|labels| !labels.is_empty())
            && selects_some(&self.selector, &pod.labels)
    }
}
