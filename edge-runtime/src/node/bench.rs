//! A node for unit tests: without root, cgroups, monitor and bridge. Its store is in memory, its folders are temporary, and
//! what it begins beside the loop never runs.

use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tempfile::TempDir;

use super::Node;
use super::containers::{ContainerRef, Containers};
use super::context::Context;
use super::crash_loop::CrashLoop;
use super::eviction::Eviction;
use super::neighbours::state::Neighbours;
use super::node_status::NodeStatus;
use super::notify::Notify;
use super::pods::Entry;
use super::policies::state::Policies;
use super::probes::Probes;
use super::services::Services;
use super::sources::{News, Sources, channels};
use crate::eviction::Manager;
use crate::launch::Launch;
use crate::monitor::client::MonitorClient;
use crate::net::services::{Here, Tables};
use crate::pod::id::container_id;
use crate::pod::record::{ContainerKind, ContainerRecord, ContainerState, PodRecord, PodSource, SandboxState};
use crate::probe::{ExecProbe, Supervisor};
use crate::sys::reserve::Reserve;

pub(super) struct Bench {
    pub(super) node: Node,
    sources: Sources,
    _root: TempDir,
}

impl Bench {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(root.path());
        let (senders, sources) = channels();
        cx.senders = senders;
        let launch = Launch::for_tests(&cx.paths, Rc::clone(&cx.config));
        let exec: ExecProbe = Rc::new(|_, _, _| Box::pin(async { Err("nothing runs here".to_owned()) }));
        let probes = Probes(Supervisor::new(cx.tasks.clone(), exec, Rc::new(|_| ())));
        let tables = Tables::new("none", &[]);
        let node = Node {
            services: Services::open(&cx.config.services, tables, Here::default(), &cx.store).unwrap(),
            policies: Policies::open(false, &cx.store).unwrap(),
            reserve: Reserve::new(cx.paths.reserve()),
            eviction: Eviction::new(Manager::new(Vec::new(), Duration::ZERO), false),
            containers: Containers::new(MonitorClient::for_tests()),
            probes,
            launch,
            cx,
            crash_loop: CrashLoop::default(),
            connecting: Default::default(),
            host_ports: Default::default(),
            neighbours: Neighbours::default(),
            kernel_rules: Default::default(),
            orders: Default::default(),
            dns: Default::default(),
            devices: Default::default(),
            local_api: Default::default(),
            plugins: Default::default(),
            hooks: Default::default(),
            pulls: Default::default(),
            tokens: Default::default(),
            static_pods: Default::default(),
            streams: Default::default(),
            exit_sync: Default::default(),
            resync: Default::default(),
            host_watch: Default::default(),
            node_status: NodeStatus::default(),
            ephemeral_storage: Default::default(),
            image_gc: Default::default(),
            backup: Default::default(),
            shutdown: Default::default(),
            idle: Default::default(),
            notify: Notify::default(),
            again: false,
        };
        Self { node, sources, _root: root }
    }

    /// Adds the [`pod`] with this uid, also as its name, as one that has had no turn.
    pub(super) fn add(&mut self, uid: &str) {
        let record = PodRecord::new(uid, "ns", uid, PodSource::Api, &self.node.cx.clock.now());
        self.node.cx.pods.insert(Entry::new(Rc::new(pod(uid, uid)), record));
    }

    /// Gives attempt 0 of container `c` this state. Returns its id.
    pub(super) fn container(&mut self, uid: &str, state: ContainerState) -> String {
        let id = container_id(uid, "c", 0);
        self.node.containers.insert(&id, ContainerRef { uid: uid.to_owned(), container: "c".to_owned(), attempt: 0 });
        let record = ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) };
        self.record_mut(uid).containers.insert("c".to_owned(), record);
        id
    }

    pub(super) fn sandbox(&mut self, uid: &str, state: SandboxState) {
        self.record_mut(uid).sandbox.state = state;
    }

    pub(super) fn record(&self, uid: &str) -> &PodRecord {
        &self.node.cx.pods.get(uid).unwrap().record
    }

    pub(super) fn record_mut(&mut self, uid: &str) -> &mut PodRecord {
        &mut self.node.cx.pods.get_mut(uid).unwrap().record
    }

    /// The pods that are to have a turn; then none is.
    pub(super) fn take_dirty(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.node.cx.pods.next_dirty()).collect()
    }

    /// News that the node has sent to itself.
    pub(super) fn next_news(&self) -> Option<News> {
        self.sources.try_next()
    }
}

/// A pod `ns/NAME` in the node's own namespaces: to prepare it makes nothing but files.
pub(super) fn pod(uid: &str, name: &str) -> Pod {
    let metadata = json!({"name": name, "namespace": "ns", "uid": uid});
    let container = json!({"name": "c", "image": "registry.example/app:1"});
    let spec = json!({"hostNetwork": true, "hostIPC": true, "containers": [container]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// State of attempt 0 of a pod's container `c` with a process.
pub(super) fn running(uid: &str, pid: i32) -> ContainerState {
    let started_at = jiff::Timestamp::UNIX_EPOCH;
    ContainerState::Running { id: container_id(uid, "c", 0), pid, started_at, since: Default::default() }
}
