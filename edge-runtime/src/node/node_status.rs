//! The Node object: built when something may have changed, reported when it has.

use std::time::Duration;

use edge_protocol::message::Report;
use k8s_openapi::api::core::v1::{Node as NodeObject, NodeCondition, Taint};
use serde_json::Value;

use super::context::Context;
use crate::launch::Launch;
use crate::node_status::{
    Amount, Board, NodeImage, NodeSettings, Pressure, ReadyState, Upgrade, conditions, node_object,
};
use crate::paths::Paths;
use crate::pod::clock::Mono;
use crate::store::{Fact, StoreError};
use crate::sys::board::{Sensors, clock_synchronized};
use crate::sys::from_json::from_json;
use crate::sys::host::disk_space;

/// The unchanged object is reported again after this time. The kubelet does so every five minutes; here the Lease shows
/// liveness, and 2.3 KB each time would be a third of the link's idle budget.
const REPEAT: Duration = Duration::from_secs(1800);

/// Facts of the host in the object, beside the configuration.
pub(super) struct Host<'a> {
    pub(super) launch: &'a Launch,
    pub(super) pressure: Pressure,
    pub(super) shutting_down: bool,
    /// Another program that serves Services on this machine.
    pub(super) services_elsewhere: Option<&'a str>,
    /// Attached volumes of CSI drivers, if the node has such drivers.
    pub(super) volumes_in_use: Option<Vec<String>>,
}

/// The last report, and when it is repeated.
#[derive(Default)]
pub(super) struct NodeStatus {
    repeat: Option<Mono>,
    last: Option<NodeObject>,
    /// Without heartbeat times, as stored.
    conditions: Vec<NodeCondition>,
    runtime_version: String,
    sensors: Sensors,
    /// Why containers' logs cannot be written now.
    log_trouble: Option<String>,
    /// Why no container can be started or stopped now.
    monitor_silent: Option<String>,
}

impl NodeStatus {
    /// `conditions` as [`Fact::Conditions`] has them.
    pub(super) fn new(runtime_version: String, conditions: Option<&str>, sensors: Sensors) -> Self {
        let conditions = conditions.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self { runtime_version, conditions, sensors, ..Self::default() }
    }

    /// The bridge may have lost this node: reports the object again, even if unchanged.
    pub(super) fn force(&mut self) {
        self.repeat = None;
    }

    pub(super) fn log_trouble(&mut self, reason: Option<String>) {
        self.log_trouble = reason.map(|reason| format!("container logs are dropped: {reason}"));
    }

    pub(super) fn monitor_silent(&mut self, why: Option<String>) {
        self.monitor_silent = why;
    }

    /// Whether the Node object says Ready; else why it does not.
    pub(super) fn ready(&self) -> Result<(), String> {
        match self.conditions.iter().find(|one| one.type_ == "Ready") {
            Some(ready) if ready.status == "True" && self.last.is_some() => Ok(()),
            Some(ready) if self.last.is_some() => Err(ready.message.clone().unwrap_or_default()),
            _ => Err("the daemon has just started".to_owned()),
        }
    }

    /// Last reported conditions, and whether each is True.
    pub(super) fn conditions(&self) -> impl Iterator<Item = (&str, bool)> {
        self.conditions.iter().map(|one| (one.type_.as_str(), one.status == "True"))
    }

    /// Reports the node if it has changed.
    pub(super) fn report(&mut self, cx: &mut Context, host: &Host<'_>, now: Mono) -> Result<(), StoreError> {
        let object = self.object(cx, host)?;
        self.tell_conditions(cx, &object)?;
        let repeat = self.repeat.is_none_or(|at| at <= now);
        if !repeat && self.last.as_ref().is_some_and(|last| same(last, &object)) {
            return Ok(());
        }
        let Ok(node) = serde_json::to_value(&object) else { return Ok(()) };
        cx.report(Report::Node { node })?;
        self.last = Some(object);
        self.repeat = Some(now.after(REPEAT));
        Ok(())
    }

