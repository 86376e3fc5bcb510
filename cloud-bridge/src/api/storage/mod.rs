//! Objects and their history in one SQLite file, and the watchers of both. The only code that writes SQL.
//!
//! Every write takes the next number of one counter, which is the resourceVersion. Knows keys, bodies and
//! revisions; the only fields of an object that it reads are in `metadata`.

mod batch;
mod history;
mod rows;
mod schema;
mod subscribers;
#[cfg(test)]
mod tests;

use edge_protocol::json::SetField;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::resource::ObjectKey;
use batch::Batch;
pub(super) use batch::LEASES;
use rows::{deleted_state, insert_change, owners_of, place, seconds, set_owners, unsigned};
pub(super) use subscribers::Subscription;

/// Watch history is trimmed once in so many writes.
const TRIM_EVERY: u64 = 1024;

/// Why the storage failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state file cannot be used; it is left as it is.
    #[error("state file {}: {reason}", path.display())]
    Open { path: PathBuf, reason: String },
    /// A statement failed.
    #[error("state file {}: {source}", path.display())]
    Sql { path: PathBuf, source: rusqlite::Error },
    /// A stored body is no JSON object.
    #[error("stored object {storage} {namespace}/{name}: {reason}")]
    Body { storage: String, namespace: String, name: String, reason: String },
}

/// One stored state of one object.
#[derive(Debug)]
pub(super) struct Stored {
    pub key: ObjectKey,
    pub rev: u64,
    /// JSON without kind and apiVersion.
    pub body: Bytes,
    value: OnceLock<Value>,
}

impl Stored {
    fn new(key: ObjectKey, rev: u64, body: impl Into<Bytes>) -> Self {
        Self { key, rev, body: body.into(), value: OnceLock::new() }
    }

    /// This state as if it had been written at `rev`: what a watch shows of an object that left it.
    pub(super) fn at(&self, rev: u64) -> Arc<Self> {
        deleted_state(self, rev)
    }

    /// The parsed body. Null when the row is damaged, which `quick_check` at opening makes improbable.
    pub(super) fn value(&self) -> &Value {
        self.value.get_or_init(|| serde_json::from_slice(&self.body).unwrap_or_default())
    }
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Added = 0,
    Modified = 1,
    Deleted = 2,
}

/// One write, as watchers see it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub rev: u64,
    pub kind: ChangeKind,
    /// The new state; for a deletion the last state with the revision of the deletion.
    pub object: Arc<Stored>,
    /// The state before; `None` for an addition.
    pub before: Option<Arc<Stored>>,
}

/// The storage.
pub(super) struct Store {
    conn: Connection,
    path: PathBuf,
    rev: u64,
    /// Changes after this revision are all in `changes`.
    floor: u64,
    /// Revisions in `(0, 1]` were perhaps given out by a run that lost power before they were durable.
    gap: (u64, u64),
    history: Duration,
    history_rows: u64,
    writes: u64,
    batch: Batch,
    /// As `floor`, for Leases, whose history is shorter.
    leases_floor: u64,
    subscribers: subscribers::Subscribers,
}

/// How far the counter jumps at opening: a revision that was shown to a client and then lost with the
/// power must not name another state later.
const REOPEN_JUMP: u64 = 1000;

impl Store {
    /// Opens or creates the file.
    ///
    /// # Errors
    /// `StoreError::Open` names the file; nothing is changed in a file that cannot be used.
    pub(super) fn open(path: &Path, history: Duration, history_rows: u64) -> Result<Self, StoreError> {
        let fail = |reason: String| StoreError::Open { path: path.to_owned(), reason };
        let mut conn = Connection::open(path).map_err(|e| fail(e.to_string()))?;
        // It holds Secrets. SQLite gives its journals the mode of the file, so this comes before the first write.
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(|e| fail(e.to_string()))?;
        schema::prepare(&mut conn).map_err(|e| fail(e.to_string()))?;
        conn.set_prepared_statement_cache_capacity(32);
        let last: Option<u64> = conn
            .query_row("SELECT max(rev) FROM changes", [], |row| row.get::<_, Option<i64>>(0))
            .map_err(|e| fail(e.to_string()))?
            .map(i64::cast_unsigned);
        let floor: Option<i64> = conn
            .query_row("SELECT value FROM facts WHERE name = 'floor'", [], |row| row.get(0))
            .optional()
            .map_err(|e| fail(e.to_string()))?;
        let (rev, gap) = match last {
            Some(last) => (last + REOPEN_JUMP, (last, last + REOPEN_JUMP)),
            None => (1, (0, 0)),
        };
        Ok(Self {
            conn,
            path: path.to_owned(),
            rev,
            floor: floor.map_or(0, i64::cast_unsigned),
            gap,
            history,
            history_rows,
            writes: 0,
            batch: Batch::default(),
            leases_floor: last.unwrap_or_default(),
            subscribers: subscribers::Subscribers::default(),
        })
    }

