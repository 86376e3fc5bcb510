//! Subscribers of writes, notified at the moment of the write. Each watcher has a bounded queue; one that does not
//! drain it is cut off, and its client resumes from the history. An observer has no queue: it runs during the write, so
//! it misses nothing and never lags.

use std::any::Any;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{Change, ChangeKind, Store, Stored};

/// Changes that may wait for one watcher.
const QUEUE: usize = 1024;

/// A change as a watcher sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Added,
    Modified,
    Deleted,
    /// It is no longer selected: sent as a deletion of the previous state.
    Left,
}

/// A change for a watcher.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub rev: u64,
    pub view: View,
    /// Its bytes only: parsed, what waits in one queue would be twenty megabytes.
    pub object: Arc<Stored>,
    /// Released after the watcher has taken it.
    pub _held: Option<Held>,
}

/// A share of the memory for waiting changes.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// Takes a share of memory for this many bytes; `None` disconnects the watcher.
pub(crate) type Charge = Box<dyn Fn(usize) -> Option<Held> + Send>;

/// Selection of a watcher.
pub(crate) struct Interest {
    /// Only objects in this namespace.
    pub namespace: Option<String>,
    pub filter: Filter,
    pub charge: Charge,
}

/// Memory of a queued change in addition to the object, in bytes.
const TOLD_COST: usize = 256;

/// Decides during the write whether and how a watcher sees it.
pub(crate) type Filter = Box<dyn Fn(&Change) -> Option<View> + Send>;

/// The receiving end of a watcher; dropping it ends the subscription.
pub(crate) type Subscription = Receiver<Told>;

/// Called with each change of every storage, except renewals of Leases. It runs within the write: it may only take
/// notes.
pub(crate) type Observer = Box<dyn Fn(&str, &Change) + Send>;

struct Subscriber {
    filter: Filter,
    charge: Charge,
    queue: Sender<Told>,
}

#[derive(Default)]
pub(super) struct Subscribers {
    by_storage: HashMap<String, HashMap<Option<String>, Vec<Subscriber>>>,
    observers: Vec<Observer>,
}

impl Subscribers {
    pub(super) fn send(&mut self, storage: &str, change: &Change, only_renews: bool) {
        if !only_renews {
            self.observers.iter().for_each(|observer| observer(storage, change));
        }
        let Some(namespaces) = self.by_storage.get_mut(storage) else { return };
        let (now, left) = (OnceCell::new(), OnceCell::new());
        let mut tell = |subscriber: &mut Subscriber| {
            if subscriber.queue.is_closed() {
                return false;
            }
            let Some(view) = (subscriber.filter)(change) else { return true };
            let same = if view == View::Left { &left } else { &now };
            let told: &Told = same.get_or_init(|| change.told(view));
            let Some(held) = (subscriber.charge)(told.object.body.len() + TOLD_COST) else { return false };
            subscriber.queue.try_send(Told { view, _held: Some(held), ..told.clone() }).is_ok()
        };
        for namespace in [None, Some(change.object.key.namespace.clone())] {
            let Some(list) = namespaces.get_mut(&namespace) else { continue };
            list.retain_mut(&mut tell);
            if list.is_empty() {
                namespaces.remove(&namespace);
            }
        }
        if namespaces.is_empty() {
            self.by_storage.remove(storage);
        }
    }
}

impl Change {
    /// The present state; `None` after a deletion.
    pub(crate) fn now(&self) -> Option<&Stored> {
        (self.kind != ChangeKind::Deleted).then(|| self.object.as_ref())
    }

    /// The new state, parsed.
    pub(crate) fn after(&self) -> Option<&Value> {
        self.now().map(Stored::value)
    }

    /// The event for a watcher with this view.
    pub(crate) fn told(&self, view: View) -> Told {
        let left = self.before.as_ref().filter(|_| view == View::Left).map(|before| before.at(self.rev));
        Told { rev: self.rev, view, object: left.as_ref().unwrap_or(&self.object).unparsed(), _held: None }
    }
}

impl Store {
    /// Subscribes to the changes of one storage from now on.
    pub(crate) fn subscribe(&mut self, storage: &str, interest: Interest) -> Subscription {
        let Interest { namespace, filter, charge } = interest;
        let (queue, receiver) = channel(QUEUE);
        let list = self.subscribers.by_storage.entry(storage.to_owned()).or_default().entry(namespace).or_default();
        list.retain(|subscriber| !subscriber.queue.is_closed());
        list.push(Subscriber { filter, charge, queue });
        receiver
    }

    /// Calls this for all later changes of all storages, as long as the storage is open.
    pub(crate) fn observe(&mut self, observer: Observer) {
        self.subscribers.observers.push(observer);
    }

    /// Ends every watch of one storage, as the API server does when a custom resource changes.
    pub(crate) fn disconnect(&mut self, storage: &str) {
        self.subscribers.by_storage.remove(storage);
    }
}
