//! The decision: desired pod, record, node facts and time go in, the next steps come out.
//!
//! Ordered and idempotent: a plan's record says which steps are under way, so asking again yields none of them twice.
//! Follows the kubelet's sync loop for what a user can see (order, reasons, messages, back-off).

use k8s_openapi::api::core::v1::Pod;

use super::clock::Now;
use super::record::PodRecord;
use super::step::Step;

/// What the node knows beside the pod.
pub struct World<'a> {
    /// Image id (as `status.imageID` shows it) of a reference present on the node; asked with the reference
    /// exactly as the pod spells it.
    pub image: &'a dyn Fn(&str) -> Option<String>,
    /// Admission by what only the node can know (a refusal table of its own, resources, missing cgroup
    /// controllers); asked once per pod, after [`super::support::refusal`].
    pub admit: &'a dyn Fn(&Pod) -> Option<Refusal>,
}

/// A pod that will never run here: phase Failed with this reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// CamelCase, as in `status.reason`.
    pub reason: String,
    pub message: String,
}

/// Commit `record` first (if it differs), then execute `steps` in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub record: PodRecord,
    pub steps: Vec<Step>,
}

/// Decides what comes next. `pod` is the newest desired object, also while it is being deleted.
pub fn reconcile(pod: &Pod, record: PodRecord, world: &World<'_>, now: &Now) -> Plan {
    let _ = (pod, world, now);
    Plan { record, steps: Vec::new() }
}
