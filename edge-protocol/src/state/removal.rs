//! Removed objects and their tombstones.

use super::{LogItem, NodeState, Tombstone};
use crate::message::{ObjectKey, ObjectRef};
use std::sync::Arc;

impl NodeState {
    /// Keeps `count` tombstones instead of [`MAX_TOMBSTONES`](super::MAX_TOMBSTONES).
    #[must_use]
    pub fn keep_tombstones(mut self, count: usize) -> Self {
        self.max_tombstones = count;
        self
    }

    /// The object with this uid was deleted in the API. Also right for an object that was never entered (an
    /// [`Unlisted`](crate::bridge::BridgeEvent::Unlisted) object found gone). The uid can never be set again. Returns
    /// false if this was already known; it is sent again anyway, because a node that asks has missed it.
    pub fn remove(&mut self, key: &ObjectKey, uid: &str) -> bool {
        self.bury(ObjectRef { key: key.clone(), uid: uid.to_owned() }, true)
    }

    /// The object still exists, but this node has no use for it any more (a Secret whose last pod has left).
    /// It may be [set](Self::set) again later.
    pub fn withdraw(&mut self, key: &ObjectKey, uid: &str) -> bool {
        self.bury(ObjectRef { key: key.clone(), uid: uid.to_owned() }, false)
    }

    pub(super) fn bury(&mut self, object: ObjectRef, deleted: bool) -> bool {
        let known = self.tombstones.remove(&object);
        if let Some(known) = &known {
            self.log.remove(&known.seq);
        }
        let deleted = deleted || known.as_ref().is_some_and(|k| k.deleted);
        if self.objects.get(&object.key).is_some_and(|e| e.uid == object.uid)
            && let Some(old) = self.objects.remove(&object.key)
        {
            self.log.remove(&old.seq);
        }
        let object = Arc::new(object);
        let seq = self.append(LogItem::Delete(Arc::clone(&object)));
        self.tombstones.insert(object, Tombstone { seq, deleted });
        while self.tombstones.len() > self.max_tombstones {
            let oldest = self.log.iter().find_map(|(seq, item)| match item {
                LogItem::Delete(object) => Some((*seq, Arc::clone(object))),
                LogItem::Put(_) => None,
            });
            let Some((seq, object)) = oldest else { break };
            self.log.remove(&seq);
            self.tombstones.remove(&object);
            self.floor = seq;
        }
        known.is_none()
    }
}
