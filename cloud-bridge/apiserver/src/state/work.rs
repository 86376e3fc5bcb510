//! What the garbage collector has still to look at. Written to by whatever changes an object, read by the collector.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use apimachinery::key::ObjectKey;

/// Something to look at. The queue is a set, so its size is bounded by the objects there are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// An owner that is gone, by uid.
    Gone(String),
    /// An object that named such an owner: each in its own turn, an owner may have thousands.
    Left(String, ObjectKey),
    /// An object with new owner references.
    Owned(String, ObjectKey),
    /// A deleting object with a finalizer of the collector, or whose dependent went.
    Finalize(String, ObjectKey),
    /// A namespace that is Terminating.
    Namespace(String),
    /// A custom resource definition by the storage key of its objects.
    Definition(String),
}

#[derive(Default)]
struct Queue {
    items: Mutex<BTreeSet<Work>>,
    wake: Notify,
}

/// Where writes leave work.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Queue>);

/// The collector's end.
pub(crate) struct Receiver(Arc<Queue>);

/// A new queue.
pub(crate) fn channel() -> (Handle, Receiver) {
    let queue = Arc::new(Queue::default());
    (Handle(Arc::clone(&queue)), Receiver(queue))
}

impl Handle {
    /// Adds work and wakes the collector.
    pub(crate) fn add(&self, work: Work) {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner).insert(work);
        self.0.wake.notify_one();
    }
}

impl Receiver {
    /// The next piece of work, as soon as there is any.
    pub(crate) async fn next(&self) -> Work {
        loop {
            if let Some(work) = self.0.items.lock().unwrap_or_else(PoisonError::into_inner).pop_first() {
                return work;
            }
            self.0.wake.notified().await;
        }
    }
}
