//! All pods and namespaces that NetworkPolicies may select: one watch of each for any number of namespaces, and none
//! while no policy needs it.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::pace::in_slices;
use apimachinery::panics;
use apimachinery::well_known::PAGE;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;

use crate::bridge::name::{Name, name_of};
use crate::bridge::peer_pod::PeerPod;

/// Maximum number of changes that wait for a receiver; beyond it the receiver reads everything again.
const CHANGES: usize = 1024;

/// Pods and namespaces that are known.
#[derive(Default)]
pub(super) struct Known {
    /// Namespaces with their labels.
    pub(super) namespaces: BTreeMap<String, Value>,
    pub(super) pods: BTreeMap<Name, PeerPod>,
    /// Whether both have been read, or the API refuses them; then peers are missing, and nodes admit less.
    answered: [bool; 2],
}

#[derive(Clone)]
pub(super) enum Change {
    Pod(Name),
    /// All namespaces, or more changes than can be listed.
    All,
}

/// Client of the shared watch of pods and namespaces.
#[derive(Clone)]
pub(super) struct Peers {
    client: Client,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changes: broadcast::Sender<Change>,
}

#[derive(Default)]
struct State {
    followers: usize,
    task: Option<JoinHandle<()>>,
    known: Known,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, change: Change) {
        // Without a follower the channel has no receiver.
        let _ = self.changes.send(change);
    }
}

impl Peers {
    pub(super) fn new(client: Client) -> Self {
        let shared = Shared { state: Mutex::default(), changes: broadcast::channel(CHANGES).0 };
        Self { client, shared: Arc::new(shared) }
    }

    /// Starts the watches, if they are not running.
    pub(super) fn follow(&self) -> Following {
        let following = Following { shared: Arc::clone(&self.shared), changes: self.shared.changes.subscribe() };
        let mut state = self.shared.state();
        state.followers += 1;
        if state.task.is_none() {
            let (client, shared) = (self.client.clone(), Arc::clone(&self.shared));
            let follow = move || watch(client.clone(), Arc::clone(&shared));
            state.task =
                Some(tokio::spawn(async move { panics::keep("the watch of peers of policies", follow).await }));
        }
        following
    }
}

/// Keeps the watch running until it is dropped.
pub(super) struct Following {
    shared: Arc<Shared>,
    changes: broadcast::Receiver<Change>,
}

impl Following {
    pub(super) fn is_ready(&self) -> bool {
        self.shared.state().known.answered == [true; 2]
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.shared.state().known)
    }

    pub(super) async fn changed(&mut self) -> Change {
        match self.changes.recv().await {
            Ok(change) => change,
            Err(RecvError::Lagged(_)) => Change::All,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.followers = state.followers.saturating_sub(1);
        if state.followers == 0 {
            if let Some(task) = state.task.take() {
                task.abort();
            }
            state.known = Known::default();
        }
    }
}

async fn watch(client: Client, shared: Arc<Shared>) {
    let all = |resource: &ApiResource| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
        in_slices(watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff())
    };
    let mut namespaces = pin!(all(&ApiResource::erase::<Namespace>(&())));
    let mut pods = pin!(all(&ApiResource::erase::<Pod>(&())));
    let mut lists = (None, None);
    loop {
        tokio::select! {
            Some(event) = namespaces.next() => take_namespace(&shared, event, &mut lists.0),
            Some(event) = pods.next() => take_pod(&shared, event, &mut lists.1),
            else => return,
        }
    }
}

type Seen = Result<Event<DynamicObject>, watcher::Error>;

fn take_namespace(shared: &Shared, event: Seen, listing: &mut Option<BTreeMap<String, Value>>) {
    let entry =
        |namespace: DynamicObject| (namespace.metadata.name.unwrap_or_default(), json!(namespace.metadata.labels));
    let mut state = shared.state();
    let known = &mut state.known;
    match event {
        Ok(Event::Init) => return *listing = Some(BTreeMap::new()),
        Ok(Event::InitApply(namespace)) => return listing.get_or_insert_default().extend([entry(namespace)]),
        Ok(Event::InitDone) => {
            known.namespaces = listing.take().unwrap_or_default();
            known.answered[0] = true;
        }
        Ok(Event::Apply(namespace)) => {
            let (name, labels) = entry(namespace);
            if known.namespaces.get(&name) == Some(&labels) {
                return;
            }
            known.namespaces.insert(name, labels);
        }
        Ok(Event::Delete(namespace)) => drop(known.namespaces.remove(&entry(namespace).0)),
        Err(error) => {
            log::warn!("watching the namespaces that policies mean: {error}");
            if std::mem::replace(&mut known.answered[0], true) {
                return;
            }
        }
    }
    drop(state);
    shared.tell(Change::All);
}

fn take_pod(shared: &Shared, event: Seen, listing: &mut Option<BTreeMap<Name, PeerPod>>) {
    let name = |pod: &DynamicObject| name_of(&pod.metadata);
    let mut state = shared.state();
    let known = &mut state.known;
    let change = match event {
        Ok(Event::Init) => return *listing = Some(BTreeMap::new()),
        Ok(Event::InitApply(pod)) => {
            return listing.get_or_insert_default().extend(PeerPod::of(&pod).map(|peer| (name(&pod), peer)));
        }
        Ok(Event::InitDone) => {
            known.pods = listing.take().unwrap_or_default();
            known.answered[1] = true;
            Change::All
        }
        Ok(Event::Apply(pod)) => {
            let (name, peer) = (name(&pod), PeerPod::of(&pod));
            if known.pods.get(&name) == peer.as_ref() {
                return;
            }
            match peer {
                Some(peer) => drop(known.pods.insert(name.clone(), peer)),
                None => drop(known.pods.remove(&name)),
            }
            Change::Pod(name)
        }
        Ok(Event::Delete(pod)) => {
            known.pods.remove(&name(&pod));
            Change::Pod(name(&pod))
        }
        Err(error) => {
            log::warn!("watching the pods that policies mean: {error}");
            if std::mem::replace(&mut known.answered[1], true) {
                return;
            }
            Change::All
        }
    };
    drop(state);
    shared.tell(change);
}
