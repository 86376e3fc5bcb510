//! Desired state of one node, as a numbered stream of newest values: the bridge's memory of one node.
//!
//! Owns sequence numbers, tombstones and the rule when a node may resume. Lives as long as the bridge process
//! watches the node, over many connections. Knows nothing of connections, sockets or the Kubernetes API.

mod removal;

pub use crate::body::{Body, LARGE};
use crate::frame::MAX_TO_EDGE;
use crate::message::{Object, ObjectDigest, ObjectKey, ObjectRef, Position};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Maximum number of objects for one node.
pub const MAX_OBJECTS: usize = 20_000;

/// Tombstones kept for resuming nodes; an older position than the oldest forgotten one needs a full sync. Each takes
/// about half a kilobyte that nodes do not share: a tenant that deletes many Services leaves them on every node.
pub const MAX_TOMBSTONES: usize = 128;

/// Room for everything of a `Put` but the body and the key.
const ENVELOPE: usize = 4096;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StateError {
    #[error("{kind} {namespace}/{name}: body of {size} bytes is over the link's limit", kind = key.kind, namespace = key.namespace, name = key.name)]
    TooLarge { key: ObjectKey, size: usize },
    #[error("the node already holds {MAX_OBJECTS} objects")]
    Full,
    /// The uid was removed permanently; a late watch event must not bring it back.
    #[error("{kind} {namespace}/{name}: uid {uid} was deleted", kind = key.kind, namespace = key.namespace, name = key.name)]
    Deleted { key: ObjectKey, uid: String },
}

/// Desired objects of one node with the sequence numbers of their newest values.
///
/// A bridge has thousands of these with a few objects each. A leaf of a B-tree has room for eleven entries from the first
/// one on: entries are small, and what they name is shared.
///
/// Sequence numbers start at 1 and are never reused within a stream. Only the newest value of a key is kept.
#[derive(Debug)]
pub struct NodeState {
    stream: String,
    seq: u64,
    /// Highest sequence number of a removed tombstone: a node with an earlier position cannot resume.
    floor: u64,
    max_tombstones: usize,
    complete: bool,
    session: u64,
    objects: BTreeMap<Arc<ObjectKey>, Box<Entry>>,
    tombstones: HashMap<Arc<ObjectRef>, Tombstone>,
    /// Everything above by sequence number: what to send after a given one.
    log: BTreeMap<u64, LogItem>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) seq: u64,
    pub(crate) uid: String,
    pub(crate) digest: String,
    /// JSON text: a fifth of the memory of a parsed value, and it is only ever sent. Shared by all nodes that should
    /// hold the object.
    pub(crate) body: Arc<Body>,
}

#[derive(Debug)]
struct Tombstone {
    seq: u64,
    /// Deleted in the API, not merely no longer of use to the node.
    deleted: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum LogItem {
    Put(Arc<ObjectKey>),
    Delete(Arc<ObjectRef>),
}

impl NodeState {
    /// `stream` must be random text, new for every `NodeState` (16 bytes of hex will do).
    pub fn new(stream: impl Into<String>) -> Self {
        Self {
            stream: stream.into(),
            seq: 0,
            floor: 0,
            max_tombstones: MAX_TOMBSTONES,
            complete: false,
            session: 0,
            objects: BTreeMap::new(),
            tombstones: HashMap::new(),
            log: BTreeMap::new(),
        }
    }

    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Number of the newest change.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// How many objects of this kind the node should hold now.
    pub fn count(&self, kind: &str) -> usize {
        self.objects.keys().filter(|key| key.kind == kind).count()
    }

    /// Whether the node should hold an object of this name now.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// Body of the object of this name that the node should hold now.
    pub fn body(&self, key: &ObjectKey) -> Option<Arc<Body>> {
        self.entry(key).map(|entry| Arc::clone(&entry.body))
    }

    /// Uid of the object of this name that the node should hold now.
    pub fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.entry(key).map(|entry| entry.uid.as_str())
    }

