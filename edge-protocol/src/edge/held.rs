//! Objects that the node holds, and the state of a full sync: which bodies are needed, which objects are absent or in
//! doubt.

use crate::SessionError;
use crate::message::{ObjectDigest, ObjectKey, ToCloud};
use crate::state::{MAX_OBJECTS, MAX_TOMBSTONES};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Keys or digests in one frame: about 40 KB.
const LIST_CHUNK: usize = 256;

/// Objects in the caller's store, as the session has handed them out.
#[derive(Debug)]
pub(super) struct Held {
    objects: BTreeMap<ObjectKey, HeldObject>,
}

#[derive(Debug)]
struct HeldObject {
    uid: String,
    digest: String,
    /// Seen in the full list that is being read (key and uid).
    listed: bool,
}

impl Held {
    pub(super) fn new(held: Vec<ObjectDigest>) -> Self {
        let entry = |o: ObjectDigest| (o.key, HeldObject { uid: o.uid, digest: o.digest, listed: false });
        Self { objects: held.into_iter().map(entry).collect() }
    }

    pub(super) fn begin(&mut self) {
        self.objects.values_mut().for_each(|o| o.listed = false);
    }

    /// Enters a new value; returns the uid of another object that stood under its key.
    pub(super) fn put(&mut self, object: &ObjectDigest) -> Option<String> {
        let new = HeldObject { uid: object.uid.clone(), digest: object.digest.clone(), listed: true };
        self.objects.insert(object.key.clone(), new).map(|old| old.uid).filter(|old| *old != object.uid)
    }

    /// The caller could not apply this value: the key keeps its earlier value, or nothing. The next list sends the body
    /// again, and a list without the key still deletes the earlier value.
    pub(super) fn refused(&mut self, key: &ObjectKey, uid: &str) {
        if let Some(held) = self.objects.get_mut(key).filter(|o| o.uid == uid) {
            held.digest.clear();
        }
    }

    pub(super) fn forget(&mut self, key: &ObjectKey, uid: &str) {
        if self.objects.get(key).is_some_and(|o| o.uid == uid) {
            self.objects.remove(key);
        }
    }

    /// Marks an object of the list; true if its body is needed.
    fn list(&mut self, object: &ObjectDigest) -> bool {
        let Some(held) = self.objects.get_mut(&object.key).filter(|o| o.uid == object.uid) else { return true };
        held.listed = true;
        held.digest != object.digest
    }

    pub(super) fn unlisted(&self) -> Vec<ObjectDigest> {
        let gone = self.objects.iter().filter(|(_, o)| !o.listed);
        gone.map(|(key, o)| ObjectDigest { key: key.clone(), uid: o.uid.clone(), digest: o.digest.clone() }).collect()
    }
}

/// A full sync in progress.
#[derive(Debug)]
pub(super) struct Bracket {
    seq: u64,
    count: u64,
    /// Every key of the list, with its uid while the body is still to come.
    listed: HashMap<ObjectKey, Option<String>>,
    /// Needed keys not yet asked for.
    ask: VecDeque<ObjectKey>,
    closed: bool,
    asked_all: bool,
}

impl Bracket {
    pub(super) fn new(seq: u64, count: u64) -> Result<Self, SessionError> {
        if count > MAX_OBJECTS as u64 {
            return Err(SessionError::violation(format!("full list of {count} objects")));
        }
        Ok(Self { seq, count, listed: HashMap::new(), ask: VecDeque::new(), closed: false, asked_all: false })
    }

    pub(super) fn digests(&mut self, objects: &[ObjectDigest], held: &mut Held) -> Result<(), SessionError> {
        if self.closed || (self.listed.len() + objects.len()) as u64 > self.count {
            return Err(SessionError::violation(format!("more than the {} digests announced", self.count)));
        }
        for object in objects {
            let needed = held.list(object);
            if self.listed.insert(object.key.clone(), needed.then(|| object.uid.clone())).is_some() {
                return Err(SessionError::violation(format!("{:?} twice in one list", object.key)));
            }
            if needed {
                self.ask.push_back(object.key.clone());
            }
        }
        Ok(())
    }

    pub(super) fn end(&mut self, seq: u64, count: u64) -> Result<(), SessionError> {
        if self.closed || seq != self.seq || count != self.count || self.listed.len() as u64 != count {
            return Err(SessionError::violation(format!(
                "full list of {} at {} ends as {count} at {seq} after {} digests",
                self.count,
                self.seq,
                self.listed.len()
            )));
        }
        self.closed = true;
        Ok(())
    }

    /// Checks a body against the requested ones. Bodies arrive in any order, each once.
    pub(super) fn body(&mut self, seq: u64, object: &ObjectDigest) -> Result<(), SessionError> {
        let wanted = self.listed.get_mut(&object.key).filter(|uid| uid.as_ref() == Some(&object.uid));
        match wanted {
            Some(wanted) if seq <= self.seq => {
                *wanted = None;
                Ok(())
            }
            _ => Err(SessionError::violation(format!("body {seq} of {:?} was not asked for", object.key))),
        }
    }

    /// Whether the list may be concluded from: an empty one may not.
    pub(super) fn done(&self, seq: u64) -> Result<bool, SessionError> {
        if !self.closed || seq != self.seq {
            return Err(SessionError::violation(format!("full sync at {} done at {seq} before its end", self.seq)));
        }
        Ok(self.count > 0)
    }

    pub(super) fn next_message(&mut self) -> Option<ToCloud> {
        let take = self.ask.len().min(LIST_CHUNK);
        let last = self.closed && take == self.ask.len();
        if self.asked_all || (take == 0 && !last) {
            return None;
        }
        self.asked_all = last;
        Some(ToCloud::Need { keys: self.ask.drain(..take).collect(), done: last })
    }
}

/// Number of objects that the node asks about at a time. If the answers were more than the tombstones that the bridge
/// keeps, it would forget some before it sends them, and begin with a list again.
const QUESTIONS: usize = MAX_TOMBSTONES / 2;

/// Objects held while the full list was empty. The node asks the bridge about a limited number at a time, because the
/// answers are tombstones, whose number the bridge limits. Pods come first. Objects that they name follow only when all
/// of these pods are known to be gone: a bridge may not be permitted to read objects that no pod of this node names.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    waiting: VecDeque<ObjectDigest>,
    asked: Vec<ObjectDigest>,
}

impl Doubts {
    pub(super) fn new(objects: Vec<ObjectDigest>) -> Self {
        let (mut waiting, others): (VecDeque<_>, VecDeque<_>) = objects.into_iter().partition(is_pod);
        waiting.extend(others);
        Self { waiting, asked: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.asked.is_empty()
    }

    /// The bridge has spoken of these.
    pub(super) fn settle(&mut self, which: impl Fn(&ObjectDigest) -> bool) {
        self.waiting.retain(|o| !which(o));
        self.asked.retain(|o| !which(o));
    }

    pub(super) fn next_question(&mut self) -> Option<Vec<ObjectDigest>> {
        if !self.asked.is_empty() || self.waiting.is_empty() {
            return None;
        }
        let pods = self.waiting.iter().take_while(|object| is_pod(object)).count();
        let count = if pods > 0 { pods } else { self.waiting.len() };
        self.asked = self.waiting.drain(..count.min(QUESTIONS)).collect();
        Some(self.asked.clone())
    }
}

fn is_pod(object: &ObjectDigest) -> bool {
    object.key.kind == "Pod"
}
