//! Stored states of objects, and changes from one to the next.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::body;
use apimachinery::key::ObjectKey;
use apimachinery::pace::is_large;

/// Where an object is stored: the storage, and its key there.
pub(crate) type Place = (String, ObjectKey);

/// One stored state of one object.
#[derive(Debug)]
pub(crate) struct Stored {
    pub key: ObjectKey,
    pub rev: u64,
    /// JSON without kind and apiVersion.
    pub body: Bytes,
    pub(super) value: OnceLock<Value>,
    head: OnceLock<Value>,
}

impl Stored {
    pub(crate) fn new(key: ObjectKey, rev: u64, body: impl Into<Bytes>) -> Self {
        Self { key, rev, body: body.into(), value: OnceLock::new(), head: OnceLock::new() }
    }

    /// The object as it would be stored: of a dry run, or of a write that changes nothing.
    pub(crate) fn unwritten(value: Value) -> Arc<Self> {
        let body = serde_json::to_vec(&value).unwrap_or_default();
        let rev = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let stored = Self::new(ObjectKey::of(&value), rev.unwrap_or_default(), body);
        let _ = stored.value.set(value);
        Arc::new(stored)
    }

    /// A state that was replaced; its revision is in its body only.
    pub(super) fn replaced(key: ObjectKey, body: Vec<u8>) -> Self {
        Self::new(key, body::revision(&body), body)
    }

    /// This state as if it had been written at `rev`: the last one as a deletion event shows it, and what a watch sends for an
    /// object that it no longer selects.
    pub(crate) fn at(&self, rev: u64) -> Arc<Self> {
        let body = body::with_version(&self.body, rev);
        Arc::new(Self::new(self.key.clone(), rev, body.unwrap_or_default()))
    }

    /// Returns a copy without the parsed body.
    pub(crate) fn unparsed(&self) -> Arc<Self> {
        Arc::new(Self::new(self.key.clone(), self.rev, self.body.clone()))
    }

    /// The parsed body. Null if the row is damaged, which `quick_check` at opening makes improbable.
    pub(crate) fn value(&self) -> &Value {
        self.value.get_or_init(|| serde_json::from_slice(&self.body).unwrap_or_default())
    }

    /// Whether it is a large object, and parsed.
    pub(crate) fn is_large_tree(&self) -> bool {
        is_large(self.body.len()) && self.value.get().is_some()
    }

    /// A copy of the parsed body, to be changed. A large body is parsed for it, and is not kept parsed.
    pub(crate) fn copy(&self) -> Value {
        match self.value.get() {
            None if is_large(self.body.len()) => serde_json::from_slice(&self.body).unwrap_or_default(),
            _ => self.value().clone(),
        }
    }

    /// The object with at least its metadata, except managedFields: nothing more is parsed for it.
    pub(crate) fn head(&self) -> &Value {
        self.value.get().unwrap_or_else(|| self.head.get_or_init(|| body::head(&self.body)))
    }

    /// The object with at least its metadata: nothing more is parsed for it.
    pub(crate) fn metadata(&self) -> Cow<'_, Value> {
        self.value.get().map_or_else(|| Cow::Owned(body::metadata(&self.body)), Cow::Borrowed)
    }
}

/// Effect of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added = 0,
    Modified = 1,
    Deleted = 2,
}

/// One write, as watchers see it.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub rev: u64,
    pub kind: ChangeKind,
    /// The new state; for a deletion the last state with the revision of the deletion.
    pub object: Arc<Stored>,
    /// The state before; `None` for an addition.
    pub before: Option<Arc<Stored>>,
}
