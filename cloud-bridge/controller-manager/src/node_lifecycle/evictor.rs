//! Has pods go from tainted nodes, by one watch of pods for all of them. Where no node is tainted for pods that run, nothing
//! is watched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use apimachinery::key::ObjectKey;
use apimachinery::meta::rfc3339;
use apimachinery::pace::Pace;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, ObjectReference};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::Event as Watched;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::eviction::{Evictions, Pod};
use crate::events::Recorder;
use crate::events::event::Event;
use crate::watch;
use apimachinery::pace::sleep_until;

const COMPONENT: &str = "taint-eviction-controller";
/// A pod that a node has without the API (K8s `MirrorPodAnnotationKey`): only its node can end it.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Clone, Debug, Deserialize)]
struct SlimPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct SlimSpec {
    #[serde(default, rename = "nodeName")]
    node_name: Option<String>,
    #[serde(default)]
    tolerations: Option<Vec<Value>>,
}

apimachinery::read_as!(SlimPod, core::Pod);

impl SlimPod {
    fn key(&self) -> ObjectKey {
        let meta = &self.metadata;
        ObjectKey { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }

    fn stays(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
            || self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR))
    }
}

/// A node and its taints that evict pods.
type News = (String, Vec<Value>);

/// Sends the tainted nodes to the task of evictions. The task ends when this is dropped.
pub(super) struct Evictors {
    tainted: HashMap<String, Vec<Value>>,
    news: UnboundedSender<News>,
    task: JoinSet<()>,
}

impl Evictors {
    pub(super) fn new(client: Client) -> Self {
        let (news, heard) = unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(evict(client, heard));
        Self { tainted: HashMap::new(), news, task }
    }

    /// A node has these taints for which pods go.
    pub(super) fn node(&mut self, name: &str, taints: Vec<Value>) {
        let known = self.tainted.get(name).map_or(&[][..], Vec::as_slice);
        if known == taints {
            return;
        }
        if taints.is_empty() {
            self.tainted.remove(name);
        } else {
            self.tainted.insert(name.to_owned(), taints.clone());
        }
        let _ = self.news.send((name.to_owned(), taints));
    }

    /// Propagates a panic of the task, so that everything restarts together.
    pub(super) async fn panicked(&mut self) {
        if let Some(Err(error)) = self.task.join_next().await
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
        std::future::pending().await
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.node(name, Vec::new());
    }
}

/// Has pods go from tainted nodes. All pods are watched while any node is tainted, once for all nodes.
async fn evict(client: Client, mut heard: UnboundedReceiver<News>) {
    let mut evictor = Evictor {
        start: Instant::now(),
        evictions: Evictions::default(),
        events: Recorder::new(client.clone()),
        unlisted: BTreeSet::new(),
        tolerations: BTreeMap::new(),
        client,
    };
    let mut pods = None;
    loop {
        let due = evictor.evictions.deadline().and_then(|due| evictor.start.checked_add(due));
        tokio::select! {
            biased;
            news = heard.recv() => {
                let Some((node, taints)) = news else { return };
                evictor.taints(&node, taints);
                if !evictor.evictions.is_needed() {
                    pods = None;
                    evictor.forget_pods().await;
                } else if pods.is_none() {
                    pods = Some(watch::all::<SlimPod>(&evictor.client).boxed());
                }
            }
            Some(event) = next(&mut pods) => match event {
                Ok(seen) => evictor.seen(seen).await,
                Err(error) => log::warn!("watching the pods of tainted nodes: {error}"),
            },
            () = sleep_until(due) => evictor.delete_next().await,
            () = evictor.events.write_next(), if !evictor.events.is_empty() => {}
        }
    }
}

async fn next<S: Stream + Unpin>(stream: &mut Option<S>) -> Option<S::Item> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}

struct Evictor {
    client: Client,
    start: Instant,
    evictions: Evictions,
    events: Recorder,
    /// Pods that were known when a list began, and that it has not named so far.
    unlisted: BTreeSet<ObjectKey>,
    /// Those that pods share, by their JSON.
    tolerations: BTreeMap<String, Arc<Vec<Value>>>,
}

