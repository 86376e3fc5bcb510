//! The Node object: read when something may have changed, told when it has.

use std::time::Duration;

use edge_protocol::message::Report;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node as NodeObject, NodeCondition, Taint};

use super::Node;
use crate::node_status::{Board, NodeImage, NodeSettings, ReadyState, conditions, node_object};
use crate::pod::clock::Mono;
use crate::store::{Fact, StoreError};
use crate::sys::board::{Sensors, clock_synchronized};
use crate::sys::{descriptors, host};

/// How often the host is looked at (the kubelet's node status period).
const LOOK: Duration = Duration::from_secs(10);

/// The object is told again after this long although nothing changed. The kubelet does so every five minutes; here
/// the Lease carries liveness, and 2.3 KB each time would be a third of the link's idle budget.
const REPEAT: Duration = Duration::from_secs(1800);

/// The clock mark: how far a clock that lost its battery may fall back.
const TIME_MARK: Duration = Duration::from_secs(3600);

/// When to look and what was told last.
#[derive(Default)]
pub(super) struct NodeStatus {
    next_look: Option<Mono>,
    repeat: Option<Mono>,
    time_mark: Option<Mono>,
    /// What the bridge said last, and when.
    true_time: Option<(Timestamp, Mono)>,
    last: Option<NodeObject>,
    /// Without heartbeat times, as stored.
    conditions: Vec<NodeCondition>,
    runtime_version: String,
    sensors: Sensors,
    /// Why containers' logs cannot be written now.
    log_trouble: Option<String>,
    short_of_descriptors: bool,
}

impl NodeStatus {
    /// `conditions` as [`Fact::Conditions`] has them.
    pub(super) fn new(runtime_version: String, conditions: Option<&str>, sensors: Sensors) -> Self {
        let conditions = conditions.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self { runtime_version, conditions, sensors, ..Self::default() }
    }

    /// The bridge may have forgotten this node: tell it all.
    pub(super) fn connected(&mut self) {
        (self.next_look, self.repeat) = (None, None);
    }

    pub(super) fn images_changed(&mut self) {
        self.next_look = None;
    }

    pub(super) fn log_trouble(&mut self, reason: Option<String>, now: Mono) {
        self.log_trouble = reason.map(|reason| format!("container logs are dropped: {reason}"));
        self.look_again(now);
    }

    /// The host is looked at then at the latest.
    pub(super) fn look_again(&mut self, at: Mono) {
        self.next_look = self.next_look.map(|next| next.min(at));
    }

    pub(super) fn due(&self) -> Option<Mono> {
        self.next_look
    }
}

impl Node {
    /// Looks at the host if it is time and reports the node if it changed.
    pub(super) fn refresh_node_report(&mut self) -> Result<(), StoreError> {
        let now = self.mono();
        if self.node_status.next_look.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.node_status.next_look = Some(now.after(LOOK));
        self.expire_events(now)?;
        super::start::tend(&self.reserve, &self.paths);
        self.follow_addresses();
        self.repeat_statuses(now);
        self.copy_store(now);
        self.watch_descriptors()?;
        self.return_to_disk(now)?;
        if !self.is_shutting_down() {
            self.guard(now)?;
            self.prepull(now);
            self.rescan_manifests(now)?;
        }
        self.mark_time(now)?;
        let object = self.node_object()?;
        self.tell_conditions(&object)?;
        let repeat = self.node_status.repeat.is_none_or(|at| at <= now);
        if !repeat && self.node_status.last.as_ref().is_some_and(|last| same(last, &object)) {
            return Ok(());
        }
        let Ok(node) = serde_json::to_value(&object) else { return Ok(()) };
        let report = Report::Node { node };
        let id = self.store.write(|writer| writer.report(&report))?;
        self.outgoing.queue(std::iter::once((id, report)));
        self.node_status.last = Some(object);
        self.node_status.repeat = Some(now.after(REPEAT));
        Ok(())
    }

    /// Told once until there are enough again.
    fn watch_descriptors(&mut self) -> Result<(), StoreError> {
        let Some((open, limit)) = descriptors::used() else { return Ok(()) };
        let short = descriptors::are_short((open, limit));
        if short && !self.node_status.short_of_descriptors {
            let text = format!("{open} of {limit} file descriptors are open: raise the limit (LimitNOFILE)");
            log::error!("{text}");
            self.node_event(true, "FileDescriptorsShort", &text)?;
        }
        self.node_status.short_of_descriptors = short;
        Ok(())
    }