    /// What the node should hold now; for comparing with a fresh list.
    pub fn digests(&self) -> impl Iterator<Item = ObjectDigest> + '_ {
        self.objects.iter().map(|(key, e)| ObjectDigest {
            key: ObjectKey::clone(key),
            uid: e.uid.clone(),
            digest: e.digest.clone(),
        })
    }

    /// Enters a complete list that was requested after the hello of this session. Nothing is sent to the node before:
    /// an incomplete list would look like deletions, and one from before the hello may be older than the changes that
    /// another bridge sent. Does nothing for a session other than the newest.
    pub fn listed(&mut self, session: u64) {
        self.complete |= session == self.session;
    }

    /// The state here may be older than what the node holds: another list is needed before anything is sent.
    pub(crate) fn expire(&mut self) {
        self.complete = false;
    }

    pub fn is_listed(&self) -> bool {
        self.complete
    }

    /// Makes every session with a lower number void. [`BridgeSession::new`](crate::bridge::BridgeSession::new)
    /// does this with its own number; a bridge that learns of a newer session elsewhere calls it, too.
    pub fn fence(&mut self, session: u64) {
        self.session = self.session.max(session);
    }

    pub fn session(&self) -> u64 {
        self.session
    }

    /// Enters the newest value of an object. Returns false if it is unchanged. Another uid under the same key replaces
    /// the old object: its tombstone goes first.
    ///
    /// # Errors
    /// Too large to send, too many objects, or a uid that was [removed](Self::remove) permanently.
    pub fn set(&mut self, object: Object) -> Result<bool, StateError> {
        self.set_text(&object.digest, || Arc::new(Body::new(object.body.to_string())))
    }

    /// Same as [`set`](Self::set), for an object whose body is JSON text already. The body is requested only if it is
    /// new.
    ///
    /// # Errors
    /// Same as [`set`](Self::set).
    pub fn set_text(&mut self, object: &ObjectDigest, body: impl FnOnce() -> Arc<Body>) -> Result<bool, StateError> {
        let ObjectDigest { key, uid, digest } = object.clone();
        let held = self.objects.get(&key).map(|held| &**held);
        if held.is_some_and(|e| e.uid == uid && e.digest == digest) {
            return Ok(false);
        }
        let reference = ObjectRef { key: key.clone(), uid: uid.clone() };
        if self.tombstones.get(&reference).is_some_and(|t| t.deleted) {
            return Err(StateError::Deleted { key, uid });
        }
        if held.is_none() && self.objects.len() >= MAX_OBJECTS {
            return Err(StateError::Full);
        }
        let body = body();
        let size = body.text().len();
        if size > MAX_TO_EDGE - ENVELOPE {
            return Err(StateError::TooLarge { key, size });
        }
        if let Some(old) = held.filter(|e| e.uid != uid).map(|e| e.uid.clone()) {
            self.bury(ObjectRef { key: key.clone(), uid: old }, true);
        }
        if let Some(withdrawn) = self.tombstones.remove(&reference) {
            self.log.remove(&withdrawn.seq);
        }
        body.hold();
        let key = Arc::new(key);
        let seq = self.append(LogItem::Put(Arc::clone(&key)));
        // Out first: an entry that is replaced keeps its old key.
        let old = self.objects.remove(&key);
        self.objects.insert(key, Box::new(Entry { seq, uid, digest, body }));
        if let Some(old) = old {
            self.log.remove(&old.seq);
        }
        Ok(true)
    }

    /// Replaces the body of an unchanged digest for nodes that get the object from now on. Nodes that hold it get
    /// nothing.
    pub fn renew(&mut self, object: &ObjectDigest, body: Arc<Body>) {
        let ObjectDigest { key, uid, digest } = object;
        let held = self.objects.get_mut(key).filter(|e| e.uid == *uid && e.digest == *digest);
        if let Some(held) = held.filter(|_| body.text().len() <= MAX_TO_EDGE - ENVELOPE) {
            body.hold();
            held.body = body;
        }
    }

    fn append(&mut self, item: LogItem) -> u64 {
        self.seq += 1;
        self.log.insert(self.seq, item);
        self.seq
    }

    /// Whether only changes after this position need to travel.
    pub fn covers(&self, position: &Position) -> bool {
        position.stream == self.stream && self.reaches(position.seq)
    }

    pub(crate) fn reaches(&self, seq: u64) -> bool {
        seq >= self.floor && seq <= self.seq
    }

    pub(crate) fn entry(&self, key: &ObjectKey) -> Option<&Entry> {
        self.objects.get(key).map(|entry| &**entry)
    }

    pub(crate) fn item(&self, seq: u64) -> Option<&LogItem> {
        self.log.get(&seq)
    }

    pub(crate) fn after(&self, seq: u64) -> Option<(u64, &LogItem)> {
        self.log.range((Bound::Excluded(seq), Bound::Unbounded)).next().map(|(seq, item)| (*seq, item))
    }
}