    /// Stores changed conditions, and reports them like the kubelet.
    fn tell_conditions(&mut self, cx: &mut Context, object: &NodeObject) -> Result<(), StoreError> {
        let mut all = object.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        all.iter_mut().for_each(|condition| condition.last_heartbeat_time = None);
        if all == self.conditions {
            return Ok(());
        }
        for news in conditions::news(&self.conditions, &all, &cx.config.node_name) {
            cx.node_event(news.warning, &news.reason, &news.message)?;
        }
        let text = serde_json::to_string(&all).unwrap_or_default();
        cx.store.write(|writer| writer.set_fact(Fact::Conditions, &text))?;
        self.conditions = all;
        Ok(())
    }

    fn object(&self, cx: &Context, host: &Host<'_>) -> Result<NodeObject, StoreError> {
        let facts = &host.launch.host;
        let storage_bytes = disk_space(&cx.paths.state()).map_or(0, |space| space.total_bytes);
        let settings = NodeSettings {
            name: cx.config.node_name.clone(),
            labels: cx.config.labels.clone(),
            taints: cx.config.taints.iter().filter_map(|text| taint(text)).collect(),
            max_pods: cx.config.max_pods,
            internal_ips: cx.host.host_ips.clone(),
            allocatable_cpu_milli: cx.config.allocatable_cpu_milli(facts.cpus),
            allocatable_memory_bytes: cx.config.allocatable_memory(facts.memory_bytes),
            allocatable_storage_bytes: cx.config.allocatable_storage(storage_bytes),
            storage_bytes,
            runtime_version: self.runtime_version.clone(),
            devices: devices(host.launch, cx.mono()),
            runtime_handlers: host.launch.handlers.clone(),
            pod_cidrs: cx.config.network.subnets.iter().map(ToString::to_string).collect(),
        };
        let images = cx.store.images()?.into_iter();
        let images: Vec<NodeImage> =
            images.map(|image| NodeImage { names: image.references, size_bytes: image.size }).collect();
        let sensors = &self.sensors;
        let was_hot = self.conditions.iter().any(|one| one.type_ == "HighTemperature" && one.status == "True");
        let known_elsewhere =
            self.conditions.iter().any(|one| one.type_ == "ServicesHandledElsewhere").then(String::new);
        let board = Board {
            memory_controller: host.launch.base.memory_controller(),
            clock_synchronized: clock_synchronized(),
            storage_trouble: sensors.storage_trouble().or_else(|| self.log_trouble.clone()),
            under_voltage: sensors.under_voltage(),
            hot: sensors.hot(was_hot),
            services_elsewhere: host.services_elsewhere.map(str::to_owned).or(known_elsewhere),
            upgrade: last_upgrade(&cx.paths),
        };
        let ready = match host.shutting_down {
            true => ReadyState::NotReady("node is shutting down".to_owned()),
            false => {
                let trouble = self.monitor_silent.clone().or_else(|| host.launch.sandboxes.network_error());
                trouble.map_or(ReadyState::Ready, ReadyState::NotReady)
            }
        };
        let all = conditions::conditions(&ready, host.pressure, &board, &self.conditions, cx.wall());
        let mut object = node_object(facts, &settings, &images, all);
        if let Some(status) = &mut object.status {
            status.volumes_in_use.clone_from(&host.volumes_in_use);
        }
        Ok(object)
    }
}

/// Extended resources: those of the configuration, and those of plugins.
fn devices(launch: &Launch, now: Mono) -> Vec<(String, Amount)> {
    let mut all = Vec::new();
    for (name, count) in launch.containers.device_capacity() {
        all.push((name, Amount { capacity: count, allocatable: count }));
    }
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    for (name, capacity, healthy) in launch.containers.plugins.capacity(now) {
        all.push((name.clone(), Amount { capacity: count(capacity), allocatable: count(healthy) }));
    }
    all
}

