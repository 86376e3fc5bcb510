//! A small scheduler: finds a node for each unscheduled pod, binds it, and reports why if it cannot. The requirements,
//! the order and preemption are decided in `cluster` and below it, pure; this file watches and writes the decisions,
//! through the same API that any client uses.

mod affinity;
mod asleep;
mod budgets;
mod cache;
mod capacity;
mod cluster;
mod constraint;
mod cycle;
mod fit;
mod kin;
mod limits;
mod needs;
mod picture;
pub(crate) mod pod;
mod preemption;
mod queue;
mod score;
mod selector;
mod spread;
#[cfg(test)]
mod tests;
mod told;
mod volumes;
mod writes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::pin;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, SelectAll};
use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{self as core, Namespace, Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::events::Recorder;
use crate::pods::{self, Pods};
use crate::watch;
use apimachinery::json::{present, text};
use apimachinery::meta;
use apimachinery::pace::Pace;
use cluster::{Cluster, Decision};
use pod::{Pod, PodKey};
use queue::Waiting;
use volumes::{Claim, SELECTED_NODE};
use writes::Writer;

/// Maximum number of bindings under way. Each waits for the API's disk; bindings that come together share a sync.
const BINDINGS: usize = 16;

/// A pod, its node, and whether it was bound.
type Bound = (Box<Waiting>, String, bool);

/// Kinds that the scheduler reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Pod,
    Node,
    Claim,
    Volume,
    Class,
    Namespace,
    Budget,
    Driver,
    CsiNode,
    Capacity,
    Attachment,
}

const KINDS: [Kind; 11] = [
    Kind::Pod,
    Kind::Node,
    Kind::Claim,
    Kind::Volume,
    Kind::Class,
    Kind::Namespace,
    Kind::Budget,
    Kind::Driver,
    Kind::CsiNode,
    Kind::Capacity,
    Kind::Attachment,
];

impl Kind {
    fn resource(self) -> ApiResource {
        match self {
            Self::Pod => ApiResource::erase::<core::Pod>(&()),
            Self::Node => ApiResource::erase::<Node>(&()),
            Self::Claim => ApiResource::erase::<PersistentVolumeClaim>(&()),
            Self::Volume => ApiResource::erase::<PersistentVolume>(&()),
            Self::Class => ApiResource::erase::<StorageClass>(&()),
            Self::Namespace => ApiResource::erase::<Namespace>(&()),
            Self::Budget => ApiResource::erase::<PodDisruptionBudget>(&()),
            Self::Driver => ApiResource::erase::<CSIDriver>(&()),
            Self::CsiNode => ApiResource::erase::<CSINode>(&()),
            Self::Capacity => ApiResource::erase::<CSIStorageCapacity>(&()),
            Self::Attachment => ApiResource::erase::<VolumeAttachment>(&()),
        }
    }
}

/// Schedules until the task is dropped. A failed watch is retried with back-off.
pub async fn run(client: Client, pods: Pods) {
    let watch = |kind: Kind| match kind {
        Kind::Pod => pods.follow().map(of_pod).boxed(),
        _ => follow(&client, kind).map(move |event| (kind, event)).boxed(),
    };
    let mut watched = pin!(KINDS.map(watch).into_iter().collect::<SelectAll<_>>());
    let mut scheduler = Scheduler {
        cluster: Cluster::default(),
        writer: Writer::new(client.clone()),
        events: Recorder::new(client.clone()),
        bindings: FuturesUnordered::new(),
        start: Instant::now(),
        unlisted: BTreeMap::new(),
        known: HashSet::new(),
    };
    let mut pace = Pace::default();
    loop {
        let due = scheduler.due();
        // Watches come first, because a decision on old data is useless. Then bindings: events are only for users.
        tokio::select! {
            biased;
            Some((kind, event)) = watched.next() => {
                match event {
                    Ok(event) => scheduler.watched(kind, event, &mut pace).await,
                    Err(error) => log::warn!("scheduler: watching {kind:?}s: {error}"),
                }
                pace.look().await;
            }
            Some(bound) = scheduler.bindings.next(), if !scheduler.bindings.is_empty() => scheduler.bound(bound),
            () = until(due) => scheduler.act().await,
            () = scheduler.events.write_next(), if !scheduler.events.is_empty() => {}
        }
    }
}

