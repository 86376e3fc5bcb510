//! Durable state of the node, in one SQLite file. The only module that writes SQL; it knows rows and durability, not
//! what a pod does with them.
//!
//! Two kinds of commit. *Durable*: synced to the medium before it returns, so that reported data is safe. *Batched*:
//! safe against the death of the process, synced later by SQLite; a power cut ends every container anyway. An idle node
//! writes nothing.

mod copy;
mod device_messages;
mod devices;
mod error;
mod facts;
mod files;
pub mod image_record;
mod images;
mod memory;
mod objects;
mod open;
mod outbox;
mod pods;
mod salvage;
mod schema;
pub mod secrets;
mod sync;
mod tokens;

use std::path::{Path, PathBuf};

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior};

use crate::counters;
use crate::paths::Paths;
use crate::sys::reserve::Reserve;

pub use device_messages::Message;
pub use error::StoreError;
pub use facts::Fact;
pub use open::{Opened, Quarantined};
pub use outbox::{OUTBOX_BYTES, OUTBOX_LIMIT, OUTBOX_TTL_S, OutboxRow, subject as outbox_subject};
pub use pods::StoredPod;

/// The open store.
pub struct Store {
    db: Connection,
    path: PathBuf,
    /// Bodies of Secrets are in a temporary table, see [`secrets`].
    secrets_in_memory: bool,
    /// Whether all commits so far are on the medium. False for a store just opened, because it is unknown.
    synced: bool,
    /// Everything is, see [`memory`].
    in_memory: bool,
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
            self.synced = true;
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
        self.synced = false;
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

    /// Has each write fail from now on, like a disk that takes nothing, or succeed again.
    #[cfg(test)]
    pub(crate) fn refuse_writes(&self, refuse: bool) {
        self.db.pragma_update(None, "query_only", refuse).unwrap();
    }

    /// Has each read of this table fail from now on, like a disk that cannot be read.
    #[cfg(test)]
    pub(crate) fn lose_table(&self, table: &str) {
        self.db.execute_batch(&format!("DROP TABLE {table}")).unwrap();
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

#[cfg(test)]
mod tests;
