//! Objects and their history in one SQLite file, and the watchers of both. The only code that writes SQL.
//!
//! Every write takes the next number of one counter, which is the resourceVersion. A write is in the file when it
//! returns, and on the disk when `durable` says so; until then no client sees it. Knows keys, bodies and revisions; the
//! only fields of an object that it reads are in `metadata`, and the time of a Lease.

pub mod backup;
mod bodies;
mod body;
mod clock;
mod extent;
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
mod stored;
mod subscribers;
mod sync;
#[cfg(test)]
mod tests;
mod write;

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use clock::Clock;
pub(crate) use extent::Most;
use keeper::Keeper;
pub(crate) use leases::LEASES;
use leases::Leases;
pub(crate) use past::History;
use past::Past;
pub(crate) use snapshot::Page;
pub(crate) use stored::{Change, ChangeKind, Place, Stored};
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