/// An object as it comes.
enum Object {
    Pod(Arc<Pod>),
    Other(Value),
}

type Seen = Result<Event<Object>, String>;

/// An event of the watch that all controllers share.
fn of_pod(event: Event<Arc<pods::Pod>>) -> (Kind, Seen) {
    let own = watch::map(event, |pod| Ok(Object::Pod(Arc::clone(&pod.placing))));
    (Kind::Pod, own.map_err(|misfit| misfit.to_string()))
}

fn follow(client: &Client, kind: Kind) -> impl Stream<Item = Seen> + Send + use<> {
    let api = Api::all_with(client.clone(), &kind.resource());
    watch::watch(api, |event| watch::map(event, |object| Ok(Object::Other(object))))
}

async fn until(due: Option<Instant>) {
    match due {
        // A timer would cost a millisecond for each pod.
        Some(due) if due <= Instant::now() => tokio::task::yield_now().await,
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

struct Scheduler {
    cluster: Cluster,
    writer: Writer,
    events: Recorder,
    bindings: FuturesUnordered<BoxFuture<'static, Bound>>,
    start: Instant,
    /// Objects that were known when the running lists began, and that they have not named so far.
    unlisted: BTreeMap<Kind, BTreeSet<PodKey>>,
    /// Kinds of which a list has ended.
    known: HashSet<Kind>,
}

impl Scheduler {
    /// When there is something to decide. Half a picture would place pods where others already are.
    fn due(&self) -> Option<Instant> {
        let complete = KINDS.iter().all(|kind| self.known.contains(kind));
        let due = self.cluster.deadline().filter(|_| complete && self.bindings.len() < BINDINGS)?;
        self.start.checked_add(due)
    }

    async fn watched(&mut self, kind: Kind, event: Event<Object>, pace: &mut Pace) {
        match event {
            Event::Init => {
                let known: BTreeSet<_> = pace.collect(known_keys(&self.cluster, kind)).await;
                self.unlisted.insert(kind, known);
            }
            Event::InitApply(object) => {
                self.unlisted.entry(kind).or_default().remove(&key(&object));
                self.put(kind, object);
            }
            Event::InitDone => {
                for key in self.unlisted.remove(&kind).unwrap_or_default() {
                    self.gone(kind, &key);
                    pace.look().await;
                }
                self.cluster.stir();
                self.known.insert(kind);
            }
            Event::Apply(object) => self.put(kind, object),
            Event::Delete(object) => self.gone(kind, &key(&object)),
        }
    }

    fn put(&mut self, kind: Kind, object: Object) {
        let (cluster, key) = (&mut self.cluster, key(&object));
        let object = match object {
            Object::Pod(pod) => return cluster.pod(pod),
            Object::Other(object) => object,
        };
        match kind {
            Kind::Pod => {}
            Kind::Node => cluster.node(&key.1, labels(&object), &object),
            Kind::Claim => {
                let selected = text(&object["metadata"]["annotations"], SELECTED_NODE);
                let claim = Claim::read(meta::text(&object, "uid"), selected, &object);
                if cluster.picture.volumes.claim(key.clone(), claim) {
                    cluster.claim_changed(&key);
                }
            }
            Kind::Class => {
                if cluster.picture.volumes.class(&key.1, &object) {
                    cluster.volumes_changed();
                }
            }
            Kind::Volume => {
                if cluster.picture.volumes.volume(&key.1, &object) {
                    cluster.volumes_changed();
                }
            }
            Kind::Namespace => {
                if cluster.picture.namespace(key.1, labels(&object)) {
                    cluster.namespace_changed();
                }
            }
            Kind::Budget => cluster.picture.budgets.put(key, &object),
            Kind::Driver => {
                if cluster.picture.volumes.capacities.driver(&key.1, &object) {
                    cluster.volumes_changed();
                }
            }
            Kind::CsiNode => {
                if cluster.picture.volumes.limits.node(&key.1, &object) {
                    cluster.volumes_changed();
                }
            }
            Kind::Capacity => {
                if cluster.picture.volumes.capacities.put(key, &object) {
                    cluster.volumes_changed();
                }
            }
            Kind::Attachment => cluster.picture.volumes.limits.attachment(&key.1, &object),
        }
    }

    fn gone(&mut self, kind: Kind, key: &PodKey) {
        let picture = &mut self.cluster.picture;
        match kind {
            Kind::Pod => self.cluster.pod_gone(key),
            Kind::Node => self.cluster.node_gone(&key.1),
            Kind::Claim => picture.volumes.claim_gone(key),
            Kind::Volume => picture.volumes.volume_gone(&key.1),
            Kind::Class => picture.volumes.class_gone(&key.1),
            Kind::Namespace => picture.namespace_gone(&key.1),
            Kind::Budget => picture.budgets.remove(key),
            Kind::Capacity => picture.volumes.capacities.gone(key),
            Kind::Driver => {
                if picture.volumes.capacities.driver_gone(&key.1) {
                    self.cluster.volumes_changed();
                }
            }
            Kind::CsiNode => {
                if picture.volumes.limits.node_gone(&key.1) {
                    self.cluster.volumes_changed();
                }
            }
            Kind::Attachment => {
                if picture.volumes.limits.attachment_gone(&key.1) {
                    self.cluster.volumes_changed();
                }
            }
        }
    }

    /// Handles the end of a binding.
    fn bound(&mut self, (waiting, node, bound): Bound) {
        if bound {
            self.events.record(told::bound(&waiting.pod, &node));
        } else {
            self.cluster.binding_failed(*waiting, self.start.elapsed());
        }
    }

    /// Handles the next pod.
    async fn act(&mut self) {
        match self.cluster.next(self.start.elapsed(), &mut Pace::default()).await {
            Some(Decision::Bind { waiting, node }) => {
                let bound = self.writer.bind(&waiting.pod, &node);
                self.bindings.push(bound.map(|bound| (waiting, node, bound)).boxed());
            }
            Some(Decision::Select { pod, node, claims }) => {
                if !self.writer.select(&pod, &node, &claims).await {
                    self.cluster.selection_failed(&pod.key);
                }
            }
            Some(Decision::Tell { failure, unnominated }) => {
                self.events.record(told::failed(&failure));
                self.writer.fail(&failure, None).await;
                if unnominated {
                    self.writer.unnominate(&[failure.pod]).await;
                }
            }
            Some(Decision::Preempt { failure, node, victims, outdone }) => {
                self.events.record(told::failed(&failure));
                // First where: should we end before the others go, the same node is chosen again.
                self.writer.fail(&failure, Some(&node)).await;
                self.writer.unnominate(&outdone).await;
                if !self.writer.preempt(&victims, &failure.pod, &node, &mut self.events).await {
                    self.cluster.preemption_failed(&failure.pod.key);
                }
            }
            Some(Decision::Nothing) | None => {}
        }
    }
}

/// The known objects of a kind.
fn known_keys(cluster: &Cluster, kind: Kind) -> Box<dyn Iterator<Item = PodKey> + Send + '_> {
    let picture = &cluster.picture;
    let named = |name: &String| (String::new(), name.clone());
    match kind {
        Kind::Pod => Box::new(cluster.pod_keys().cloned()),
        Kind::Node => Box::new(picture.nodes.keys().map(named)),
        Kind::Claim => Box::new(picture.volumes.claim_keys().cloned()),
        Kind::Volume => Box::new(picture.volumes.volume_names().map(named)),
        Kind::Class => Box::new(picture.volumes.class_names().map(named)),
        Kind::Namespace => Box::new(picture.namespaces.keys().map(named)),
        Kind::Budget => Box::new(picture.budgets.keys().cloned()),
        Kind::Driver => Box::new(picture.volumes.capacities.driver_names().map(named)),
        Kind::CsiNode => Box::new(picture.volumes.limits.node_names().map(named)),
        Kind::Capacity => Box::new(picture.volumes.capacities.keys().cloned()),
        Kind::Attachment => Box::new(picture.volumes.limits.attachment_names().map(named)),
    }
}

fn key(object: &Object) -> PodKey {
    match object {
        Object::Pod(pod) => pod.key.clone(),
        Object::Other(object) => (meta::text(object, "namespace").to_owned(), meta::text(object, "name").to_owned()),
    }
}

fn labels(object: &Value) -> Value {
    present(&object["metadata"], "labels").cloned().unwrap_or_else(|| json!({}))
}
