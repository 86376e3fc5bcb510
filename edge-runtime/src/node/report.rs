//! The Node object: read when something may have changed, told when it has.

use std::time::Duration;

use edge_protocol::message::Report;
use k8s_openapi::api::core::v1::{Node as NodeObject, NodeCondition, Taint};

use super::Node;
use crate::node_status::{NodeImage, NodeSettings, Pressure, ReadyState, conditions, node_object};
use crate::pod::clock::Mono;
use crate::store::{Fact, StoreError};
use crate::sys::host;

/// How often the host is looked at (the kubelet's node status period).
const LOOK: Duration = Duration::from_secs(10);

/// The object is told again after this long although nothing changed. The kubelet does so every five minutes; here
/// the Lease carries liveness, and 2.3 KB each time would be a third of the link's idle budget.
const REPEAT: Duration = Duration::from_secs(1800);

/// The clock mark: how far a clock that lost its battery may fall back.
const TIME_MARK: Duration = Duration::from_secs(3600);

/// When to look and what was told last.
#[derive(Default)]
pub(super) struct NodeReport {
    next_look: Option<Mono>,
    repeat: Option<Mono>,
    time_mark: Option<Mono>,
    last: Option<NodeObject>,
    runtime_version: String,
}

impl NodeReport {
    pub(super) fn new(runtime_version: String) -> Self {
        Self { runtime_version, ..Self::default() }
    }

    /// The bridge may have forgotten this node: tell it all.
    pub(super) fn connected(&mut self) {
        (self.next_look, self.repeat) = (None, None);
    }

    pub(super) fn images_changed(&mut self) {
        self.next_look = None;
    }

    pub(super) fn due(&self) -> Option<Mono> {
        self.next_look
    }
}

impl Node {
    /// Looks at the host if it is time and reports the node if it changed.
    pub(super) fn refresh_node_report(&mut self) -> Result<(), StoreError> {
        let now = self.mono();
        if self.report.next_look.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.report.next_look = Some(now.after(LOOK));
        if self.report.time_mark.is_none_or(|at| at <= now) {
            let wall = self.wall().to_string();
            self.store.write(|writer| writer.set_fact(Fact::TimeFloor, &wall))?;
            self.report.time_mark = Some(now.after(TIME_MARK));
        }
        let object = self.node_object()?;
        let repeat = self.report.repeat.is_none_or(|at| at <= now);
        if !repeat && self.report.last.as_ref().is_some_and(|last| same(last, &object)) {
            return Ok(());
        }
        let Ok(node) = serde_json::to_value(&object) else { return Ok(()) };
        let report = Report::Node { node };
        let id = self.store.write(|writer| writer.report(&report))?;
        self.outgoing.queue(std::iter::once((id, report)));
        self.report.last = Some(object);
        self.report.repeat = Some(now.after(REPEAT));
        Ok(())
    }

    fn node_object(&self) -> Result<NodeObject, StoreError> {
        let settings = NodeSettings {
            name: self.config.node_name.clone(),
            labels: self.config.labels.clone(),
            taints: self.config.taints.iter().filter_map(|text| taint(text)).collect(),
            max_pods: self.config.max_pods,
            reserved_cpu_milli: self.config.reserved.cpu_millis,
            reserved_memory_bytes: self.config.reserved.memory_bytes,
            reserved_storage_bytes: 0,
            internal_ips: self.host.host_ips.clone(),
            storage_bytes: host::disk_space(&self.paths.state()).map_or(0, |space| space.total_bytes),
            runtime_version: self.report.runtime_version.clone(),
            pod_cidrs: self.config.network.subnets.iter().map(ToString::to_string).collect(),
        };
        let images: Vec<NodeImage> = self
            .store
            .images()?
            .into_iter()
            .map(|image| NodeImage { names: image.references, size_bytes: image.size })
            .collect();
        let last = self.report.last.as_ref().and_then(|node| node.status.as_ref()?.conditions.as_deref());
        let all = conditions(
            &ReadyState::Ready,
            pressure(&self.paths, self.launcher.facts().memory_bytes),
            self.launcher.memory_controller(),
            last.unwrap_or(&[]),
            self.wall(),
        );
        Ok(node_object(self.launcher.facts(), &settings, &images, all))
    }
}

/// The kubelet's default thresholds, memory scaled to the board: 100 MiB is nothing on a server and
/// everything on 256 MB.
fn pressure(paths: &crate::paths::Paths, memory_bytes: u64) -> Pressure {
    let threshold = (memory_bytes / 20).min(100 << 20);
    let disk = host::disk_space(&paths.state());
    Pressure {
        memory: host::memory_available().is_some_and(|available| available < threshold),
        disk: disk.is_some_and(|disk| {
            disk.available_bytes < disk.total_bytes / 10
                || (disk.total_inodes > 0 && disk.free_inodes < disk.total_inodes / 20)
        }),
        pid: false,
    }
}

/// Equal but for the heartbeat times.
fn same(one: &NodeObject, other: &NodeObject) -> bool {
    let still = |node: &NodeObject| {
        let mut node = node.clone();
        let conditions = node.status.as_mut().and_then(|status| status.conditions.as_mut());
        for condition in conditions.into_iter().flatten() {
            NodeCondition::clone_from(condition, &NodeCondition { last_heartbeat_time: None, ..condition.clone() });
        }
        node
    };
    still(one) == still(other)
}

/// `key=value:Effect` or `key:Effect`; checked when the configuration was read.
fn taint(text: &str) -> Option<Taint> {
    let (pair, effect) = text.rsplit_once(':')?;
    let (key, value) = pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value.to_owned())));
    Some(Taint { key: key.into(), value, effect: effect.into(), time_added: None })
}
