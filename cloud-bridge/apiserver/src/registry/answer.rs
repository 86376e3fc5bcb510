//! What a verb answers.

use std::sync::Arc;

use serde_json::Value;

use super::selection::Selection;
use crate::storage::Stored;
use apimachinery::key::ObjectKey;

/// Answer of a verb.
pub(crate) enum Answer {
    /// An object of the resource with its HTTP code, whose bytes are at hand.
    Stored(u16, Arc<Stored>),
    /// A list of objects.
    List(Listed),
    /// A list that is too large to be at hand.
    Large(Large),
    /// Anything else, complete.
    Plain(u16, Value),
}

/// A list in stored form.
pub(crate) struct Listed {
    pub items: Vec<Arc<Stored>>,
    pub rev: u64,
    pub next: Option<String>,
    pub remaining: Option<u64>,
}

/// A list that is too large for memory: its selection at a revision, after a key.
pub(crate) struct Large {
    pub selection: Selection,
    pub rev: u64,
    pub after: Option<ObjectKey>,
}
