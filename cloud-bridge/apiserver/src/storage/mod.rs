//! Objects and their history in one SQLite file, and the watchers of both. The only code that writes SQL.
//!
//! Every write takes the next number of one counter, which is the resourceVersion. A write is in the file when it
//! returns, and on the disk when `durable` says so; until then no client sees it. Knows keys, bodies and revisions; the
//! only fields of an object that it reads are in `metadata`, and the time of a Lease.

mod bodies;
mod body;
mod clock;
mod gone;
mod history;
mod keeper;
mod leases;
mod open;
mod past;
mod read;
mod rows;
mod schema;
mod snapshot;
mod subscribers;
mod sync;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use serde_json::Value;

use apimachinery::key::ObjectKey;
use apimachinery::pace::is_large;
use clock::Clock;
use keeper::Keeper;
pub(crate) use leases::LEASES;
use leases::Leases;
use past::Past;
use rows::deleted_state;
pub(crate) use snapshot::{Most, Page};
pub(crate) use subscribers::{Held, Interest, Subscription, Told, View};
use sync::Syncer;
pub(crate) use sync::{Debt, Durable, Unsynced};

/// Interval of trimming the history by age: it walks over all of it.
const TRIM_AFTER: Duration = Duration::from_secs(60);

/// Why the storage failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state file cannot be used; it is left as it is.
    #[error("state file {}: {reason}", path.display())]
    Open { path: PathBuf, reason: String },
    /// A statement failed.
    #[error("state file {}: {source}", path.display())]
    Sql { path: PathBuf, source: rusqlite::Error },
    /// The disk did not accept a write.
    #[error("state file {}: {reason}", path.display())]
    Unsynced { path: PathBuf, reason: String },
    /// A stored body is not a JSON object.
    #[error("stored object {storage} {namespace}/{name}: {reason}")]
    Body { storage: String, namespace: String, name: String, reason: String },
}

/// Where an object is stored: the storage, and its key there.
pub(crate) type Place = (String, ObjectKey);

/// One stored state of one object.
#[derive(Debug)]
pub(crate) struct Stored {
    pub key: ObjectKey,
    pub rev: u64,
    /// JSON without kind and apiVersion.
    pub body: Bytes,
    value: OnceLock<Value>,
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

    /// This state as if it had been written at `rev`: a watch sends it for an object that it no longer selects.
    pub(crate) fn at(&self, rev: u64) -> Arc<Self> {
        deleted_state(self, rev)
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

/// How much of the past is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct History {
    /// At least this long...
    pub age: Duration,
    /// ...but never in more changes than this...
    pub rows: u64,
    /// ...and never more bytes of replaced states than this.
    pub bytes: u64,
    /// How many bytes of objects that expire, which are events, are kept: the oldest go first.
    pub expiring: u64,
}

/// The storage.
pub(crate) struct Store {
    // The threads end before the connection: the last one to close removes the log.
    keeper: Keeper,
    syncer: Syncer,
    conn: Connection,
    path: PathBuf,
    /// The newest revision. Renewals of Leases take revisions that the file does not have.
    rev: u64,
    /// The newest revision that is in the file.
    written: u64,
    /// No run has given out this revision or a later one: so it is with the next one, whatever this one's end.
    ceiling: u64,
    /// Changes after this revision are all in `changes`.
    floor: u64,
    history: History,
    past: Past,
    /// Bytes of objects that expire.
    expiring: u64,
    writes: u64,
    /// When history was last trimmed for the time that had passed.
    trimmed: Instant,
    leases: Leases,
    clock: Clock,
    subscribers: subscribers::Subscribers,
    /// Held as long as the file is in use.
    _lock: File,
}

impl Store {
    fn sql(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Sql { path: self.path.clone(), source }
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        self.rev
    }

    /// The newest revision that waits for the disk: data that was read now may be sent once it is `durable`.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Starts periodic work that is due. Returns whether more of it is due at once.
    pub(crate) fn tick(&mut self) -> bool {
        self.keeper.tick();
        self.trim_now_and_then(Instant::now())
    }

    /// Trims the history by age, which writes do not do if there are few of them, and deletes expired events.
    fn trim_now_and_then(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.trimmed) < TRIM_AFTER {
            return false;
        }
        let more = self.trim().unwrap_or_else(|error| {
            log::warn!("{error}");
            false
        });
        if !more {
            self.trimmed = now;
        }
        more
    }

    pub(crate) fn unsynced(&self, error: &Unsynced) -> StoreError {
        StoreError::Unsynced { path: self.path.clone(), reason: error.to_string() }
    }

    /// Tells when a write is on the disk.
    pub(crate) fn durable(&self) -> Durable {
        self.syncer.durable()
    }
}

/// Writes at a regular end what a restart would lose needlessly.
impl Drop for Store {
    fn drop(&mut self) {
        if self.syncer.failed() {
            // Closing would write pages back that the kernel may have lost; opening reads them by their checksums.
            let _ = self.conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            return;
        }
        if let Err(error) = self.settle() {
            log::warn!("{error}");
        }
    }
}
