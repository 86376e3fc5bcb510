//! VolumeAttachments, for nodes that mount volumes of CSI drivers: such a node gets the status of its attachment with
//! the claim. A node may read its own by name, but not watch them (node authorizer), so the bridge watches all in its
//! own name, and only while a node needs one.
//!
//! | module | owns |
//! |---|---|
//! | `known` | what was read, within a bounded room |
//! | `slim` | an attachment as the watch delivers it |
//! | `watch` | the watch, while a claim needs it |

mod known;
mod slim;
mod watch;

use std::sync::Arc;

use kube::Client;

use super::followed::present::Present;
use super::world::Round;
pub(super) use watch::{AttachmentWatch, Changes};

pub(super) struct Attachments {
    own: Client,
    /// Whether a node mounts volumes of CSI drivers.
    wanted: tokio::sync::watch::Sender<bool>,
    present: Present<AttachmentWatch>,
}

impl Attachments {
    pub(super) fn new(own: Client) -> Self {
        Self { own, wanted: tokio::sync::watch::Sender::new(false), present: Present::default() }
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

    /// The status of the attachment of a volume to a node, as JSON text; `None` before it is attached, and without a
    /// watch.
    pub(super) fn status(&self, node: &str, driver: &str, handle: &str) -> Option<String> {
        self.present.get()?.status(node, driver, handle)
    }
}
