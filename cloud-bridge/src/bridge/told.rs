//! An object as nodes receive it: one copy for any number of nodes.

pub(super) mod groups;
pub(super) mod kinds;

use std::collections::BTreeMap;
use std::sync::Arc;

use edge_protocol::message::{Object, ObjectDigest, ObjectKey};
use edge_protocol::state::Body;

use kinds::Kind;

/// Objects that nodes receive as one, by their keys.
pub type Group = BTreeMap<ObjectKey, Arc<Told>>;

/// An object whose body is kept as text: a parsed value takes five times the memory, with small fields up to 56 times.
#[derive(Debug)]
pub struct Told {
    pub digest: ObjectDigest,
    /// A pod whose body says that it has ended, which changes no digest.
    pub has_ended: bool,
    body: Arc<Body>,
}

impl Told {
    pub fn new(object: Object) -> Arc<Self> {
        let Object { digest, body } = object;
        // Other pods travel without a phase; claims have one.
        let has_ended = Kind::Pod.is(&digest.key) && body["status"]["phase"].is_string();
        Self::with_text(digest, body.to_string(), has_ended)
    }

    /// `text`: the body as JSON.
    pub fn with_text(digest: ObjectDigest, text: String, has_ended: bool) -> Arc<Self> {
        Arc::new(Self { digest, has_ended, body: Arc::new(Body::new(text)) })
    }

    /// The body as text, shared by all callers.
    pub fn text(&self) -> Arc<Body> {
        Arc::clone(&self.body)
    }
}

/// Objects of one digest count as equal.
impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}
