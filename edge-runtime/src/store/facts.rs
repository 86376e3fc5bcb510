//! Single values worth remembering.

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
    /// Events dropped from the outbox that no summary has reported yet.
    Dropped,
    /// Why rows may be missing, until a complete list of the cloud has said what there is: the store was damaged.
    Incomplete,
    /// The manifests of static pods as they were last found, as JSON.
    Manifests,
    /// Namespaces whose Services this node has asked for, as JSON of `dns::interests`.
    Interests,
    /// Seconds for which the node has run, the clock of messages of devices.
    MessageClock,
    /// The oldest schema whose programs can use this store.
    ReadableFrom,
    /// Secrets are kept in memory, and no file has any that was stored before.
    SecretsErased,
}

impl Fact {
    const KEYS: [(Self, &str); 13] = [
        (Self::Stream, "stream"),
        (Self::LastSequence, "last-sequence"),
        (Self::Cluster, "cluster"),
        (Self::TimeFloor, "time-floor"),
        (Self::BootId, "boot-id"),
        (Self::Conditions, "conditions"),
        (Self::Dropped, "dropped"),
        (Self::Incomplete, "incomplete"),
        (Self::Manifests, "manifests"),
        (Self::Interests, "interests"),
        (Self::MessageClock, "message-clock"),
        (Self::ReadableFrom, "readable-from"),
        (Self::SecretsErased, "secrets-erased"),
    ];

    pub(super) fn is_key(text: &str) -> bool {
        Self::KEYS.iter().any(|(_, key)| *key == text)
    }

    pub(super) fn key(self) -> &'static str {
        Self::KEYS.iter().find(|(fact, _)| *fact == self).map_or("", |(_, key)| key)
    }
}

impl Store {
    /// Whether rows may be missing ([`Fact::Incomplete`]): then an object that is not here may still be wanted.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn is_incomplete(&self) -> Result<bool, StoreError> {
        Ok(self.fact(Fact::Incomplete)?.is_some())
    }

    /// # Errors
    /// SQLite fails.
    pub fn fact(&self, fact: Fact) -> Result<Option<String>, StoreError> {
        self.one("SELECT value FROM facts WHERE key = ?1", &[&fact.key()])
    }
}

impl Writer<'_> {
    /// # Errors
    /// SQLite fails.
    pub fn set_fact(&self, fact: Fact, value: &str) -> Result<(), StoreError> {
        self.execute("INSERT OR REPLACE INTO facts (key, value) VALUES (?1, ?2)", &[&fact.key(), &value]).map(drop)
    }

    /// # Errors
    /// SQLite fails.
    pub fn clear_fact(&self, fact: Fact) -> Result<(), StoreError> {
        self.execute("DELETE FROM facts WHERE key = ?1", &[&fact.key()]).map(drop)
    }
}
