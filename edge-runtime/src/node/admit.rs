//! Whether this node takes a pod, beside what it runs: the order in which the pure rules are asked.

use k8s_openapi::api::core::v1::Pod;

use super::Node;
use crate::node_status::standard_labels;
use crate::pod::admission::{self, Allocatable};
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::refusal::Refusal;
use crate::pod::{affinity, ports};

impl Node {
    /// What only this node can refuse a pod for.
    pub(super) fn admit(&self, pod: &Pod) -> Option<Refusal> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if let Some(refusal) = self.pods.get(uid).and_then(|entry| entry.refusal.clone()) {
            return Some(refusal);
        }
        if let Some(refusal) = self.refuse_for_shutdown() {
            return Some(refusal);
        }
        if let Some(refusal) = self.launcher.refusal(pod) {
            return Some(refusal);
        }
        let others = || {
            // One that has come together with this pod has not been let in yet, and maybe never is.
            let in_already = |record: &PodRecord| record.admitted && record.terminal.is_none();
            let running = self.pods.iter().filter(move |(other, entry)| *other != uid && in_already(&entry.record));
            running.map(|(_, entry)| entry)
        };
        let is_static = self.pods.get(uid).is_some_and(|entry| entry.record.source == PodSource::Static);
        if let Some(refusal) = crate::eviction::admit::admit(pod, is_static, self.eviction.pressure) {
            return Some(refusal);
        }
        let has = self.allocatable();
        let allocated = others().map(|entry| admission::allocated(&entry.pod, &entry.record));
        let pods = || others().map(|entry| &*entry.pod);
        admission::admit(pod, allocated, has)
            .or_else(|| affinity::admit(pod, &self.config.node_name, self.labels_for(pod, is_static).as_ref()))
            .or_else(|| ports::admit(pod, pods()))
            .or_else(|| self.launcher.devices_refusal(pod, pods()))
    }

    /// The node's labels as the API had them when the pod came. For a static pod, which no API knows, its own.
    fn labels_for(&self, pod: &Pod, is_static: bool) -> Option<affinity::Labels> {
        if is_static {
            return Some(standard_labels(self.launcher.facts(), &self.config.node_name, &self.config.labels));
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let told = self.object(affinity::KIND, namespace, uid)?;
        serde_json::from_value(told["labels"].clone()).ok()
    }

    pub(super) fn allocatable(&self) -> Allocatable {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let facts = self.launcher.facts();
        Allocatable {
            cpu_milli: count(self.config.allocatable_cpu_milli(facts.cpus)),
            memory_bytes: count(self.config.allocatable_memory(facts.memory_bytes)),
            pods: usize::try_from(self.config.max_pods).unwrap_or(usize::MAX),
        }
    }
}
