//! What is known of all rules, as of which reading, and who is told of it. Knows no API.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::index::Index;
use crate::bridge::devices::known::View;

#[derive(Default)]
pub(super) struct Known {
    pub(super) index: Index,
    /// Of the newest complete reading.
    pub(super) round: Option<u64>,
    nodes: HashMap<Box<str>, watch::Sender<View>>,
}

pub(super) fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    /// The view of a node, from now on.
    pub(super) fn subscribe(&mut self, node: &str) -> watch::Receiver<View> {
        if let Some(sender) = self.nodes.get(node) {
            return sender.subscribe();
        }
        let view = self.round.map(|round| View::Of { round, group: Arc::new(self.index.group(node)) });
        let (sender, receiver) = watch::channel(view.unwrap_or_default());
        self.nodes.insert(node.into(), sender);
        receiver
    }

    /// All has been read in this round, and what has changed since is here, too.
    pub(super) fn tell(&mut self, round: u64) {
        let changed = self.index.settle();
        let newer = self.round.replace(round) != Some(round);
        self.nodes.retain(|_, sender| sender.receiver_count() > 0);
        for (node, sender) in self.nodes.iter().filter(|(node, _)| newer || changed.contains(*node)) {
            sender.send_replace(View::Of { round, group: Arc::new(self.index.group(node)) });
        }
    }

    /// The API has no rules, or the bridge may not read any.
    pub(super) fn none(&mut self, round: u64) {
        self.index.list_rules(BTreeMap::new());
        self.index.list_endpoints(BTreeMap::new());
        self.tell(round);
    }
}
