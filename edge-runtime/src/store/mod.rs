//! Durable state of the node, in one SQLite file. The only module that writes SQL; it knows rows and durability, not
//! what a pod does with them.
//!
//! Two kinds of commit. *Durable*: synced to the medium before it returns, so that reported data is safe. *Batched*:
//! safe against the death of the process, synced later by SQLite; a power cut ends every container anyway. An idle node
//! writes nothing.

mod copy;
mod device_messages;
mod devices;
mod facts;
pub mod image_record;
mod images;
mod memory;
mod objects;
mod outbox;
mod pods;
mod salvage;
mod schema;
pub mod secrets;
mod sync;
mod tokens;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior};

use crate::counters;
use crate::paths::Paths;
use crate::sys::files::lock_within;
use crate::sys::reserve::Reserve;

pub use device_messages::Message;
pub use facts::Fact;
pub use outbox::{OUTBOX_BYTES, OUTBOX_LIMIT, OUTBOX_TTL_S, OutboxRow, subject as outbox_subject};
pub use pods::StoredPod;
use sync::Synced;

/// Timeout for another process's commit. Helpers hold the lock only for the commit and sync afterwards
/// ([`Store::write_and_sync`]), so the daemon does not wait for their slow syncs. A longer wait means that a process
/// was stopped; the daemon then starts again.
const BUSY: Duration = Duration::from_secs(5);
/// Bytes of the log that stay after a checkpoint: a little more than the thousand pages after which SQLite makes one. A
/// shorter log is cut off and grows again: both take time in the daemon's loop, and each sync of a growing file also writes
/// its length and its blocks.
const LOG: i64 = 5 << 20;
/// Timeout for the lock of opening a store: opening takes milliseconds.
const OPENING: Duration = Duration::from_secs(10);

/// Why the store could not answer. The path is in every message.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("store {}: {source}", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("store {}: {what} does not parse: {source}", path.display())]
    Row { path: PathBuf, what: String, source: serde_json::Error },
    #[error("store {}: made by a newer edge-runtime (schema {found}, this one knows {known}), and there is no copy from before; use that version", path.display())]
    Newer { path: PathBuf, found: usize, known: usize },
    #[error("store {}: was kept in memory, and the disk takes it again", path.display())]
    Back { path: PathBuf },
    #[error("store {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl StoreError {
    /// The disk has no room: nothing is wrong with the store.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.code() == Some(ErrorCode::DiskFull)
    }

    /// The disk accepts no write, temporarily or permanently: full, read-only, broken.
    #[must_use]
    pub fn is_of_disk(&self) -> bool {
        use ErrorCode::{DiskFull, ReadOnly, SystemIoFailure};
        matches!(self, Self::Io { .. }) || matches!(self.code(), Some(DiskFull | ReadOnly | SystemIoFailure))
    }

    /// The file system refuses every change, without asking its medium.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Nothing is wrong with disk or store: others hold it, memory or descriptors are short.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        use ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, OutOfMemory};
        matches!(self, Self::Back { .. })
            || matches!(self.code(), Some(CannotOpen | DatabaseBusy | DatabaseLocked | OutOfMemory))
    }

    /// A block of the store cannot be read, while others perhaps can.
    fn is_unreadable(&self) -> bool {
        use rusqlite::ffi::{SQLITE_IOERR_READ, SQLITE_IOERR_SHORT_READ};
        let Self::Sqlite { source, .. } = self else { return false };
        let code = source.sqlite_error().map(|error| error.extended_code);
        matches!(code, Some(SQLITE_IOERR_READ | SQLITE_IOERR_SHORT_READ))
    }

    /// The store itself is damaged: opening it again salvages it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Sqlite { source, .. } if is_corruption(source))
    }

    fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Sqlite { source, .. } => source.sqlite_error_code(),
            _ => None,
        }
    }
}

/// The open store.
pub struct Store {
    db: Connection,
    path: PathBuf,
    /// Bodies of Secrets are in a temporary table, see [`secrets`].
    secrets_in_memory: bool,
    synced: Synced,
    /// Everything is, see [`memory`].
    in_memory: bool,
}

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

