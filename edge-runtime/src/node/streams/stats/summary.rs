//! Builds the JSON of `/stats/summary` from the measured values. Values that the kernel does not count are absent.

use sampan_json::SetField;
use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::network;
use super::plan::{ContainerPlan, Plan, PodPlan, ROOT};
use super::rates::Rates;
use crate::eviction::limits::{DiskUsage, Used};
use crate::eviction::walk::Answers;
use crate::sys::cgroup::CgroupUsage;
use crate::sys::host::{self, DiskSpace};
use crate::sys::vec_map::VecMap;

/// Usage by cgroup.
pub(super) type Usages = VecMap<String, CgroupUsage>;

struct Looked<'a> {
    usages: &'a Usages,
    rates: &'a Rates,
    disk: &'a Answers,
    space: DiskSpace,
    time: String,
}

pub(super) fn summary(plan: &Plan, usages: &Usages, rates: &Rates, disk: &Answers, now: Timestamp) -> Value {
    let space = host::disk_space(&plan.state).unwrap_or_default();
    // Finer than the kubelet tells it: a rate taken over a few seconds would suffer.
    let looked = Looked { usages, rates, disk, space, time: format!("{now:.3}") };
    let pods: Vec<Value> = plan.pods.iter().map(|pod| looked.pod(pod)).collect();
    json!({"node": looked.node(plan), "pods": pods})
}

/// `metav1.Time`.
fn text(time: Timestamp) -> String {
    format!("{time:.0}")
}