impl Evictor {
    fn taints(&mut self, node: &str, taints: Vec<Value>) {
        for (key, uid) in self.evictions.taints(node, taints, self.start.elapsed()) {
            self.events.record(event(&key, &uid, "Cancelling deletion of Pod"));
        }
    }

    /// Removes all pods, in slices: no node is tainted, so they are not needed.
    async fn forget_pods(&mut self) {
        let mut pace = Pace::default();
        let known: Vec<ObjectKey> = pace.collect(self.evictions.keys().cloned()).await;
        for key in known {
            self.evictions.gone(&key);
            pace.look().await;
        }
        self.tolerations.clear();
    }

    async fn seen(&mut self, seen: Watched<SlimPod>) {
        let mut pace = Pace::default();
        match seen {
            Watched::Init => self.unlisted = pace.collect(self.evictions.keys().cloned()).await,
            Watched::InitApply(pod) => {
                self.unlisted.remove(&pod.key());
                self.put(pod);
            }
            Watched::InitDone => {
                for key in std::mem::take(&mut self.unlisted) {
                    self.evictions.gone(&key);
                    pace.look().await;
                }
                self.tolerations.retain(|_, shared| Arc::strong_count(shared) > 1);
            }
            Watched::Apply(pod) => self.put(pod),
            Watched::Delete(pod) => self.evictions.gone(&pod.key()),
        }
    }

    fn put(&mut self, pod: SlimPod) {
        let key = pod.key();
        let node = pod.spec.node_name.clone().unwrap_or_default();
        if node.is_empty() || pod.stays() {
            return self.evictions.gone(&key);
        }
        let uid = pod.metadata.uid.unwrap_or_default();
        let tolerations = self.shared(pod.spec.tolerations.unwrap_or_default());
        let stays = self.evictions.pod(key, Pod { node, uid, tolerations }, self.start.elapsed());
        if let Some((key, uid)) = stays {
            self.events.record(event(&key, &uid, "Cancelling deletion of Pod"));
        }
    }

    fn shared(&mut self, tolerations: Vec<Value>) -> Arc<Vec<Value>> {
        let text = tolerations.iter().map(Value::to_string).collect::<Vec<_>>().join(",");
        Arc::clone(self.tolerations.entry(text).or_insert_with(|| Arc::new(tolerations)))
    }

    async fn delete_next(&mut self) {
        let Some((key, uid)) = self.evictions.next(self.start.elapsed()) else { return };
        let node = self.evictions.node_of(&key).unwrap_or_default();
        log::info!("node {node}: its taints have pod {}/{} deleted", key.namespace, key.name);
        match delete(&self.client, &key, &uid).await {
            Ok(()) => self.events.record(event(&key, &uid, "Marking for deletion Pod")),
            Err(error) => log::warn!("deleting pod {}/{}: {error}", key.namespace, key.name),
        }
    }
}

/// Marks the pod and deletes it gracefully: a pod of an offline node stays until the node has stopped it.
async fn delete(client: &Client, key: &ObjectKey, uid: &str) -> kube::Result<()> {
    let api: Api<core::Pod> = Api::namespaced(client.clone(), &key.namespace);
    let condition = json!({"metadata": {"uid": uid}, "status": {"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastProbeTime": null, "lastTransitionTime": rfc3339(Timestamp::now()),
    }]}});
    let same = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let done = match api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(&condition)).await {
        Ok(_) => api.delete(&key.name, &DeleteParams::default().preconditions(same)).await.map(drop),
        Err(error) => Err(error),
    };
    match done {
        // It is deleted already, or has been replaced.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
        other => other,
    }
}

fn event(key: &ObjectKey, uid: &str, what: &str) -> Event {
    Event {
        about: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        },
        kind: "Normal",
        reason: "TaintManagerEviction",
        message: format!("{what} {}/{}", key.namespace, key.name),
        component: COMPONENT,
        action: None,
    }
}