    /// As often as the kubelet (K8s pkg/kubelet/nodestatus, `NodeAddress`): DHCP and roaming change them.
    fn follow_addresses(&mut self) {
        if !self.launcher.look_at_addresses() {
            return;
        }
        self.host.host_ips = self.launcher.host_ips().to_vec();
        // Each shows them in its status.
        let uids: Vec<String> = self.pods.iter().map(|(uid, _)| uid.clone()).collect();
        uids.iter().for_each(|uid| self.pods.touch(uid));
    }

    /// The bridge has said what time it is; one that does not say has at least a certificate that is good by our clock.
    pub(super) fn time_told(&mut self, now_ms: Option<u64>) {
        let told = now_ms.and_then(|ms| i64::try_from(ms).ok()).and_then(|ms| Timestamp::from_millisecond(ms).ok());
        self.node_status.true_time = Some((told.unwrap_or_else(|| self.wall()), self.mono()));
    }

    /// Remembers the time every now and then, as the bridge has told it and a timer has counted it on. What the own clock
    /// says counts for nothing: ten years ahead at boot, it would make every certificate look expired from then on.
    fn mark_time(&mut self, now: Mono) -> Result<(), StoreError> {
        let Some((told, at)) = self.node_status.true_time else { return Ok(()) };
        if self.node_status.time_mark.is_some_and(|due| now < due) {
            return Ok(());
        }
        let time = told.checked_add(now.since(at)).unwrap_or(told).to_string();
        self.store.write(|writer| writer.set_fact(Fact::TimeFloor, &time))?;
        self.node_status.time_mark = Some(now.after(TIME_MARK));
        Ok(())
    }

    /// A change is remembered, and told as the kubelet tells it.
    fn tell_conditions(&mut self, object: &NodeObject) -> Result<(), StoreError> {
        let all = object.status.as_ref().and_then(|status| status.conditions.as_ref());
        let still = |one: &NodeCondition| NodeCondition { last_heartbeat_time: None, ..one.clone() };
        let all: Vec<NodeCondition> = all.into_iter().flatten().map(still).collect();
        if all == self.node_status.conditions {
            return Ok(());
        }
        for news in conditions::news(&self.node_status.conditions, &all, &self.config.node_name) {
            self.node_event(news.warning, &news.reason, &news.message)?;
        }
        let text = serde_json::to_string(&all).unwrap_or_default();
        self.store.write(|writer| writer.set_fact(Fact::Conditions, &text))?;
        self.node_status.conditions = all;
        Ok(())
    }

    fn node_object(&self) -> Result<NodeObject, StoreError> {
        let facts = self.launcher.facts();
        let storage_bytes = host::disk_space(&self.paths.state()).map_or(0, |space| space.total_bytes);
        let settings = NodeSettings {
            name: self.config.node_name.clone(),
            labels: self.config.labels.clone(),
            taints: self.config.taints.iter().filter_map(|text| taint(text)).collect(),
            max_pods: self.config.max_pods,
            internal_ips: self.host.host_ips.clone(),
            allocatable_cpu_milli: self.config.allocatable_cpu_milli(facts.cpus),
            allocatable_memory_bytes: self.config.allocatable_memory(facts.memory_bytes),
            allocatable_storage_bytes: self.config.allocatable_storage(storage_bytes),
            storage_bytes,
            runtime_version: self.node_status.runtime_version.clone(),
            devices: self.launcher.device_capacity(),
            runtime_handlers: self.launcher.runtime_handlers().to_vec(),
            pod_cidrs: self.config.network.subnets.iter().map(ToString::to_string).collect(),
        };
        let images: Vec<NodeImage> = self
            .store
            .images()?
            .into_iter()
            .map(|image| NodeImage { names: image.references, size_bytes: image.size })
            .collect();
        let sensors = &self.node_status.sensors;
        let was_hot =
            self.node_status.conditions.iter().any(|one| one.type_ == "HighTemperature" && one.status == "True");
        let board = Board {
            memory_controller: self.launcher.memory_controller(),
            clock_synchronized: clock_synchronized(),
            storage_trouble: sensors.storage_trouble().or_else(|| self.node_status.log_trouble.clone()),
            under_voltage: sensors.under_voltage(),
            hot: sensors.hot(was_hot),
        };
        let ready = match self.is_shutting_down() {
            true => ReadyState::NotReady("node is shutting down".to_owned()),
            false => self.launcher.network_error().map_or(ReadyState::Ready, ReadyState::NotReady),
        };
        let all =
            conditions::conditions(&ready, self.eviction.pressure, &board, &self.node_status.conditions, self.wall());
        Ok(node_object(self.launcher.facts(), &settings, &images, all))
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