/// From the launcher's file (`sampan_launcher::versions::State`), which is there once there was another version.
fn last_upgrade(paths: &Paths) -> Option<Upgrade> {
    let text = std::fs::read(paths.versions().join("state.json")).ok()?;
    let state: Value = from_json(&text).ok()?;
    let last = state.get("last")?;
    let text = |name: &str| last[name].as_str().unwrap_or_default().to_owned();
    let what = match (last["subject"].as_str(), text("version")) {
        (Some("configuration"), _) => "the configuration of a job".to_owned(),
        (_, version) => format!("version {version}"),
    };
    Some(Upgrade { what, went_back: if last["good"] == true { String::new() } else { text("reason") } })
}

/// Equal but for the heartbeat times.
fn same(one: &NodeObject, other: &NodeObject) -> bool {
    let still = |node: &NodeObject| {
        let mut node = node.clone();
        let conditions = node.status.as_mut().and_then(|status| status.conditions.as_mut());
        for condition in conditions.into_iter().flatten() {
            condition.last_heartbeat_time = None;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::bench::Bench;

    fn condition(kind: &str, status: &str, message: &str) -> NodeCondition {
        serde_json::from_value(json!({"type": kind, "status": status, "message": message})).unwrap()
    }

    #[test]
    fn node_is_ready_when_its_object_says_so() {
        let mut status = NodeStatus { conditions: vec![condition("Ready", "True", "")], ..NodeStatus::default() };
        assert!(status.ready().is_err(), "a stored condition is of an earlier daemon");
        status.last = Some(NodeObject::default());
        assert_eq!(status.ready(), Ok(()));
        status.conditions = vec![condition("DiskPressure", "True", ""), condition("Ready", "False", "why")];
        assert_eq!(status.ready(), Err("why".to_owned()));
        assert_eq!(status.conditions().collect::<Vec<_>>(), [("DiskPressure", true), ("Ready", false)]);
        status.conditions.clear();
        assert!(status.ready().is_err());
    }

    #[test]
    fn heartbeat_alone_is_no_change() {
        let object = |time: &str, status: &str| -> NodeObject {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": [
                {"type": "Ready", "status": status, "lastHeartbeatTime": time}]}}))
            .unwrap()
        };
        let [early, late] = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"];
        assert!(same(&object(early, "True"), &object(late, "True")));
        assert!(!same(&object(early, "True"), &object(early, "False")));
        assert!(same(&NodeObject::default(), &NodeObject::default()));
        assert!(!same(&NodeObject::default(), &object(early, "True")));
    }

    #[test]
    fn volumes_in_use_are_told_by_nodes_with_drivers() {
        let bench = Bench::new();
        let told = |volumes_in_use: Option<Vec<String>>| {
            let host = Host {
                launch: &bench.node.launch,
                pressure: Pressure::default(),
                shutting_down: false,
                services_elsewhere: None,
                volumes_in_use,
            };
            let object = bench.node.node_status.object(&bench.node.cx, &host).unwrap();
            object.status.and_then(|status| status.volumes_in_use)
        };
        assert_eq!(told(None), None);
        let volume = || "kubernetes.io/csi/d.example.com^vol-1".to_owned();
        assert_eq!(told(Some(vec![volume()])), Some(vec![volume()]));
        assert_eq!(told(Some(Vec::new())), Some(Vec::new()), "the last one has gone, and the API is to know it");
    }

    #[test]
    fn taint_has_an_effect_and_perhaps_a_value() {
        let parts = |text| {
            let Taint { key, value, effect, .. } = taint(text)?;
            Some((key, value, effect))
        };
        let expected = |key: &str, value: Option<&str>, effect: &str| {
            Some((key.to_owned(), value.map(str::to_owned), effect.to_owned()))
        };
        assert_eq!(parts("a/b=c:NoSchedule"), expected("a/b", Some("c"), "NoSchedule"));
        assert_eq!(parts("a:NoExecute"), expected("a", None, "NoExecute"));
        assert_eq!(parts("a=:NoExecute"), expected("a", Some(""), "NoExecute"));
        assert_eq!(parts("a"), None);
    }

    #[test]
    fn unreadable_stored_conditions_are_none() {
        for text in [None, Some(""), Some("{}"), Some("[1]")] {
            assert_eq!(NodeStatus::new(String::new(), text, Sensors::default()).conditions().count(), 0, "{text:?}");
        }
    }
}
