//! Whether this node takes a pod, beside what it runs: the order in which the pure rules are asked.

use k8s_openapi::api::core::v1::Pod;

use super::context::Context;
use super::pods::Entry;
use crate::launch::Launch;
use crate::launch::devices::shortage;
use crate::node_status::{Pressure, standard_labels};
use crate::pod::admission::{self, Allocatable};
use crate::pod::extended_resources;
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::refusal::{Admission as Verdict, Refusal};
use crate::pod::{affinity, cpus, ports};

/// What the answer depends on.
pub(super) struct Admission<'a> {
    pub(super) cx: &'a Context,
    pub(super) launch: &'a Launch,
    pub(super) pressure: Pressure,
    pub(super) shutting_down: bool,
}

impl Admission<'_> {
    /// What only this node can refuse a pod for. One for which there is room but for pods that are ending waits for them: its
    /// controller would make the next one at once, as long as they end.
    pub(super) fn admit(&self, pod: &Pod) -> Verdict {
        if let Some(refusal) = self.refusal(pod) {
            return Verdict::Refused(refusal);
        }
        let stays = |entry: &Entry| entry.record.deletion.is_none() && entry.record.terminal.is_none();
        match verdict(self.no_place(pod, |_| true, true), || self.no_place(pod, stays, false)) {
            Verdict::Admitted => self.devices(pod, stays),
            other => other,
        }
    }

    /// Whether plugins have the devices that the pod asks for.
    fn devices(&self, pod: &Pod, stays: impl Fn(&Entry) -> bool) -> Verdict {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let (plugins, now) = (&self.launch.containers.plugins, self.cx.mono());
        let others = self.cx.pods.admitted(uid);
        let lacks = |keeps: &dyn Fn(&str) -> bool| plugins.refusal(pod, &others, keeps, now);
        match lacks(&|_| true) {
            None => Verdict::Admitted,
            Some((why, true)) => Verdict::WaitsForDevice(why),
            Some((why, false)) => {
                let later = || lacks(&|holder| self.cx.pods.get(holder).is_some_and(&stays));
                verdict(Some(shortage::refusal(&why)), || later().map(|(why, _)| shortage::refusal(&why)))
            }
        }
    }

    /// Refuses a pod for its own fields, independent of other pods.
    fn refusal(&self, pod: &Pod) -> Option<Refusal> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(refusal) = self.cx.pods.get(uid).and_then(|entry| entry.refusal.clone()) {
            return Some(refusal);
        }
        if self.shutting_down {
            return Some(Refusal {
                reason: "NodeShutdown".to_owned(),
                message: "Pod was rejected as the node is shutting down.".to_owned(),
            });
        }
        if let Some(refusal) = self.launch.refusal(pod) {
            return Some(refusal);
        }
        crate::eviction::admit::admit(pod, self.is_static(pod), self.pressure)
    }

    fn is_static(&self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.cx.pods.get(uid).is_some_and(|entry| entry.record.source == PodSource::Static)
    }

    /// Refuses a pod that does not fit beside the other counted pods. `unknown`: whether those count that a damaged store has
    /// lost, and that have CPUs for themselves.
    fn no_place(&self, pod: &Pod, counts: impl Fn(&Entry) -> bool, unknown: bool) -> Option<Refusal> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let others = || {
            // A pod that arrived together with this one is not admitted yet, and maybe never is.
            let in_already = |record: &PodRecord| record.admitted && record.terminal.is_none();
            let running = self.cx.pods.iter().filter(move |(other, entry)| *other != uid && in_already(&entry.record));
            running.map(|(_, entry)| entry).filter(|entry| counts(entry))
        };
        let is_static = self.is_static(pod);
        let has = self.allocatable();
        let allocated = others().map(|entry| admission::allocated(&entry.pod, &entry.record));
        let pods = || others().map(|entry| &*entry.pod);
        admission::admit(pod, allocated, has)
            .or_else(|| affinity::admit(pod, &self.cx.config.node_name, self.labels_for(pod, is_static).as_ref()))
            .or_else(|| ports::admit(pod, pods()))
            .or_else(|| extended_resources::admit(pod, pods(), || self.launch.containers.device_capacity()))
            .or_else(|| {
                let keeps = |holder: &str| self.cx.pods.get(holder).map_or(unknown, &counts);
                self.launch.containers.cpus.refusal(pod, keeps)
            })
    }

    /// The words of the kubelet (K8s pkg/kubelet/allocation, `handlePodResourcesResize`): `Infeasible`, or what the
    /// pod would be refused for today.
    pub(super) fn no_room(&self, pod: &Pod) -> Option<Refusal> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(entry) = self.cx.pods.get(uid).filter(|_| self.launch.containers.cpus.is_on())
            && let Some(never) = cpus::resize_refusal(pod, &entry.record)
        {
            return Some(never);
        }
        let has = self.allocatable();
        if let Some(never) = admission::admit(pod, std::iter::empty::<&Pod>(), has) {
            return Some(Refusal { reason: "Infeasible".to_owned(), message: never.message });
        }
        let others = self.cx.pods.iter().filter(|(other, entry)| *other != uid && entry.record.terminal.is_none());
        // The pod is here already: only cpu and memory can be short.
        let has = Allocatable { pods: usize::MAX, ..has };
        let others = others.map(|(_, entry)| admission::allocated(&entry.pod, &entry.record));
        admission::admit(pod, others, has)
    }

    /// The node's labels as the API had them when the pod arrived. For a static pod, which the API does not know, the
    /// node's own labels.
    fn labels_for(&self, pod: &Pod, is_static: bool) -> Option<affinity::Labels> {
        if is_static {
            return Some(standard_labels(&self.launch.host, &self.cx.config.node_name, &self.cx.config.labels));
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let told = self.cx.object(affinity::KIND, namespace, uid)?;
        serde_json::from_value(told["labels"].clone()).ok()
    }

    fn allocatable(&self) -> Allocatable {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let facts = &self.launch.host;
        Allocatable {
            cpu_milli: count(self.cx.config.allocatable_cpu_milli(facts.cpus)),
            memory_bytes: count(self.cx.config.allocatable_memory(facts.memory_bytes)),
            pods: usize::try_from(self.cx.config.max_pods).unwrap_or(usize::MAX),
        }
    }
}

/// `now`: the refusal beside all pods; `later`: beside those that are not ending.
fn verdict(now: Option<Refusal>, later: impl FnOnce() -> Option<Refusal>) -> Verdict {
    let Some(refusal) = now else { return Verdict::Admitted };
    if later().is_none() { Verdict::Waits(refusal) } else { Verdict::Refused(refusal) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_waits_for_ending_pods_alone() {
        let refusal = |reason: &str| Refusal { reason: reason.to_owned(), message: String::new() };
        let [now, later] = ["OutOfcpu", "NodePorts"].map(refusal);
        assert_eq!(verdict(None, || panic!("there is a place")), Verdict::Admitted);
        assert_eq!(verdict(Some(now.clone()), || None), Verdict::Waits(now.clone()));
        assert_eq!(verdict(Some(now.clone()), || Some(later)), Verdict::Refused(now), "why there is none today");
    }
}
