//! What the watch of an object or a group finds, on its way to the loop.

use edge_protocol::message::{Object, ObjectKey};
use kube::runtime::watcher;
use tokio::sync::mpsc;

use crate::bridge::world::Group;

/// A change of one object or group.
pub(super) struct News {
    pub(super) key: ObjectKey,
    /// Number of the watch that sent it: changes of an ended watch are ignored.
    pub(super) watch: u64,
    pub(super) what: What,
}

pub(super) enum What {
    Present(Object),
    /// All objects of a group.
    Group(Group),
    Absent,
    /// The answer is unknown.
    Failed,
    /// The API refuses the object to the node in whose name it was requested.
    Refused,
}

/// Classifies an error for the object.
pub(super) fn failure(error: &kube::Error) -> What {
    match error {
        kube::Error::Api(status) if status.is_forbidden() => What::Refused,
        _ => What::Failed,
    }
}

/// Same as [`failure`], for a watch.
pub(super) fn watch_failure(error: &watcher::Error) -> What {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) => failure(error),
        _ => What::Failed,
    }
}

/// The object or group of one watch, and the receiver of its changes.
#[derive(Clone)]
pub(super) struct Subscription {
    pub(super) key: ObjectKey,
    /// Number of the watch.
    pub(super) watch: u64,
    pub(super) news: mpsc::Sender<News>,
}

impl Subscription {
    /// Sends a change; returns `None` once the receiver is gone.
    pub(super) async fn tell(&self, what: What) -> Option<()> {
        self.news.send(News { key: self.key.clone(), watch: self.watch, what }).await.ok()
    }
}
