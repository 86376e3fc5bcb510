//! A small scheduler: finds a node for each pod that has none, binds it, and says why when it cannot. What a
//! node must offer is decided in `fit` and `cluster`, pure; this file only watches and writes, through the same
//! API that any client uses.

mod cluster;
mod fit;
mod needs;
#[cfg(test)]
mod tests;
mod volumes;

use edge_protocol::json::SetField;
use std::collections::{HashSet, VecDeque};
use std::pin::pin;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use cluster::{Cluster, Decision, PodKey, unschedulable_patch};

const NAME: &str = "default-scheduler";
/// Events not yet written; beyond this the oldest are dropped, as they are only for people.
const EVENTS_MAX: usize = 1024;

/// Schedules until the task is dropped. A failing watch is taken up again with back-off.
pub async fn run(client: Client) {
    let pods: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Pod>(&()));
    let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
    let claims: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<PersistentVolumeClaim>(&()));
    let volumes: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<PersistentVolume>(&()));
    let mut claims = pin!(watcher(claims, watcher::Config::default()).default_backoff());
    let mut volumes = pin!(watcher(volumes, watcher::Config::default()).default_backoff());
    let mut pods = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    let mut nodes = pin!(watcher(nodes, watcher::Config::default()).default_backoff());
    let mut scheduler = Scheduler { client, cluster: Cluster::default(), events: VecDeque::new() };
    let (mut pod_list, mut node_list) = (HashSet::new(), HashSet::new());
    let (mut claim_list, mut volume_list) = (HashSet::new(), HashSet::new());
    let (mut pods_known, mut nodes_known, mut claims_known, mut volumes_known) = (false, false, false, false);
    loop {
        // Bindings first: events are written only when no pod is waiting.
        tokio::select! {
            biased;
            event = pods.try_next() => match event {
                Ok(Some(event)) => pods_known |= scheduler.pod_event(event, &mut pod_list),
                Ok(None) => return,
                Err(error) => log::warn!("scheduler: watching pods: {error}"),
            },
            event = nodes.try_next() => match event {
                Ok(Some(event)) => nodes_known |= scheduler.node_event(event, &mut node_list),
                Ok(None) => return,
                Err(error) => log::warn!("scheduler: watching nodes: {error}"),
            },
            event = claims.try_next() => match event {
                Ok(Some(event)) => claims_known |= scheduler.claim_event(event, &mut claim_list),
                Ok(None) => return,
                Err(error) => log::warn!("scheduler: watching claims: {error}"),
            },
            event = volumes.try_next() => match event {
                Ok(Some(event)) => volumes_known |= scheduler.volume_event(event, &mut volume_list),
                Ok(None) => return,
                Err(error) => log::warn!("scheduler: watching volumes: {error}"),
            },
            () = scheduler.write_event(), if !scheduler.events.is_empty() => {}
        }
        // Half a picture would place pods where others already are.
        if pods_known && nodes_known && claims_known && volumes_known {
            scheduler.act().await;
        }
    }
}

struct Scheduler {
    client: Client,
    cluster: Cluster,
    events: VecDeque<Value>,
}

