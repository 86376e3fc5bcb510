//! Opening the state file: one process at a time, checked, and restored from its copy if it is damaged and the caller
//! asks for that.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use super::bodies;
use super::clock::Clock;
use super::gone;
use super::keeper::{Keeper, beside, copy_of, sync_folder};
use super::leases::{LEASES, Leases};
use super::past::{Past, Row};
use super::rows::unsigned;
use super::schema::{self, SchemaError};
use super::sync::{Sync, Syncer};
use super::write::set_fact;
use super::{History, Store, StoreError, subscribers};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Increase of the counter if the file had no ceiling: a run that lost power had sent revisions that the file does not
/// have.
const REOPEN_JUMP: u64 = 1000;
/// Increase if a copy replaces the file: more than any run can have used since the copy. Revisions have 63 bits; that
/// is enough for eight million restores.
const RESTORE_JUMP: u64 = 1 << 40;
/// Pauses between attempts to read a file that the disk does not give, in seconds: a minute in all.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

impl Store {
    /// Opens or creates the file. With `restore` a damaged one is set aside, and its copy replaces it: objects that
    /// were deleted since the copy return, so this must be requested.
    ///
    /// # Errors
    /// `StoreError::Open` names the file; a file that cannot be used is not changed.
    pub(crate) fn open(path: &Path, history: History, restore: bool) -> Result<Self, StoreError> {
        Self::open_with(path, history, restore, None)
    }

    /// Same as `open`, with another way to sync.
    pub(crate) fn open_with(
        path: &Path,
        history: History,
        restore: bool,
        sync: Option<Sync>,
    ) -> Result<Self, StoreError> {
        let fail = |reason: String| StoreError::Open { path: path.to_owned(), reason };
        let lock = lock(path).map_err(|e| fail(e.to_string()))?;
        let conn = usable(path, restore).map_err(|e| fail(e.to_string()))?;
        let start = |e: io::Error| fail(e.to_string());
        let mut store = Self {
            keeper: Keeper::start(path).map_err(start)?,
            syncer: Syncer::start(0, Box::new(|| Ok(()))).map_err(start)?,
            path: path.to_owned(),
            rev: 0,
            written: 0,
            ceiling: 0,
            floor: 0,
            history,
            past: Past::default(),
            expiring: 0,
            writes: 0,
            trimmed: Instant::now(),
            leases: Leases::default(),
            clock: Clock::open(&conn).map_err(|e| fail(e.to_string()))?,
            subscribers: subscribers::Subscribers::default(),
            conn,
            _lock: lock,
        };
        store.read_state().map_err(|e| fail(e.to_string()))?;
        store.read_leases()?;
        // The write of the ceiling creates the log, which exists as long as the connection.
        store.raise_ceiling(store.rev + 1_000_000)?;
        let log = File::open(with_suffix(path, "-wal")).map_err(start)?;
        let mut sync = sync.unwrap_or_else(|| Box::new(move || log.sync_data()));
        sync().and_then(|()| sync_folder(path)).map_err(start)?;
        store.syncer = Syncer::start(store.written, sync).map_err(start)?;
        Ok(store)
    }

    fn read_state(&mut self) -> rusqlite::Result<()> {
        let number = |sql: &str| -> rusqlite::Result<Option<u64>> {
            let value: Option<Option<i64>> = self.conn.query_row(sql, [], |row| row.get(0)).optional()?;
            Ok(value.flatten().map(i64::cast_unsigned))
        };
        let last = number("SELECT max(rev) FROM changes")?;
        let ceiling = number("SELECT value FROM facts WHERE name = 'ceiling'")?;
        let floor = number("SELECT value FROM facts WHERE name = 'floor'")?;
        let length = bodies::length("objects.body");
        let expiring = number(&format!("SELECT sum({length}) FROM objects WHERE expires IS NOT NULL"))?;
        self.rev = ceiling.or(last.map(|last| last + REOPEN_JUMP)).unwrap_or(1).max(last.unwrap_or(0));
        self.written = self.rev;
        self.floor = floor.unwrap_or(0);
        let length = bodies::length("changes.before");
        let sql = format!("SELECT rev, at, ifnull({length}, 0) FROM changes ORDER BY rev");
        let mut rows = self.conn.prepare(&sql)?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            self.past.add(Row { rev: unsigned(row, 0)?, at: row.get(1)?, bytes: unsigned(row, 2)? });
        }
        self.expiring = expiring.unwrap_or(0);
        Ok(())
    }

    /// Reads the Leases. Clients may have seen renewals that the file does not have, so each Lease gets a revision of
    /// this run.
    fn read_leases(&mut self) -> Result<(), StoreError> {
        let rows: Vec<(ObjectKey, Vec<u8>)> = self
            .conn
            .prepare("SELECT ns, name, body FROM objects WHERE storage = ?1")
            .and_then(|mut statement| {
                let row = |row: &rusqlite::Row<'_>| {
                    Ok((ObjectKey { namespace: row.get(0)?, name: row.get(1)? }, row.get(2)?))
                };
                statement.query_map([LEASES], row)?.collect()
            })
            .map_err(|e| self.sql(e))?;
        for (key, body) in rows {
            let mut value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            meta::set(&mut value, "resourceVersion", self.rev.to_string().into());
            let body = self.encode(LEASES, &key, &value)?;
            self.leases.load(key, self.rev, body);
        }
        self.leases.floor = self.rev;
        Ok(())
    }
}

