//! PodDisruptionBudgets, as far as preemption asks them (K8s pkg/scheduler/framework/preemption,
//! `filterVictimsWithPDBViolation`). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::pod::{Pod, PodKey};
use super::selector::{is_empty, selects_some};
use apimachinery::json::{entries, integer};
use apimachinery::pace::Pace;

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

    /// The pods that would break a budget if they went, in this order, and those that would not. Yields after each budget
    /// that a pod is held against: a namespace may have thousands of both.
    pub(super) async fn split<'p>(
        &self,
        pods: Vec<&'p Arc<Pod>>,
        pace: &mut Pace,
    ) -> (Vec<&'p Arc<Pod>>, Vec<&'p Arc<Pod>>) {
        let (mut breaking, mut others) = (Vec::new(), Vec::new());
        let mut left: BTreeMap<&PodKey, i64> = BTreeMap::new();
        for pod in pods {
            let breaks = self.breaks(pod, &mut left, pace).await;
            if breaks { &mut breaking } else { &mut others }.push(pod);
        }
        (breaking, others)
    }

    async fn breaks<'a>(&'a self, pod: &Pod, left: &mut BTreeMap<&'a PodKey, i64>, pace: &mut Pace) -> bool {
        let (namespace, name) = &pod.key;
        let first = (namespace.clone(), String::new());
        let own = self.0.range(first..).take_while(|(key, _)| key.0 == *namespace);
        for (key, budget) in own {
            pace.look().await;
            if !budget.is_about(pod) || budget.disrupted.contains(name) {
                continue;
            }
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
