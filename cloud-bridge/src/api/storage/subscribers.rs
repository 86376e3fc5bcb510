//! Who is told of a write, at the moment of the write. Each watcher has a bounded queue; one that does not
//! drain it is cut off and its client resumes from the history.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{Change, Store};

/// Changes that may wait for one watcher.
const QUEUE: usize = 1024;

/// Decides at the write whether a watcher is woken at all.
pub(super) type Filter = Box<dyn Fn(&Change) -> bool + Send>;

/// The receiving end of a watcher; dropping it ends the subscription.
pub(crate) type Subscription = Receiver<Arc<Change>>;

struct Subscriber {
    filter: Filter,
    queue: Sender<Arc<Change>>,
}

#[derive(Default)]
pub(super) struct Subscribers {
    by_storage: HashMap<String, Vec<Subscriber>>,
}

impl Subscribers {
    pub(super) fn send(&mut self, storage: &str, change: Change) {
        let Some(list) = self.by_storage.get_mut(storage) else { return };
        let change = Arc::new(change);
        list.retain(|subscriber| {
            if subscriber.queue.is_closed() {
                return false;
            }
            !(subscriber.filter)(&change) || subscriber.queue.try_send(Arc::clone(&change)).is_ok()
        });
        if list.is_empty() {
            self.by_storage.remove(storage);
        }
    }
}

impl Store {
    /// Subscribes to the changes of one storage from now on.
    pub(crate) fn subscribe(&mut self, storage: &str, filter: Filter) -> Subscription {
        let (queue, receiver) = channel(QUEUE);
        let list = self.subscribers.by_storage.entry(storage.to_owned()).or_default();
        list.retain(|subscriber| !subscriber.queue.is_closed());
        list.push(Subscriber { filter, queue });
        receiver
    }

    /// Ends every watch of one storage, as the API server does when a custom resource changes.
    pub(crate) fn disconnect(&mut self, storage: &str) {
        self.subscribers.by_storage.remove(storage);
    }
}
