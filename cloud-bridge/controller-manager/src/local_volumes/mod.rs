//! The provisioner `sampan.dev/local`: its StorageClass, and the deletion of its volumes. A volume without a claim is
//! deleted on its node before its object is. The deletion waits for an offline node; the data of a deleted node is lost
//! with it. The workload controllers create volumes for claims (`provision`).

mod volume;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, ObjectReference, PersistentVolume};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::events::{Recorder, event};
use crate::watch;
use apimachinery::meta;
use apimachinery::pace::in_slices;
use apimachinery::pace::sleep_until;
use volume::{Data, Released, released};
pub(crate) use volume::{Order, PROVISIONER, name, volume};

/// The class that claims without one get, unless another is the default.
const CLASS: &str = "sampan-local";
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// A node that cannot be asked is asked again after this, doubled up to the second figure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Maximum number of volumes that are deleted at a time.
const AT_ONCE: usize = 8;

/// The way to the nodes.
pub trait Nodes: Send + Sync {
    /// Deletes a volume's folder with all its content on a node; no error if it is missing.
    ///
    /// # Errors
    /// The deletion is not confirmed; the text has the reason.
    fn delete_volume<'a>(&'a self, node: &'a str, volume: &'a str) -> BoxFuture<'a, Result<(), String>>;
}

/// Runs until dropped.
pub async fn run(client: Client, nodes: Arc<dyn Nodes>) {
    let class = async {
        while let Err(error) = make_class(&client).await {
            log::warn!("storage class {CLASS}: {error}; next attempt in {} s", AGAIN.1.as_secs());
            tokio::time::sleep(AGAIN.1).await;
        }
    };
    tokio::join!(class, reclaim_all(client.clone(), nodes));
}

/// Reclaims volumes until dropped.
async fn reclaim_all(client: Client, nodes: Arc<dyn Nodes>) {
    let kind = ApiResource::erase::<PersistentVolume>(&());
    let mut volumes = pin!(in_slices(watch::values(&client, &kind)));
    let mut reclaimer = Reclaimer::new(client, nodes);
    loop {
        let due = reclaimer.due();
        tokio::select! {
            Some(event) = volumes.next() => match event {
                Ok(event) => reclaimer.watched(event),
                Err(error) => log::warn!("watching volumes: {error}"),
            },
            Some((name, result)) = reclaimer.running.next(), if !reclaimer.running.is_empty() => reclaimer.ended(&name, result),
            () = sleep_until(due) => reclaimer.begin(),
            () = reclaimer.events.write_next(), if !reclaimer.events.is_empty() => {}
        }
    }
}

/// Creates the class, once; another default class stays the default.
async fn make_class(client: &Client) -> kube::Result<()> {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let there = classes.list(&ListParams::default()).await?;
    let is_default = |class: &StorageClass| class.annotations().get(DEFAULT).is_some_and(|value| value == "true");
    if there.iter().any(|class| class.name_any() == CLASS) {
        return Ok(());
    }
    let default = !there.iter().any(is_default);
    let class = StorageClass {
        metadata: kube::api::ObjectMeta {
            name: Some(CLASS.to_owned()),
            annotations: Some(BTreeMap::from([(DEFAULT.to_owned(), default.to_string())])),
            ..Default::default()
        },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        ..StorageClass::default()
    };
    classes.create(&PostParams::default(), &class).await.map(drop)
}

struct Reclaimer {
    client: Client,
    nodes: Arc<dyn Nodes>,
    events: Recorder,
    waiting: BTreeMap<String, Waiting>,
    running: FuturesUnordered<BoxFuture<'static, (String, Result<(), String>)>>,
}

/// A volume that is to go.
struct Waiting {
    volume: Released,
    /// When it is tried next; `None` while it is.
    due: Option<Instant>,
    pause: Duration,
}

impl Reclaimer {
    fn new(client: Client, nodes: Arc<dyn Nodes>) -> Self {
        let events = Recorder::new(client.clone());
        Self { client, nodes, events, waiting: BTreeMap::new(), running: FuturesUnordered::new() }
    }

    fn watched(&mut self, event: Event<Value>) {
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let name = meta::text(&object, "name").to_owned();
                match released(&object) {
                    None => drop(self.waiting.remove(&name)),
                    Some(volume) => match self.waiting.get_mut(&name) {
                        Some(known) => known.volume = volume,
                        None => {
                            let waiting = Waiting { volume, due: Some(Instant::now()), pause: AGAIN.0 };
                            self.waiting.insert(name, waiting);
                        }
                    },
                }
            }
            Event::Delete(object) => drop(self.waiting.remove(meta::text(&object, "name"))),
            // A deletion without an event is found when the volume is processed.
            Event::Init | Event::InitDone => {}
        }
    }

    fn due(&self) -> Option<Instant> {
        let free = self.running.len() < AT_ONCE;
        self.waiting.values().filter(|_| free).filter_map(|waiting| waiting.due).min()
    }

    fn begin(&mut self) {
        let now = Instant::now();
        for (name, waiting) in &mut self.waiting {
            if self.running.len() >= AT_ONCE {
                return;
            }
            if waiting.due.take_if(|due| *due <= now).is_some() {
                let (name, volume) = (name.clone(), waiting.volume.clone());
                let work = reclaim(self.client.clone(), Arc::clone(&self.nodes), volume);
                self.running.push(work.map(move |result| (name, result)).boxed());
            }
        }
    }

    fn ended(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => drop(self.waiting.remove(name)),
            Err(why) => {
                let Some(waiting) = self.waiting.get_mut(name) else { return };
                waiting.due = Instant::now().checked_add(waiting.pause);
                waiting.pause = (waiting.pause * 2).min(AGAIN.1);
                self.events.record(failed(&waiting.volume, why));
            }
        }
    }
}

/// The event, as the volume controller of a cluster emits it.
fn failed(volume: &Released, why: String) -> event::Event {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolume".to_owned()),
        name: Some(volume.name.clone()),
        uid: Some(volume.uid.clone()),
        ..ObjectReference::default()
    };
    let (kind, reason, component) = ("Warning", "VolumeFailedDelete", PROVISIONER);
    event::Event { about, kind, reason, message: why, component, action: None }
}

/// Deletes the data, then the object. May be done again from the start at any point.
async fn reclaim(client: Client, nodes: Arc<dyn Nodes>, volume: Released) -> Result<(), String> {
    if let Some(Data { node, folder }) = &volume.data
        && let Err(why) = nodes.delete_volume(node, folder).await
        && has_node(&client, node).await?
    {
        return Err(why);
    }
    let volumes: Api<PersistentVolume> = Api::all(client);
    let own = json!({"metadata": {"uid": volume.uid, "finalizers": volume.finalizers}});
    let unless_gone = |error: kube::Error| match &error {
        // A successor of its name has another uid.
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(()),
        _ => Err(error.to_string()),
    };
    if let Err(error) = volumes.patch(&volume.name, &PatchParams::default(), &Patch::Merge(own)).await {
        return unless_gone(error);
    }
    let same = Preconditions { uid: Some(volume.uid), resource_version: None };
    volumes.delete(&volume.name, &DeleteParams::default().preconditions(same)).await.map(drop).or_else(unless_gone)
}

async fn has_node(client: &Client, node: &str) -> Result<bool, String> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.get_metadata_opt(node).await.map(|found| found.is_some()).map_err(|error| error.to_string())
}
