//! All pods and namespaces that NetworkPolicies may select: one watch of each for any number of namespaces, and none
//! while no policy needs it.

mod known;

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::pace::in_slices;
use apimachinery::panics;
use apimachinery::well_known::PAGE;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::JoinHandle;

use known::Lists;
pub(super) use known::{Change, Known};

/// Maximum number of changes that wait for a receiver; beyond it the receiver reads everything again.
const CHANGES: usize = 1024;

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

    /// Changes what is known, and tells followers.
    fn change(&self, change: impl FnOnce(&mut Known) -> Option<Change>) {
        let change = change(&mut self.state().known);
        if let Some(change) = change {
            // Without a follower the channel has no receiver.
            let _ = self.changes.send(change);
        }
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
        self.shared.state().known.is_ready()
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
    let mut lists = Lists::default();
    loop {
        tokio::select! {
            Some(event) = namespaces.next() => shared.change(|known| known.take_namespace(event, &mut lists)),
            Some(event) = pods.next() => shared.change(|known| known.take_pod(event, &mut lists)),
            else => return,
        }
    }
}
