//! Single values worth remembering.

use rusqlite::OptionalExtension;

use super::{Store, StoreError, Writer};

/// The facts there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The bridge's stream of this node that `LastSequence` counts in.
    Stream,
    /// Newest sequence of that stream whose change is in the store.
    LastSequence,
    /// Uid of the cluster this node joined; another cluster's lists are refused.
    Cluster,
    /// Latest wall time seen, RFC 3339: certificates are never judged by an earlier clock.
    TimeFloor,
    /// Kernel boot id at the last start: another one means that nothing runs any more.
    BootId,
    /// The node's conditions as last reported, as JSON: their times outlive a restart.
    Conditions,
    /// Events dropped from the outbox that no summary has told of yet.
    Dropped,
}

impl Fact {
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::LastSequence => "last-sequence",
            Self::Cluster => "cluster",
            Self::TimeFloor => "time-floor",
            Self::BootId => "boot-id",
            Self::Conditions => "conditions",
            Self::Dropped => "dropped",
        }
    }
}

impl Store {
    /// # Errors
    /// SQLite fails.
    pub fn fact(&self, fact: Fact) -> Result<Option<String>, StoreError> {
        self.db
            .query_row("SELECT value FROM facts WHERE key = ?1", [fact.key()], |row| row.get(0))
            .optional()
            .map_err(|source| self.sqlite(source))
    }
}

impl Writer<'_> {
    /// # Errors
    /// SQLite fails.
    pub fn set_fact(&self, fact: Fact, value: &str) -> Result<(), StoreError> {
        self.execute("INSERT OR REPLACE INTO facts (key, value) VALUES (?1, ?2)", (fact.key(), value)).map(drop)
    }
}