/// Two processes on one file would both count revisions: the second is refused.
pub(super) fn lock(path: &Path) -> Result<File, SchemaError> {
    let io = |e: io::Error| SchemaError::Io("its lock", e);
    let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(with_suffix(path, "-lock")).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(SchemaError::Locked),
        Err(std::fs::TryLockError::Error(error)) => Err(io(error)),
    }
}

/// A connection to the file or, if requested, to its copy.
fn usable(path: &Path, restore: bool) -> Result<Connection, SchemaError> {
    let gone = std::fs::metadata(path).map_or(true, |file| file.len() == 0);
    let copy = copy_of(path);
    let found = if gone && copy.exists() {
        Err(SchemaError::Damaged("it is missing or empty, and its copy is there".to_owned()))
    } else {
        patiently(&PAUSES.map(Duration::from_secs), || connect(path))
    };
    let damage = match found {
        Err(damage) if damage.is_damage() && copy.exists() => damage,
        other => return other,
    };
    let made = std::fs::metadata(&copy).and_then(|copy| copy.modified()).ok();
    let made =
        made.and_then(|at| jiff::Timestamp::try_from(at).ok()).map_or(String::new(), |at| format!(" of {at:.0}"));
    if !restore {
        return Err(SchemaError::Copied { damage: damage.to_string(), made });
    }
    log::error!("state file {}: {damage}", path.display());
    put_back(path, &copy)?;
    log::error!(
        "state file {}: its copy{made} takes its place: what was written since is lost; the damaged file is kept as {}",
        path.display(),
        beside(path, "damaged").display(),
    );
    connect(path)
}

/// Tries again while the disk does not answer.
fn patiently<T>(pauses: &[Duration], mut attempt: impl FnMut() -> Result<T, SchemaError>) -> Result<T, SchemaError> {
    for pause in pauses {
        match attempt() {
            Err(error) if error.may_pass() => {
                log::error!("the state file cannot be read, next attempt in {} s: {error}", pause.as_secs());
                std::thread::sleep(*pause);
            }
            other => return other,
        }
    }
    attempt()
}

fn connect(path: &Path) -> Result<Connection, SchemaError> {
    let mut conn = Connection::open(path)?;
    // It holds Secrets. SQLite gives its journals the mode of the file, so this comes before the first write.
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(|e| SchemaError::Io("its mode", e))?;
    schema::prepare(&mut conn)?;
    conn.set_prepared_statement_cache_capacity(32);
    Ok(conn)
}

/// Puts the copy in the file's place, whole or not at all, with a counter that no watcher has seen the like of.
fn put_back(path: &Path, copy: &Path) -> Result<(), SchemaError> {
    let new = beside(path, "new");
    let fill = || -> io::Result<()> {
        // Whatever an attempt before this one has left.
        for suffix in ["", "-journal", "-wal", "-shm"] {
            remove_if_there(&with_suffix(&new, suffix))?;
        }
        std::fs::copy(copy, &new)?;
        std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        jump(path, &new).map_err(io::Error::other)?;
        File::open(&new)?.sync_all()?;
        let damaged = beside(path, "damaged");
        for suffix in ["-wal", "-shm", ""] {
            let from = with_suffix(path, suffix);
            if from.exists() {
                std::fs::rename(from, with_suffix(&damaged, suffix))?;
            }
        }
        std::fs::rename(&new, path)?;
        sync_folder(path)
    };
    fill().map_err(|e| SchemaError::Io("it is damaged, and its copy cannot take its place", e))
}

/// Turns a copy into the state that the API continues with: new revisions, and without objects whose deletion was
/// acknowledged.
fn jump(path: &Path, new: &Path) -> Result<(), SchemaError> {
    let mut conn = Connection::open(new)?;
    schema::prepare(&mut conn)?;
    // One file again, with no log beside it.
    conn.pragma_update(None, "journal_mode", "DELETE")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    let last: Option<i64> = conn.query_row("SELECT max(rev) FROM changes", [], |row| row.get(0))?;
    let ceiling: Option<i64> =
        conn.query_row("SELECT value FROM facts WHERE name = 'ceiling'", [], |row| row.get(0)).optional()?;
    let next = last.max(ceiling).map_or(0, i64::cast_unsigned) + RESTORE_JUMP;
    let tx = conn.transaction()?;
    tx.execute("DELETE FROM changes", [])?;
    set_fact(&tx, "ceiling", next)?;
    set_fact(&tx, "floor", next)?;
    let gone = gone::delete(path, &tx).map_err(|e| SchemaError::Io("what was deleted for good", e))?;
    bodies::forget_replaced(&tx)?;
    tx.commit()?;
    if gone > 0 {
        log::warn!("the copy had {gone} nodes and join tokens that were deleted or used since: they stay so");
    }
    Ok(())
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> SchemaError {
        SchemaError::Sqlite(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_READ),
            None,
        ))
    }

    #[test]
    fn a_disk_that_does_not_answer_is_asked_again() {
        let pauses = [Duration::from_millis(1); 3];
        let mut left = 2;
        let found = patiently(&pauses, || {
            left -= 1;
            if left >= 0 { Err(failed()) } else { Ok(7) }
        });
        assert_eq!(found.ok(), Some(7));
        let mut attempts = 0;
        let lost: Result<(), _> = patiently(&pauses, || {
            attempts += 1;
            Err(failed())
        });
        assert!(lost.is_err_and(|error| error.is_damage()));
        assert_eq!(attempts, 4);
        let mut attempts = 0;
        let other: Result<(), _> = patiently(&pauses, || {
            attempts += 1;
            Err(SchemaError::Damaged(String::new()))
        });
        assert!(other.is_err() && attempts == 1, "damage does not pass");
    }
}