    fn sql(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Sql { path: self.path.clone(), source }
    }

    /// The newest revision.
    pub(super) fn revision(&self) -> u64 {
        self.rev
    }

    /// One object.
    pub(super) fn get(&self, storage: &str, key: &ObjectKey) -> Result<Option<Arc<Stored>>, StoreError> {
        self.conn
            .prepare_cached("SELECT rev, body FROM objects WHERE storage = ?1 AND ns = ?2 AND name = ?3")
            .and_then(|mut statement| {
                statement
                    .query_row(params![storage, key.namespace, key.name], |row| {
                        Ok(Arc::new(Stored::new(key.clone(), unsigned(row, 0)?, row.get::<_, Vec<u8>>(1)?)))
                    })
                    .optional()
            })
            .map_err(|e| self.sql(e))
    }

    /// Objects of one storage in key order, at most `limit` after `after`.
    pub(super) fn list(
        &self,
        storage: &str,
        namespace: Option<&str>,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Result<Vec<Arc<Stored>>, StoreError> {
        let (after_ns, after_name) = after.map_or(("", ""), |key| (key.namespace.as_str(), key.name.as_str()));
        let limit = limit.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
        let sql = if namespace.is_some() {
            "SELECT ns, name, rev, body FROM objects WHERE storage = ?1 AND ns = ?2 AND name > ?4 \
             AND ?3 = ?3 ORDER BY name LIMIT ?5"
        } else {
            "SELECT ns, name, rev, body FROM objects WHERE storage = ?1 AND (ns, name) > (?3, ?4) \
             AND ?2 = ?2 ORDER BY ns, name LIMIT ?5"
        };
        self.conn
            .prepare_cached(sql)
            .and_then(|mut statement| {
                let rows = statement.query_map(
                    params![storage, namespace.unwrap_or(""), after_ns, after_name, limit],
                    |row| {
                        let key = ObjectKey { namespace: row.get(0)?, name: row.get(1)? };
                        Ok(Arc::new(Stored::new(key, unsigned(row, 2)?, row.get::<_, Vec<u8>>(3)?)))
                    },
                )?;
                rows.collect()
            })
            .map_err(|e| self.sql(e))
    }

    /// How many objects of one storage come after `after`.
    pub(super) fn count(&self, storage: &str, namespace: Option<&str>, after: &ObjectKey) -> Result<u64, StoreError> {
        self.conn
            .prepare_cached(
                "SELECT count(*) FROM objects WHERE storage = ?1 AND (?2 = '' OR ns = ?2) AND (ns, name) > (?3, ?4)",
            )
            .and_then(|mut statement| {
                statement.query_row(params![storage, namespace.unwrap_or(""), after.namespace, after.name], |row| {
                    unsigned(row, 0)
                })
            })
            .map_err(|e| self.sql(e))
    }

    /// Writes an object: creation without `before`, replacement with it. Sets its resourceVersion and tells
    /// the watchers. `expires` is when the object may be dropped (events).
    pub(super) fn write(
        &mut self,
        storage: &str,
        mut value: Value,
        before: Option<&Arc<Stored>>,
        expires: Option<SystemTime>,
    ) -> Result<Arc<Stored>, StoreError> {
        let key = ObjectKey::of(&value);
        let rev = self.rev + 1;
        value.set_at(&["metadata", "resourceVersion"], rev.to_string().into());
        let bytes = self.encode(storage, &key, &value)?;
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
        let owners = owners_of(&value);
        let old_owners = before.map(|b| owners_of(b.value())).unwrap_or_default();
        let now = seconds(SystemTime::now());
        let shared = storage == LEASES && before.is_some() && owners == old_owners;
        let into = |conn: &Connection| {
            let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
            insert_change(conn, storage, &key, rev, kind, now, before)?;
            if before.is_some() {
                conn.prepare_cached(
                    "UPDATE objects SET rev = ?4, body = ?5, uid = ?6, expires = ifnull(?7, expires) \
                     WHERE storage = ?1 AND ns = ?2 AND name = ?3",
                )?
            } else {
                conn.prepare_cached(
                    "INSERT INTO objects (storage, ns, name, rev, body, uid, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
            }
            .execute(params![
                storage,
                key.namespace,
                key.name,
                rev.cast_signed(),
                bytes.as_slice(),
                uid,
                expires.map(seconds)
            ])?;
            if owners != old_owners {
                set_owners(conn, storage, &key, &old_owners, &owners)?;
            }
            Ok(())
        };
        let written = if shared {
            let begun = self.batch.begin(&self.conn).and_then(|()| into(&self.conn));
            begun.and_then(|()| self.batch.wrote(&self.conn)).inspect_err(|_| self.batch.abandon(&self.conn))
        } else {
            self.batch.flush(&self.conn).and_then(|()| {
                let tx = self.conn.unchecked_transaction()?;
                into(&tx)?;
                tx.commit()
            })
        };
        written.map_err(|e| self.sql(e))?;
        self.rev = rev;
        let stored = Arc::new(Stored::new(key, rev, bytes));
        let _ = stored.value.set(value);
        let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.announce(storage, Change { rev, kind, object: Arc::clone(&stored), before: before.cloned() });
        Ok(stored)
    }

    /// Removes an object. Returns its last state with the revision of the deletion.
    pub(super) fn delete(&mut self, storage: &str, before: &Arc<Stored>) -> Result<Arc<Stored>, StoreError> {
        let rev = self.rev + 1;
        let key = before.key.clone();
        let last = deleted_state(before, rev);
        let now = seconds(SystemTime::now());
        self.flush()?;
        let written =
            self.conn.unchecked_transaction().and_then(|tx| {
                insert_change(&tx, storage, &key, rev, ChangeKind::Deleted, now, Some(before))?;
                tx.prepare_cached("DELETE FROM objects WHERE storage = ?1 AND ns = ?2 AND name = ?3")?
                    .execute(params![storage, key.namespace, key.name])?;
                set_owners(&tx, storage, &key, &owners_of(before.value()), &[])?;
                tx.commit()
            });
        written.map_err(|e| self.sql(e))?;
        self.rev = rev;
        self.announce(
            storage,
            Change { rev, kind: ChangeKind::Deleted, object: Arc::clone(&last), before: Some(Arc::clone(before)) },
        );
        Ok(last)
    }

    /// Commits what waits to be committed with others.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        let flushed = self.batch.flush(&self.conn);
        flushed.map_err(|e| self.sql(e))
    }

    fn announce(&mut self, storage: &str, change: Change) {
        self.subscribers.send(storage, change);
        self.writes += 1;
        if self.writes.is_multiple_of(TRIM_EVERY) {
            // History that stays too long is no reason to fail the write that found it.
            if let Err(error) = self.trim() {
                log::warn!("trimming the watch history: {error}");
            }
        }
    }

    /// Where every object with this uid is stored.
    pub(super) fn by_uid(&self, uid: &str) -> Result<Option<(String, ObjectKey)>, StoreError> {
        self.conn
            .prepare_cached("SELECT storage, ns, name FROM objects WHERE uid = ?1")
            .and_then(|mut statement| statement.query_row([uid], place).optional())
            .map_err(|e| self.sql(e))
    }

    /// The objects whose ownerReferences name this uid.
    pub(super) fn dependents(&self, uid: &str) -> Result<Vec<(String, ObjectKey)>, StoreError> {
        self.conn
            .prepare_cached("SELECT storage, ns, name FROM owners WHERE owner = ?1")
            .and_then(|mut statement| statement.query_map([uid], place)?.collect())
            .map_err(|e| self.sql(e))
    }

    /// Every uid that is named as an owner.
    pub(super) fn owner_uids(&self) -> Result<Vec<String>, StoreError> {
        self.conn
            .prepare("SELECT DISTINCT owner FROM owners")
            .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
            .map_err(|e| self.sql(e))
    }

    /// The storages that hold something in this namespace.
    pub(super) fn storages_in(&self, namespace: &str) -> Result<Vec<String>, StoreError> {
        self.conn
            .prepare("SELECT DISTINCT storage FROM objects WHERE ns = ?1")
            .and_then(|mut statement| statement.query_map([namespace], |row| row.get(0))?.collect())
            .map_err(|e| self.sql(e))
    }

    fn encode(&self, storage: &str, key: &ObjectKey, value: &Value) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec(value).map_err(|e| StoreError::Body {
            storage: storage.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            reason: e.to_string(),
        })
    }
}
