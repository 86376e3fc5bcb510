//! Opens the store: checked, migrated, and made again from what is left of a damaged one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use super::files::restrict_mode;
use super::{Store, StoreError, copy, salvage, schema};
use crate::sys::files::lock_within;

/// Timeout for another process's commit. Helpers hold the lock only for the commit and sync afterwards
/// ([`Store::write_and_sync`]), so the daemon does not wait for their slow syncs. A longer wait means that a process
/// was stopped; the daemon then starts again.
const BUSY: Duration = Duration::from_secs(5);
/// Pages of the log after which a commit makes a checkpoint, although pods may wait for it: about what fifty starts of
/// pods write. [`Store::checkpoint_if_long`] makes one earlier, when the node is idle.
const PAGES: i64 = 2000;
/// Bytes of the log that stay after a checkpoint: a little more than these pages. A shorter log is cut off and grows
/// again: both take time in the daemon's loop, and each sync of a growing file also writes its length and its blocks.
const LOG: i64 = 9 << 20;
/// Timeout for the lock of opening a store: opening takes milliseconds.
const OPENING: Duration = Duration::from_secs(10);

/// A store and, when it had to be made again from a damaged one, how that went.
pub struct Opened {
    pub store: Store,
    pub quarantined: Option<Quarantined>,
}

/// A damaged store.
#[derive(Debug)]
pub struct Quarantined {
    /// Where it is now.
    pub aside: PathBuf,
    pub why: String,
    /// How many rows the new one has.
    pub rows: usize,
}

impl Store {
    /// Opens the store at `path`; creates it if absent, migrates it if old. A damaged database is renamed to
    /// `<path>.corrupt-<n>`, and a store made from what can still be read replaces it.
    ///
    /// A store that a newer version made and that this one cannot use is replaced by the copy from before its
    /// migration.
    ///
    /// # Errors
    /// The folder cannot be written, the disk is full, or a newer version made the file and a copy does not exist.
    pub fn open(path: &Path) -> Result<Opened, StoreError> {
        let cut_short = salvage::finish(path)?;
        match Self::open_sound(path) {
            Ok(store) => {
                let told = |aside| Quarantined { aside, why: "found at an earlier start".into(), rows: 0 };
                Ok(Opened { store, quarantined: cut_short.map(told) })
            }
            Err(error) if error.is_damage() || error.is_unreadable() => {
                let (aside, rows) = salvage::replace(path)?;
                let quarantined = Some(Quarantined { aside, why: error.to_string(), rows });
                Ok(Opened { store: Self::open_sound(path)?, quarantined })
            }
            Err(error @ StoreError::Newer { .. }) => {
                let Some(aside) = copy::go_back(path)? else { return Err(error) };
                let quarantined = Some(Quarantined { aside, why: error.to_string(), rows: 0 });
                Ok(Opened { store: Self::open_sound(path)?, quarantined })
            }
            Err(error) => Err(error),
        }
    }

    /// Same as [`Store::open`] for every program but the daemon: a damaged file is an error and stays where it is,
    /// because the daemon may have it open.
    ///
    /// # Errors
    /// Same as [`Store::open`], and damage.
    pub fn open_shared(path: &Path) -> Result<Self, StoreError> {
        Self::open_sound(path)
    }

    fn open_sound(path: &Path) -> Result<Self, StoreError> {
        let sqlite = |source| StoreError::Sqlite { path: path.into(), source };
        // Opens one at a time: SQLite does not wait while another process turns a new file into one with a log. The
        // lock is on the folder, since closing any handle of the file itself would release SQLite's locks. A process
        // that is stopped during its opening must not keep the node from starting: this race is rare, and SQLite
        // reports it.
        let folder = path.parent().and_then(|folder| File::open(folder).ok());
        let alone = folder.as_ref().map(|folder| lock_within(folder, OPENING));
        if let Some(Ok(false)) = alone {
            log::warn!("{}: another process has been opening the store for {} s", path.display(), OPENING.as_secs());
        }
        let mut db = Connection::open(path).map_err(sqlite)?;
        restrict_mode(path)?;
        // The helpers (pull, import) write images while the daemon runs.
        db.busy_timeout(BUSY).map_err(sqlite)?;
        db.pragma_update(None, "journal_mode", "WAL").map_err(sqlite)?;
        db.pragma_update(None, "synchronous", "NORMAL").map_err(sqlite)?;
        // In KiB when negative: the whole database of fifty pods fits.
        db.pragma_update(None, "cache_size", -256).map_err(sqlite)?;
        db.pragma_update(None, "journal_size_limit", LOG).map_err(sqlite)?;
        db.pragma_update(None, "wal_autocheckpoint", PAGES).map_err(sqlite)?;
        let sound: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sqlite)?;
        if sound != "ok" {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            return Err(sqlite(rusqlite::Error::SqliteFailure(code, Some(sound))));
        }
        if let Some(version) = schema::outdated(&db, path)? {
            // Without space for it the node continues, but cannot be rolled back.
            if let Err(error) = copy::keep_before_migration(&db, path, version) {
                log::error!("no copy from before the migration: {error}");
            }
        }
        schema::migrate(&mut db, path)?;
        Ok(Self { db, path: path.into(), secrets_in_memory: false, synced: false, in_memory: false })
    }

    /// An empty store in memory, for tests and simulations.
    ///
    /// # Errors
    /// SQLite cannot allocate.
    pub fn in_memory() -> Result<Self, StoreError> {
        let path = PathBuf::from(":memory:");
        let mut db =
            Connection::open_in_memory().map_err(|source| StoreError::Sqlite { path: path.clone(), source })?;
        schema::migrate(&mut db, &path)?;
        Ok(Self { db, path, secrets_in_memory: false, synced: false, in_memory: true })
    }
}
