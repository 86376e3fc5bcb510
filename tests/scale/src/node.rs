//! One node: connects, and reconnects when the connection ends, as `edge-runtime` does; commits at once; reports each
//! pod as running.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use async_tungstenite::tungstenite::Message;
use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::{ORDER, Object, ObjectDigest, ObjectKey, Position, Report};
use edge_protocol::version::Wants;
use edge_protocol::wire::Wire;
use futures::{FutureExt, StreamExt};
use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::fleet::Fleet;
use crate::orders::Orders;
use crate::sensors::Sensors;
use crate::wire::{self, Socket};

/// ConfigMap whose arrivals nodes count, and the key of its data with the number of its changes.
pub(crate) const SHARED: &str = "swarm-large";
pub(crate) const REVISION: &str = "revision";

/// Label of the nodes, by thousands.
pub(crate) const GROUP: &str = "swarm-group";

/// State that a real node has on its disk.
struct Node {
    index: usize,
    name: String,
    fleet: Rc<Fleet>,
    cluster: Option<String>,
    position: Option<Position>,
    held: BTreeMap<ObjectKey, ObjectDigest>,
    outbox: VecDeque<(u64, Report)>,
    /// Number of rows of the outbox that are sent and not acknowledged.
    offered: usize,
    next_id: u64,
    /// `None` without devices.
    sensors: Option<Sensors>,
    orders: Orders,
}