impl Looked<'_> {
    fn node(&self, plan: &Plan) -> Value {
        let memory = host::memory_use();
        let space = &self.space;
        let mut file_system = self.file_system(None);
        file_system.set("usedBytes", json!(space.total_bytes.saturating_sub(space.free_bytes)));
        file_system.set("inodesUsed", json!(space.total_inodes.saturating_sub(space.free_inodes)));
        let mut images = self.file_system(None);
        images.set("usedBytes", json!(plan.image_bytes));
        let (processes, most) = host::pid_usage().unwrap_or_default();
        let mut node = json!({
            "nodeName": plan.node,
            "startTime": text(plan.booted),
            "cpu": self.cpu(ROOT),
            "memory": {
                "time": self.time,
                "availableBytes": memory.total_bytes.saturating_sub(memory.working_set_bytes),
                "usageBytes": memory.used_bytes,
                "workingSetBytes": memory.working_set_bytes,
                "rssBytes": memory.rss_bytes,
            },
            "fs": file_system,
            "runtime": {"imageFs": images.clone(), "containerFs": images},
            "rlimit": {"time": self.time, "maxpid": most, "curproc": processes},
        });
        if let Some(traffic) = network::of("self", &self.time) {
            node.set("network", traffic);
        }
        node
    }

    fn pod(&self, pod: &PodPlan) -> Value {
        let disk = self.disk.get(&pod.uid);
        let containers: Vec<Value> = pod.containers.iter().map(|one| self.container(one, disk)).collect();
        let volumes: Vec<Value> = pod.volumes.iter().map(|(name, folder)| self.volume(name, folder, disk)).collect();
        let total = disk.map(DiskUsage::total);
        let mut value = json!({
            "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "startTime": text(pod.started),
            "containers": containers,
            "cpu": self.cpu(&pod.cgroup),
            "memory": self.memory(&pod.cgroup),
            "volume": volumes,
            "ephemeral-storage": self.file_system(total),
        });
        let processes = self.usages.get(&pod.cgroup).and_then(|usage| usage.processes);
        if let Some(count) = processes {
            value.set("process_stats", json!({"process_count": count}));
        }
        // One process knows the network of all; with the host's, the pod has no counters of its own.
        let traffic = pod.containers.iter().filter(|_| !pod.host_network);
        if let Some(traffic) = traffic.filter_map(|one| network::of(&one.pid.to_string(), &self.time)).next() {
            value.set("network", traffic);
        }
        value
    }

    fn container(&self, container: &ContainerPlan, disk: Option<&DiskUsage>) -> Value {
        let used = |map: fn(&DiskUsage) -> &BTreeMap<String, Used>| map(disk?).get(&container.name).copied();
        json!({
            "name": container.name,
            "startTime": text(container.started),
            "cpu": self.cpu(&container.cgroup),
            "memory": self.memory(&container.cgroup),
            "rootfs": self.file_system(used(|disk| &disk.layers)),
            "logs": self.file_system(used(|disk| &disk.logs)),
        })
    }

    fn cpu(&self, cgroup: &str) -> Value {
        let counted = self.usages.get(cgroup).and_then(|usage| usage.cpu_nanos);
        self.object([("usageNanoCores", self.rates.get(cgroup)), ("usageCoreNanoSeconds", counted)])
    }

    fn memory(&self, cgroup: &str) -> Value {
        let usage: CgroupUsage = self.usages.get(cgroup).copied().unwrap_or_default();
        let available = usage.memory_limit_bytes.zip(usage.working_set_bytes);
        self.object([
            ("availableBytes", available.map(|(limit, used)| limit.saturating_sub(used))),
            ("usageBytes", usage.memory_bytes),
            ("workingSetBytes", usage.working_set_bytes),
            ("rssBytes", usage.rss_bytes),
            ("pageFaults", usage.page_faults),
            ("majorPageFaults", usage.major_page_faults),
        ])
    }

    fn volume(&self, name: &str, folder: &Path, disk: Option<&DiskUsage>) -> Value {
        let used = disk.and_then(|disk| disk.volumes.get(name).or_else(|| disk.elsewhere.get(name)).copied());
        let space = host::disk_space(folder).unwrap_or(self.space);
        let mut volume = self.file_system_of(&space, used);
        volume.set("name", json!(name));
        volume
    }

    fn file_system(&self, used: Option<Used>) -> Value {
        self.file_system_of(&self.space, used)
    }

    fn file_system_of(&self, space: &DiskSpace, used: Option<Used>) -> Value {
        self.object([
            ("availableBytes", Some(space.available_bytes)),
            ("capacityBytes", Some(space.total_bytes)),
            ("usedBytes", used.map(|used| used.bytes)),
            ("inodesFree", Some(space.free_inodes)),
            ("inodes", Some(space.total_inodes)),
            ("inodesUsed", used.map(|used| used.inodes)),
        ])
    }

    fn object<const N: usize>(&self, fields: [(&str, Option<u64>); N]) -> Value {
        let mut map = Map::new();
        map.insert("time".into(), json!(self.time));
        map.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?)))));
        Value::Object(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked<'a>(usages: &'a Usages, rates: &'a Rates, disk: &'a Answers) -> Looked<'a> {
        let space = DiskSpace { total_bytes: 100, available_bytes: 40, ..DiskSpace::default() };
        Looked { usages, rates, disk, space, time: "now".to_owned() }
    }

    #[test]
    fn value_that_the_kernel_does_not_count_is_absent() {
        let (usages, rates, disk) = (Usages::new(), Rates::default(), Answers::new());
        let looked = looked(&usages, &rates, &disk);
        assert_eq!((looked.memory("/a"), looked.cpu("/a")), (json!({"time": "now"}), json!({"time": "now"})));
        let empty = json!({"time": "now", "availableBytes": 40, "capacityBytes": 100, "inodesFree": 0, "inodes": 0});
        assert_eq!(looked.file_system(None), empty);
    }

    #[test]
    fn available_memory_is_what_the_limit_leaves() {
        let (rates, disk) = (Rates::default(), Answers::new());
        let of = |memory_limit_bytes, working_set_bytes| {
            let usage = CgroupUsage { memory_limit_bytes, working_set_bytes, ..CgroupUsage::default() };
            let usages: Usages = [("/a".to_owned(), usage)].into_iter().collect();
            let memory = looked(&usages, &rates, &disk).memory("/a");
            memory.get("availableBytes").cloned()
        };
        assert_eq!(of(Some(10), Some(4)), Some(json!(6)));
        assert_eq!(of(Some(4), Some(10)), Some(json!(0)), "the limit was lowered");
        assert_eq!((of(None, Some(4)), of(Some(4), None)), (None, None));
    }

    #[test]
    fn disk_use_is_that_of_the_container_or_volume_of_this_name() {
        let used = |bytes| Used { bytes, inodes: 1 };
        let of = |name: &str, bytes| BTreeMap::from([(name.to_owned(), used(bytes))]);
        let disk = DiskUsage {
            volumes: of("scratch", 1),
            layers: of("c", 2),
            logs: of("c", 3),
            elsewhere: of("memory", 4),
            ..DiskUsage::default()
        };
        let (usages, rates, answers) = (Usages::new(), Rates::default(), Answers::new());
        let looked = looked(&usages, &rates, &answers);
        let plan = |name: &str| {
            let (name, cgroup) = (name.to_owned(), "/a".to_owned());
            ContainerPlan { name, started: Timestamp::UNIX_EPOCH, pid: 1, cgroup }
        };
        let bytes = |value: &Value, part: &str| value.pointer(&format!("{part}/usedBytes")).and_then(Value::as_u64);
        let container = looked.container(&plan("c"), Some(&disk));
        assert_eq!((bytes(&container, "/rootfs"), bytes(&container, "/logs")), (Some(2), Some(3)));
        let other = looked.container(&plan("other"), Some(&disk));
        assert_eq!((bytes(&other, "/rootfs"), bytes(&other, "/logs")), (None, None));
        let volumes = ["scratch", "memory", "unknown"]
            .map(|name| bytes(&looked.volume(name, Path::new("/does/not/exist"), Some(&disk)), ""));
        assert_eq!(volumes, [Some(1), Some(4), None]);
        assert_eq!(bytes(&looked.container(&plan("c"), None), "/logs"), None, "the walk has not reached the pod");
    }
}