impl Scheduler {
    /// Takes in a change of pods; true once the list is complete.
    fn pod_event(&mut self, event: Event<DynamicObject>, listed: &mut HashSet<PodKey>) -> bool {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.insert(key(&pod));
                self.pod(&pod);
            }
            Event::InitDone => {
                self.cluster.retain_pods(&std::mem::take(listed));
                return true;
            }
            Event::Apply(pod) => self.pod(&pod),
            Event::Delete(pod) => self.cluster.pod_gone(&key(&pod)),
        }
        false
    }

    fn pod(&mut self, pod: &DynamicObject) {
        let deleting = pod.metadata.deletion_timestamp.is_some();
        self.cluster.pod(key(pod), pod.metadata.uid.as_deref().unwrap_or_default(), deleting, &pod.data);
    }

    /// Takes in a change of nodes; true once the list is complete.
    fn node_event(&mut self, event: Event<DynamicObject>, listed: &mut HashSet<String>) -> bool {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                listed.insert(node.name_any());
                self.node(&node);
            }
            Event::InitDone => {
                self.cluster.retain_nodes(&std::mem::take(listed));
                return true;
            }
            Event::Apply(node) => self.node(&node),
            Event::Delete(node) => self.cluster.node_gone(&node.name_any()),
        }
        false
    }

    /// Takes in a change of claims; true once the list is complete.
    fn claim_event(&mut self, event: Event<DynamicObject>, listed: &mut HashSet<PodKey>) -> bool {
        let volumes = &mut self.cluster.volumes;
        let stirred = match event {
            Event::Init => {
                listed.clear();
                false
            }
            Event::InitApply(claim) => {
                listed.insert(key(&claim));
                volumes.claim(key(&claim), &claim.data)
            }
            Event::InitDone => {
                volumes.retain_claims(&std::mem::take(listed));
                self.cluster.stir();
                return true;
            }
            Event::Apply(claim) => volumes.claim(key(&claim), &claim.data),
            Event::Delete(claim) => {
                volumes.claim_gone(&key(&claim));
                false
            }
        };
        if stirred {
            self.cluster.stir();
        }
        false
    }

    /// Takes in a change of volumes; true once the list is complete.
    fn volume_event(&mut self, event: Event<DynamicObject>, listed: &mut HashSet<String>) -> bool {
        let volumes = &mut self.cluster.volumes;
        let stirred = match event {
            Event::Init => {
                listed.clear();
                false
            }
            Event::InitApply(volume) => {
                listed.insert(volume.name_any());
                volumes.volume(&volume.name_any(), &volume.data)
            }
            Event::InitDone => {
                volumes.retain_volumes(&std::mem::take(listed));
                self.cluster.stir();
                return true;
            }
            Event::Apply(volume) => volumes.volume(&volume.name_any(), &volume.data),
            Event::Delete(volume) => {
                volumes.volume_gone(&volume.name_any());
                false
            }
        };
        if stirred {
            self.cluster.stir();
        }
        false
    }

    fn node(&mut self, node: &DynamicObject) {
        self.cluster.node(&node.name_any(), json!(node.labels()), &node.data);
    }

    async fn act(&mut self) {
        for decision in self.cluster.decide() {
            match decision {
                Decision::Bind { pod, uid, node } => self.bind(pod, &uid, &node).await,
                Decision::Tell { pod, uid, message } => self.tell(pod, &uid, &message).await,
            }
        }
    }

    async fn bind(&mut self, pod: PodKey, uid: &str, node: &str) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.0);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.1, "namespace": pod.0, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match api.create_subresource::<Value, Value>("binding", &pod.1, &PostParams::default(), &binding).await {
            Ok(_) => {
                let message = format!("Successfully assigned {}/{} to {node}", pod.0, pod.1);
                self.queue_event(&pod, uid, "Normal", "Scheduled", "Binding", &message);
            }
            Err(error) => {
                // Deleted or bound by somebody else meanwhile; the watch tells what is true.
                log::info!("scheduler: binding pod {}/{} to {node}: {error}", pod.0, pod.1);
                self.cluster.binding_failed(&pod);
            }
        }
    }

    async fn tell(&mut self, pod: PodKey, uid: &str, message: &str) {
        self.queue_event(&pod, uid, "Warning", "FailedScheduling", "Scheduling", message);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.0);
        let mut patch = unschedulable_patch(message, &whole_seconds(Timestamp::now()));
        patch.set("metadata", json!({"uid": uid}));
        let params = PatchParams::default();
        if let Err(error) = api.patch_status(&pod.1, &params, &Patch::Strategic(&patch)).await {
            log::info!("scheduler: condition of pod {}/{}: {error}", pod.0, pod.1);
        }
    }

    fn queue_event(&mut self, pod: &PodKey, uid: &str, kind: &str, reason: &str, action: &str, message: &str) {
        let now = Timestamp::now();
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": format!("{}.{:x}", pod.1, now.as_nanosecond()), "namespace": pod.0},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.0, "name": pod.1, "uid": uid},
            "reason": reason, "message": message, "type": kind, "action": action,
            "eventTime": format!("{now:.6}"), "firstTimestamp": null, "lastTimestamp": null,
            "reportingComponent": NAME, "reportingInstance": NAME, "source": {},
        }));
    }

    /// May be dropped half-way: the event stays in the queue until it is written.
    async fn write_event(&mut self) {
        let Some(event) = self.events.front().cloned() else { return };
        let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Event>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &resource);
        let written = match serde_json::from_value(event) {
            Ok(event) => api.create(&PostParams::default(), &event).await.map(drop),
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        self.events.pop_front();
        // A name that is taken is this event, written by the attempt that was dropped.
        if let Err(error) = written
            && !matches!(&error, kube::Error::Api(status) if status.code == 409)
        {
            log::info!("scheduler: writing an event in {namespace}: {error}");
        }
    }
}

fn key(pod: &DynamicObject) -> PodKey {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}

fn whole_seconds(time: Timestamp) -> String {
    let rounded = Timestamp::from_second(time.as_second()).unwrap_or(time);
    rounded.to_string()
}