/// Runs until the process ends.
pub(crate) async fn run(index: usize, name: String, tls: Arc<ClientConfig>, fleet: Rc<Fleet>) {
    let phase = (fleet.random() % 1_000) as f64 / 1_000.0;
    let mut node = Node {
        index,
        name,
        fleet: Rc::clone(&fleet),
        cluster: None,
        position: None,
        held: BTreeMap::new(),
        outbox: VecDeque::new(),
        offered: 0,
        next_id: 1,
        sensors: fleet.devices_report.map(|every| Sensors::new(every, phase)),
        orders: Orders::default(),
    };
    let mut failures = 0_u32;
    for attempt in 0_usize.. {
        while fleet.is_away(index) {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let first = if fleet.spread { index } else { 0 };
        let bridge = fleet.bridges[(first + attempt) % fleet.bridges.len()];
        // First connections are paced; later ones are not.
        let permit = if attempt == 0 { fleet.ramp.acquire().await.ok() } else { None };
        let started = Instant::now();
        let connected = match wire::dial(index, bridge, Arc::clone(&tls), Rc::clone(&fleet.counters)).await {
            Ok(socket) => {
                drop(permit);
                let why = node.connection(socket).await;
                fleet.left(index, why.err());
                true
            }
            Err(error) => {
                drop(permit);
                fleet.failed(&error);
                false
            }
        };
        if connected && started.elapsed() > Duration::from_secs(30) {
            failures = 0;
        }
        let ceiling = 1000_u64.saturating_mul(1 << failures.min(6)).min(60_000);
        failures = failures.saturating_add(1);
        let wait = fleet.random() % ceiling;
        tokio::time::sleep(Duration::from_millis(wait.max(100))).await;
    }
}

impl Node {
    async fn connection(&mut self, mut socket: Socket) -> anyhow::Result<()> {
        let start = Instant::now();
        let facts = EdgeFacts {
            agent: "swarm".to_owned(),
            cluster: self.cluster.clone(),
            position: self.position.clone(),
            held: self.held.values().cloned().collect(),
            compress: true,
            wants: Wants { devices: self.sensors.is_some(), ..Wants::default() },
            ..EdgeFacts::new(self.name.clone(), "boot")
        };
        let mut session = EdgeSession::new(facts, Duration::ZERO);
        self.offered = 0;
        self.sensors.iter_mut().for_each(Sensors::over);
        let mut heard = Instant::now();
        loop {
            while let Some(event) = session.poll_event() {
                self.event(&mut session, event);
            }
            for (job, status) in self.orders.due(self.index, &self.fleet) {
                self.report(Report::Order { job, status });
            }
            self.offer(&mut session);
            self.sensors.iter_mut().for_each(|sensors| sensors.report(&mut session));
            while let Some(frame) = session.poll_frame(start.elapsed()) {
                let message = match frame.wire() {
                    Wire::Text(text) => Message::text(text),
                    Wire::Binary(bytes) => Message::binary(bytes),
                    Wire::Shared(bytes) => Message::binary(bytes.to_vec()),
                };
                socket.send(message).await?;
            }
            if self.fleet.is_away(self.index) {
                return Ok(());
            }
            if self.fleet.is_stuck(self.index) {
                // Reads nothing, sends nothing, and stays connected.
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
            let sensors = self.sensors.as_ref().filter(|_| session.is_welcome()).and_then(Sensors::wake);
            let wakes = sensors.into_iter().chain(self.orders.wake());
            let deadline = wakes.fold(start + session.next_timeout(), Instant::min);
            let deadline = tokio::time::Instant::from_std(deadline);
            futures::select_biased! {
                message = socket.next().fuse() => {
                    self.fleet.heard_after(heard.elapsed());
                    heard = Instant::now();
                    match message {
                    Some(Ok(Message::Text(text))) => session.handle(&text, start.elapsed())?,
                    Some(Ok(Message::Binary(bytes))) => session.handle_binary(&bytes, start.elapsed())?,
                    Some(Ok(Message::Close(_))) | None => bail!("closed"),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    }
                },
                () = tokio::time::sleep_until(deadline).fuse() => {
                    if session.next_timeout() <= start.elapsed() {
                        session.on_timeout(start.elapsed())?;
                    }
                }
            }
        }
    }

    fn event(&mut self, session: &mut EdgeSession, event: EdgeEvent) {
        match event {
            EdgeEvent::Welcome(welcome) => {
                self.cluster = Some(welcome.cluster);
                // As edge-runtime does: the bridge may be another one.
                self.outbox.retain(|(_, report)| !matches!(report, Report::Node { .. }));
                self.report(Report::Node { node: object(&self.name) });
                self.fleet.joined(self.index);
            }
            EdgeEvent::Change(change) => {
                self.position = change.position(session.stream());
                let seq = change.seq();
                match change {
                    Change::Put { object, .. } => self.put(object),
                    Change::Delete { key, uid, .. } => {
                        if self.held.get(&key).is_some_and(|held| held.uid == uid) {
                            self.held.remove(&key);
                            self.fleet.gone(&key.name);
                            self.sensors.iter_mut().for_each(|sensors| sensors.gone(&key));
                        }
                    }
                    Change::SyncComplete { absent, .. } => {
                        for gone in absent {
                            self.held.remove(&gone.key);
                            self.sensors.iter_mut().for_each(|sensors| sensors.gone(&gone.key));
                        }
                        self.fleet.synced(self.index);
                    }
                }
                session.committed(seq);
            }
            EdgeEvent::UpAcked(id) | EdgeEvent::UpRefused(id, _) => {
                let Some(at) = self.outbox.iter().position(|(known, _)| *known == id) else { return };
                if at < self.offered {
                    self.offered -= 1;
                }
                let row = self.outbox.remove(at);
                match (&event, row) {
                    (EdgeEvent::UpRefused(_, reason), _) => self.fleet.refused(reason),
                    (_, Some((_, Report::Node { .. }))) => self.fleet.registered(self.index),
                    (_, Some((_, Report::PodStatus { uid, .. }))) => self.fleet.reported(&uid),
                    _ => {}
                }
            }
            EdgeEvent::DevicesAcked { refused, .. } => {
                self.sensors.iter_mut().for_each(Sensors::over);
                refused.iter().for_each(|refused| self.fleet.refused(&refused.reason));
                self.fleet.device_told();
            }
            EdgeEvent::Token { .. }
            | EdgeEvent::Renewed(_)
            | EdgeEvent::MessagesAcked(_)
            | EdgeEvent::Call { .. }
            | EdgeEvent::Response { .. }
            | EdgeEvent::Stream(_) => {}
        }
    }

    fn offer(&mut self, session: &mut EdgeSession) {
        while session.is_welcome() && self.offered < self.outbox.len() && session.up_room() > 0 {
            let (id, report) = self.outbox[self.offered].clone();
            if session.up(id, report).is_err() {
                break;
            }
            self.offered += 1;
        }
    }

    fn report(&mut self, report: Report) {
        self.outbox.push_back((self.next_id, report));
        self.next_id += 1;
    }

    fn put(&mut self, object: Object) {
        if self.sensors.as_mut().is_some_and(|sensors| sensors.put(&object)) {
            self.fleet.device_arrived();
        }
        let Object { digest, body } = object;
        if digest.key.kind == ORDER {
            let known = self.held.contains_key(&digest.key);
            self.orders.put(&digest.uid, known, self.index, &self.fleet);
        }
        if digest.key.kind == "Pod" {
            let (namespace, name, uid) = (digest.key.namespace.clone(), digest.key.name.clone(), digest.uid.clone());
            if body["metadata"]["deletionTimestamp"].is_string() {
                self.fleet.gone(&name);
                self.report(Report::PodGone { namespace, name, uid });
            } else {
                self.fleet.arrived(&name, &uid);
                self.report(Report::PodStatus { namespace, name, uid, status: running(&body) });
            }
        }
        if digest.key.kind == "ConfigMap" && digest.key.name == SHARED {
            let revision = body["data"][REVISION].as_str().and_then(|text| text.parse().ok());
            self.fleet.holds(self.index, revision.unwrap_or_default());
        }
        self.held.insert(digest.key.clone(), digest);
    }
}

/// An object of the size of a real node's.
pub(crate) fn object(name: &str) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
                   "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let resources = json!({"cpu": "4", "memory": "1014300Ki", "pods": "110", "ephemeral-storage": "30Gi"});
    json!({
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64",
            GROUP: group(name), "swarm": name.rsplit_once('-').map_or(name, |(prefix, _)| prefix)}},
        "spec": {"taints": []},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}, {"type": "Hostname", "address": name}],
            "nodeInfo": {"machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6.6",
                "osImage": "Linux", "containerRuntimeVersion": "runc://1", "kubeletVersion": "v1.36.0",
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "arm64"},
            "images": [{"names": ["docker.io/library/busybox:latest"], "sizeBytes": 2_000_000}],
        },
    })
}

/// The thousand to which a node belongs, by the number that its name ends with.
fn group(name: &str) -> String {
    let number = name.rsplit_once('-').and_then(|(_, number)| number.parse::<usize>().ok());
    (number.unwrap_or_default() / 1000).to_string()
}

/// The status of a pod with all containers running.
pub(crate) fn running(pod: &Value) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time});
    let containers: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| {
            json!({"name": container["name"], "image": container["image"], "imageID": "sha256:0", "ready": true,
                   "started": true, "restartCount": 0, "containerID": "runc://0123456789abcdef",
                   "state": {"running": {"startedAt": time}}, "lastState": {}})
        })
        .collect();
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let conditions = conditions.map(condition);
    json!({
        "phase": "Running", "hostIP": "10.0.0.9", "podIP": "10.88.0.2", "podIPs": [{"ip": "10.88.0.2"}],
        "startTime": time, "qosClass": "Burstable", "containerStatuses": containers,
        "conditions": conditions,
    })
}