/// Parameters of a statement. Not generic: one function for all statements is smaller than one for each.
type Values<'a> = &'a [&'a dyn ToSql];

/// Work of one transaction.
type Work<'a> = &'a mut dyn FnMut(&Writer<'_>) -> Result<(), StoreError>;

/// How a transaction is committed.
#[derive(Clone, Copy)]
struct How {
    /// Synced to the medium.
    synced: bool,
    /// A full disk may cost the reserve that is kept for the node.
    reserve: bool,
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
        Ok(Self { db, path: path.into(), secrets_in_memory: false, synced: Synced::default(), in_memory: false })
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
        Ok(Self { db, path, secrets_in_memory: false, synced: Synced::default(), in_memory: true })
    }

    /// Runs `work` in one transaction, synced to the medium before this returns.
    ///
    /// # Errors
    /// Nothing of `work` is kept when it fails or the commit does (a full disk).
    pub fn write_durable<T>(&mut self, work: impl Fn(&Writer<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.write_as(How { synced: true, reserve: true }, work)
    }

    /// Same as [`Store::write_durable`], but without the reserve that is kept for the node: for data that clients can
    /// make any amount of.
    ///
    /// # Errors
    /// Same as [`Store::write_durable`].
    pub fn write_durable_in_room<T>(
        &mut self,
        work: impl Fn(&Writer<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.write_as(How { synced: true, reserve: false }, work)
    }

    /// Same as [`Store::write_durable`] for a helper beside the daemon: the store is locked for the commit, but not
    /// during the sync. Others may see, and build on, data that a power cut can still take: their own sync includes it.
    ///
    /// # Errors
    /// Same as [`Store::write_durable`]; if the sync fails, the commit stays valid while the machine is up.
    pub fn write_and_sync<T>(&mut self, work: impl Fn(&Writer<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let done = self.write(work)?;
        self.sync().map(|()| done)
    }

    /// Runs `work` in one transaction that survives the process but perhaps not a power cut. On a full disk it runs
    /// once more, with the reserve that is kept for the node.
    ///
    /// # Errors
    /// Same as [`Store::write_durable`].
    pub fn write<T>(&mut self, work: impl Fn(&Writer<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.write_as(How { synced: false, reserve: true }, work)
    }

    /// All that each kind of `work` has a copy of in the program: the transaction around it is there once.
    fn write_as<T>(&mut self, how: How, work: impl Fn(&Writer<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut done = None;
        self.commit(how, &mut |writer: &Writer<'_>| {
            done = Some(work(writer)?);
            Ok(())
        })?;
        Ok(done.unwrap_or_else(|| unreachable!("what was committed has run")))
    }

    fn commit(&mut self, how: How, work: Work<'_>) -> Result<(), StoreError> {
        if !how.synced {
            return self.commit_soon(how.reserve, work);
        }
        self.set_sync("FULL")?;
        let done = self.commit_soon(how.reserve, work);
        self.set_sync("NORMAL")?;
        if done.is_ok() {
            counters::SYNCS.one();
            // A sync of the log takes along all that was in it.
            self.synced.all();
        }
        done
    }

    fn commit_soon(&mut self, reserve: bool, work: Work<'_>) -> Result<(), StoreError> {
        match self.try_commit(work) {
            Err(error) if reserve && self.made_room(&error) => self.try_commit(work),
            done => done,
        }
    }

    /// Makes room in the log: once its pages are in the database, it can restart at its beginning and need not grow.
    fn made_room(&self, error: &StoreError) -> bool {
        if !error.is_full() {
            return false;
        }
        // Given up before, perhaps.
        let _ = Reserve::new(Paths::reserve_beside(&self.path)).give_up();
        self.db.query_row("PRAGMA wal_checkpoint", [], |_| Ok(())).is_ok()
    }

    fn try_commit(&mut self, work: Work<'_>) -> Result<(), StoreError> {
        let (path, secrets_in_memory) = (self.path.clone(), self.secrets_in_memory);
        let sqlite = |source| StoreError::Sqlite { path: path.clone(), source };
        let tx = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
        let writer = Writer { tx, path: &path, secrets_in_memory };
        work(&writer)?;
        writer.tx.commit().map_err(sqlite)?;
        counters::COMMITS.one();
        self.synced.committed();
        Ok(())
    }

    /// Stops the file from growing, or permits it again: simulates a full disk. Lasts until the store is closed.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn limit(&self, full: bool) -> Result<(), StoreError> {
        let pages: Option<i64> = self.one("PRAGMA page_count", &[])?;
        let most = pages.filter(|_| full).unwrap_or_else(|| i64::from(u32::MAX >> 1));
        self.db
            .query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))
            .map_err(|source| self.sqlite(source))
    }

    /// Gives up pages that SQLite keeps to read them faster, and prepared statements. One that fails keeps them.
    pub fn release_cache(&self) {
        self.db.flush_prepared_statement_cache();
        let _ = self.db.execute_batch("PRAGMA shrink_memory");
    }

    fn set_sync(&self, mode: &str) -> Result<(), StoreError> {
        self.db.pragma_update(None, "synchronous", mode).map_err(|source| self.sqlite(source))
    }

    /// The first column of the first row, if there is one.
    fn one<T: FromSql>(&self, sql: &str, values: Values<'_>) -> Result<Option<T>, StoreError> {
        let asked = self.db.prepare_cached(sql);
        let found = asked.and_then(|mut statement| statement.query_row(values, |row| row.get(0)).optional());
        found.map_err(|source| self.sqlite(source))
    }

    fn all<T>(
        &self,
        sql: &str,
        values: Values<'_>,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let run = || -> rusqlite::Result<Vec<T>> { self.db.prepare(sql)?.query_map(values, read)?.collect() };
        run().map_err(|source| self.sqlite(source))
    }

    fn sqlite(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Sqlite { path: self.path.clone(), source }
    }
}

/// The inside of one transaction: every write of this crate is a method of it.
pub struct Writer<'a> {
    tx: Transaction<'a>,
    path: &'a Path,
    secrets_in_memory: bool,
}

impl Writer<'_> {
    fn execute(&self, sql: &str, values: Values<'_>) -> Result<usize, StoreError> {
        self.tx
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(values))
            .map_err(|source| StoreError::Sqlite { path: self.path.into(), source })
    }

    fn json<T: serde::Serialize>(&self, what: &str, value: &T) -> Result<String, StoreError> {
        serde_json::to_string(value).map_err(|source| StoreError::Row {
            path: self.path.into(),
            what: what.into(),
            source,
        })
    }
}

fn is_corruption(error: &rusqlite::Error) -> bool {
    use ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

/// Makes the file readable for root only, since it contains Secrets. SQLite gives its WAL the mode of the main file.
fn restrict_mode(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|source| StoreError::Io { path: path.into(), source })
}

/// Creates an empty file for a store, accessible for root only.
fn create_private(path: &Path) -> Result<File, StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
    made.map_err(|source| StoreError::Io { path: path.into(), source })
}

#[cfg(test)]
mod tests;
