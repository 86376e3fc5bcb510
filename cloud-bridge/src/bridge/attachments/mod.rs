//! VolumeAttachments, for nodes that mount volumes of CSI drivers: such a node gets the status of its attachment with
//! the claim. A node may read its own by name, but not watch them (node authorizer), so the bridge watches all in its
//! own name, and only while a node needs one.
//!
//! | module | owns |
//! |---|---|
//! | `known` | what was read, within a bounded room |
//! | `listed` | the volumes that Nodes list as attached and in use |
//! | `slim` | an attachment as the watch delivers it |
//! | `watch` | the watch, while a claim needs it |

mod known;
mod listed;
mod slim;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use serde_json::Value;

use super::followed::present::Present;
use super::reports::UsesOfVolumes;
use super::slim::SlimNode;
use super::world::Round;
use known::{Hash, hash_of};
use listed::{Listed, number_of};
pub(super) use watch::{AttachmentWatch, Changes};

pub(super) struct Attachments {
    own: Client,
    /// Whether a node mounts volumes of CSI drivers.
    wanted: tokio::sync::watch::Sender<bool>,
    present: Present<AttachmentWatch>,
    listed: Mutex<Listed>,
    /// Whether all Nodes have been read.
    nodes_read: tokio::sync::watch::Sender<bool>,
}

impl Attachments {
    pub(super) fn new(own: Client) -> Self {
        Self {
            own,
            wanted: tokio::sync::watch::Sender::new(false),
            present: Present::default(),
            listed: Mutex::default(),
            nodes_read: tokio::sync::watch::Sender::new(false),
        }
    }

    pub(super) fn set_wanted(&self, wanted: bool) {
        self.wanted.send_if_modified(|old| std::mem::replace(old, wanted) != wanted);
    }

    pub(super) fn wanted(&self) -> tokio::sync::watch::Receiver<bool> {
        self.wanted.subscribe()
    }

    /// The running watch, or a new one, which reads everything in this round or later.
    pub(super) fn watch(&self, round: Round) -> Arc<AttachmentWatch> {
        self.present.get_or(round, || AttachmentWatch::begin(self.own.clone(), round))
    }

    /// Waits until all Nodes have been read: before, a volume that is attached would look as if it were not.
    pub(super) async fn nodes_read(&self) {
        // The sender is there as long as this.
        let _ = self.nodes_read.subscribe().wait_for(|read| *read).await;
    }

    /// The status of the attachment of a volume to a node, as JSON text; `None` before the volume is attached and the Node
    /// lists it, and without a watch.
    pub(super) fn status(&self, node: &str, driver: &str, handle: &str) -> Option<String> {
        let hash = hash_of(node, driver, handle);
        let listed = self.listed().has(node, &hash);
        self.present.get()?.status(&hash, listed)
    }

    /// A Node as the watch delivers it.
    pub(super) fn saw(&self, node: &SlimNode) {
        let changed = self.listed().saw(node.name(), node.version(), node.volumes_in_use(), node.volumes_attached());
        self.tell(&changed);
    }

    /// Forgets a Node.
    pub(super) fn gone(&self, node: &str) {
        let changed = self.listed().gone(node);
        self.tell(&changed);
    }

    /// All Nodes have been read: forgets others.
    pub(super) fn retain(&self, is: impl Fn(&str) -> bool) {
        let changed = self.listed().retain(is);
        self.tell(&changed);
        self.nodes_read.send_replace(true);
    }

    fn listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, changed: &[Hash]) {
        if !changed.is_empty()
            && let Some(watch) = self.present.get()
        {
            watch.tell(changed);
        }
    }
}

impl UsesOfVolumes for Attachments {
    fn reported(&self, node: &str, in_use: &Value) {
        let changed = self.listed().reported(node, in_use);
        self.tell(&changed);
    }

    fn written(&self, node: &str, version: &str) {
        let changed = self.listed().written(node, number_of(version));
        self.tell(&changed);
    }
}
