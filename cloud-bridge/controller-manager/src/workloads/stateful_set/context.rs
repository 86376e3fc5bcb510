//! A StatefulSet with its revisions and its pods by ordinal, as input of all steps of a plan.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSetSpec;

use super::identity::parent_and_ordinal;
use crate::workloads::back_off::BackOff;
use crate::workloads::history::HASH_LABEL;
use crate::workloads::now::Now;
use crate::workloads::plan::{Action, Plan, Teller};
use crate::workloads::pod::Pod;
use crate::workloads::templated::{ControllerRevision, StatefulSet};
use crate::workloads::world::Kind;

const COMPONENT: &str = "statefulset-controller";

/// Result of a step.
pub(super) enum Step {
    /// The next step.
    Do(Plan),
    /// Nothing more until something changes.
    Wait,
    /// This part is up to date.
    Done,
}

impl Step {
    pub(super) fn of(actions: Vec<Action>) -> Self {
        if actions.is_empty() { Self::Done } else { Self::Do(Plan::slow_start(actions)) }
    }
}

pub(super) struct Context<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) spec: &'a StatefulSetSpec,
    /// The current and the update revision of the set.
    pub(super) current: &'a ControllerRevision,
    pub(super) update: &'a ControllerRevision,
    /// The pods that are wanted, by ordinal.
    pub(super) replicas: BTreeMap<i64, &'a Pod>,
    /// The pods beyond them.
    pub(super) condemned: BTreeMap<i64, &'a Pod>,
    back_off: &'a BackOff,
    pub(super) now: Now,
}

impl<'a> Context<'a> {
    pub(super) fn new(
        (set, spec): (&'a StatefulSet, &'a StatefulSetSpec),
        current: &'a ControllerRevision,
        update: &'a ControllerRevision,
        pods: Vec<&'a Pod>,
        back_off: &'a BackOff,
        now: Now,
    ) -> Self {
        let by_ordinal = pods.into_iter().filter_map(|pod| Some((parent_and_ordinal(&pod.metadata)?.1, pod)));
        let wanted = ordinals(spec);
        let (replicas, condemned) = by_ordinal.partition(|(ordinal, _)| wanted.contains(ordinal));
        Self { set, spec, current, update, replicas, condemned, back_off, now }
    }

    pub(super) fn name(&self) -> &'a str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &'a str {
        self.set.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The ordinals that are wanted.
    pub(super) fn ordinals(&self) -> Range<i64> {
        ordinals(self.spec)
    }

    /// How long a pod that has ended still keeps its place: a node that refuses pods would refuse the next one, too.
    pub(super) fn keeps_place(&self, pod: &Pod) -> Duration {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        self.back_off.wait(&self.set.metadata, name, self.now.passed)
    }

    /// One pod after the other, each only when those before it are available; else all at once.
    pub(super) fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    pub(super) fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
        strategy.is_none_or(|strategy| strategy == "RollingUpdate")
    }

    /// Pods below this one, counted from the first, keep the revision that they have.
    pub(super) fn partition(&self) -> Option<i64> {
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref())?;
        Some(rolling.partition.unwrap_or_default().into())
    }

    pub(super) fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or_default()
    }

    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        is_running_and_ready(pod) && pod.is_available(self.min_ready_seconds(), self.now) && !pod.is_deleting()
    }

    pub(super) fn teller(&self) -> Teller {
        Teller::new(COMPONENT, Kind::StatefulSet, &self.set.metadata)
    }

    pub(super) fn delete(&self, pod: &Pod) -> Action {
        let action = Action::delete(Kind::Pod, &pod.metadata);
        self.told_of_pod(action, "Delete")
    }

    /// The action with its events, which are K8s' for a pod of a set.
    pub(super) fn told_of_pod(&self, action: Action, verb: &'static str) -> Action {
        let (success, failure) = match verb {
            "Create" => ("SuccessfulCreate", "FailedCreate"),
            "Update" => ("SuccessfulUpdate", "FailedUpdate"),
            _ => ("SuccessfulDelete", "FailedDelete"),
        };
        let what = format!("{verb} Pod {} in StatefulSet {}", action.key.name, self.name());
        let teller = self.teller();
        Action {
            done: Some(teller.normal(success, format!("{what} successful"))),
            failed: Some(teller.warning(failure, format!("{what} failed error: {{}}"))),
            ..action
        }
    }
}

fn ordinals(spec: &StatefulSetSpec) -> Range<i64> {
    let start = i64::from(spec.ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or_default());
    start..start + i64::from(spec.replicas.unwrap_or(1))
}

pub(super) fn is_running_and_ready(pod: &Pod) -> bool {
    pod.phase() == "Running" && pod.is_ready()
}

/// The label of a revision with its hash.
pub(super) const REVISION_HASH_LABEL: &str = "controller.kubernetes.io/hash";

/// Longest value of a label, and of a host name, in bytes.
pub(super) const LABEL_MAX: usize = 63;

/// The revision that a pod is of, by its label.
pub(super) fn revision_of(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.as_ref()?.get(HASH_LABEL).map(String::as_str)
}

/// The label of the pods of a revision: its name, or only its hash if the set's name is too long for that. Kubernetes
/// creates no pod then.
pub(super) fn label_of(revision: &ControllerRevision) -> &str {
    let name = name_of(revision);
    if name.len() <= LABEL_MAX {
        name
    } else {
        revision
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(REVISION_HASH_LABEL))
            .map_or(name, String::as_str)
    }
}

pub(super) fn name_of(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}
