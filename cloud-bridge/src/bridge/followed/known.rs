//! Known objects of both kinds, the round of their reading, and the subscribers. Knows no API.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::{Index, News};
use crate::bridge::world::{Group, Round};

/// What is known for one node.
#[derive(Clone, Default)]
pub(in crate::bridge) enum View {
    #[default]
    Nothing,
    /// Read in this round of readings or later.
    Of { round: Round, group: Arc<Group> },
}

#[derive(Default)]
pub(in crate::bridge) struct Known<I> {
    pub(in crate::bridge) index: I,
    /// Round of the newest complete reading.
    pub(in crate::bridge) round: Option<Round>,
    nodes: HashMap<Box<str>, watch::Sender<View>>,
}

pub(in crate::bridge) fn lock<I>(known: &Mutex<Known<I>>) -> MutexGuard<'_, Known<I>> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<I: Index> Known<I> {
    /// The view of a node, now and after each change.
    pub(in crate::bridge) fn subscribe(&mut self, node: &str) -> watch::Receiver<View> {
        if let Some(sender) = self.nodes.get(node) {
            return sender.subscribe();
        }
        let view = self.round.map(|round| View::Of { round, group: Arc::new(self.index.group(node)) });
        let (sender, receiver) = watch::channel(view.unwrap_or_default());
        self.nodes.insert(node.into(), sender);
        receiver
    }

    /// Tells subscribers: everything was read in this round, and later changes are included.
    pub(super) fn tell(&mut self, round: Round) {
        let changed = self.index.take_changed();
        let newer = self.round.replace(round) != Some(round);
        self.nodes.retain(|_, sender| sender.receiver_count() > 0);
        for (node, sender) in self.nodes.iter().filter(|(node, _)| newer || changed.contains(*node)) {
            sender.send_replace(View::Of { round, group: Arc::new(self.index.group(node)) });
        }
    }

    /// Tells subscribers that they have no objects: the API serves none, or the bridge may not read them.
    pub(super) fn none(&mut self, round: Round) {
        self.index.take_one(News::All(BTreeMap::new()));
        self.index.take_other(News::All(BTreeMap::new()));
        self.tell(round);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bridge::devices::{Device, Index};

    fn device(known: &mut Known<Index>, uid: &str, node: &str) {
        let object = json!({"metadata": {"namespace": "ns", "name": "d", "uid": uid}, "spec": {"nodeName": node}});
        known.index.set_device(("ns".into(), "d".into()), Device::read(object));
    }

    /// Round, and number of objects.
    fn seen(view: &mut watch::Receiver<View>) -> Option<(u64, usize)> {
        match &*view.borrow_and_update() {
            View::Nothing => None,
            View::Of { round, group } => Some((round.0, group.len())),
        }
    }

    #[test]
    fn each_node_hears_of_what_changes_for_it_and_of_each_reading() {
        let mut known = Known::<Index>::default();
        let (mut a, mut b) = (known.subscribe("a"), known.subscribe("b"));
        assert_eq!(seen(&mut a), None, "nothing is not none");
        device(&mut known, "1", "a");
        known.tell(Round(1));
        assert_eq!((seen(&mut a), seen(&mut b)), (Some((1, 1)), Some((1, 0))));
        device(&mut known, "2", "a");
        known.tell(Round(1));
        assert!(a.has_changed().unwrap() && !b.has_changed().unwrap());
        known.tell(Round(2));
        assert_eq!((seen(&mut a), seen(&mut b)), (Some((2, 1)), Some((2, 0))));
        let mut late = known.subscribe("a");
        assert_eq!(seen(&mut late), Some((2, 1)));
        known.none(Round(3));
        assert_eq!(seen(&mut late), Some((3, 0)));
    }

    #[test]
    fn who_listens_no_more_is_forgotten() {
        let mut known = Known::<Index>::default();
        let one = known.subscribe("a");
        drop(known.subscribe("b"));
        known.tell(Round(1));
        assert_eq!(known.nodes.len(), 1);
        drop(one);
        known.tell(Round(1));
        assert!(known.nodes.is_empty());
    }
}
