//! Has pods go from tainted nodes: a task for each such node, which alone looks at its pods. Where no node is tainted for
//! pods that run, nothing is watched.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;

use apimachinery::key::ObjectKey;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{self as core, ObjectReference};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event as Watched, watcher};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::eviction::{Evictions, Pod};
use super::{sleep_until, whole_seconds};
use crate::events::{Event, Recorder};

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

struct Evictor {
    taints: watch::Sender<Vec<Value>>,
    task: AbortHandle,
}

pub(super) struct Evictors {
    client: Client,
    nodes: HashMap<String, Evictor>,
    /// They end with this.
    tasks: JoinSet<()>,
}

impl Evictors {
    pub(super) fn new(client: Client) -> Self {
        Self { client, nodes: HashMap::new(), tasks: JoinSet::new() }
    }

    /// A node has these taints for which pods go.
    pub(super) fn node(&mut self, name: &str, taints: Vec<Value>) {
        while self.tasks.try_join_next().is_some() {}
        self.nodes.retain(|_, evictor| !evictor.task.is_finished());
        if let Some(evictor) = self.nodes.get(name) {
            // It ends by itself when it has told which pods stay.
            evictor.taints.send_if_modified(|held| {
                let new = *held != taints;
                if new {
                    *held = taints;
                }
                new
            });
        } else if !taints.is_empty() {
            let (sender, receiver) = watch::channel(taints);
            let task = self.tasks.spawn(evict(self.client.clone(), name.to_owned(), receiver));
            self.nodes.insert(name.to_owned(), Evictor { taints: sender, task });
        }
    }

    pub(super) fn forget(&mut self, name: &str) {
        if let Some(evictor) = self.nodes.remove(name) {
            evictor.task.abort();
        }
    }
}

/// Looks at the pods of one node until it has no taints for which pods go.
async fn evict(client: Client, node: String, mut taints: watch::Receiver<Vec<Value>>) {
    let api: Api<SlimPod> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut pods = pin!(watcher(api, config).default_backoff());
    let start = Instant::now();
    let mut evictions = Evictions::default();
    let mut events = Recorder::new(client.clone());
    let mut listed = BTreeSet::new();
    evictions.taints(taints.borrow_and_update().clone(), start.elapsed());
    loop {
        let due = evictions.deadline().and_then(|due| start.checked_add(due));
        tokio::select! {
            biased;
            changed = taints.changed() => {
                let now = taints.borrow_and_update().clone();
                let ends = changed.is_err() || now.is_empty();
                for (key, uid) in evictions.taints(now, start.elapsed()) {
                    events.record(event(&key, &uid, "Cancelling deletion of Pod"));
                }
                if ends {
                    while !events.is_empty() {
                        events.write_next().await;
                    }
                    return;
                }
            }
            Some(event) = pods.next() => match event {
                Ok(seen) => {
                    if let Some((key, uid)) = take(&mut evictions, &mut listed, seen, start) {
                        events.record(self::event(&key, &uid, "Cancelling deletion of Pod"));
                    }
                }
                Err(error) => log::warn!("node {node}: watching its pods: {error}"),
            },
            () = sleep_until(due) => {
                if let Some((key, uid)) = evictions.next(start.elapsed()) {
                    log::info!("node {node}: its taints have pod {}/{} deleted", key.namespace, key.name);
                    match delete(&client, &key, &uid).await {
                        Ok(()) => events.record(event(&key, &uid, "Marking for deletion Pod")),
                        Err(error) => log::warn!("deleting pod {}/{}: {error}", key.namespace, key.name),
                    }
                }
            }
            () = events.write_next(), if !events.is_empty() => {}
        }
    }
}

fn take(
    evictions: &mut Evictions,
    listed: &mut BTreeSet<ObjectKey>,
    seen: Watched<SlimPod>,
    start: Instant,
) -> Option<(ObjectKey, String)> {
    let put = |evictions: &mut Evictions, pod: SlimPod| {
        let key = pod.key();
        if pod.stays() {
            evictions.gone(&key);
            return None;
        }
        let uid = pod.metadata.uid.unwrap_or_default();
        let tolerations = pod.spec.tolerations.unwrap_or_default();
        evictions.pod(key, Pod { uid, tolerations }, start.elapsed())
    };
    match seen {
        Watched::Init => listed.clear(),
        Watched::InitApply(pod) => {
            listed.insert(pod.key());
            return put(evictions, pod);
        }
        Watched::InitDone => evictions.retain(&std::mem::take(listed)),
        Watched::Apply(pod) => return put(evictions, pod),
        Watched::Delete(pod) => evictions.gone(&pod.key()),
    }
    None
}

/// Marks the pod and deletes it gracefully: one of a node that is away stays until the node has ended it.
async fn delete(client: &Client, key: &ObjectKey, uid: &str) -> kube::Result<()> {
    let api: Api<core::Pod> = Api::namespaced(client.clone(), &key.namespace);
    let condition = json!({"metadata": {"uid": uid}, "status": {"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastProbeTime": null, "lastTransitionTime": whole_seconds(Timestamp::now()),
    }]}});
    let same = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let done = match api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(&condition)).await {
        Ok(_) => api.delete(&key.name, &DeleteParams::default().preconditions(same)).await.map(drop),
        Err(error) => Err(error),
    };
    match done {
        // It has gone by itself, or is another one by now.
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
    }
}
