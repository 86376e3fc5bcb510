//! Writing and deleting objects, each in one transaction of the file, and the counter that every write takes a
//! revision from.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::gone;
use super::keeper;
use super::leases::{self, LEASES};
use super::past::Row;
use super::rows::{insert_change, owners_of, set_owners};
use super::{Change, ChangeKind, Store, StoreError, Stored, bodies};
use apimachinery::key::ObjectKey;
use apimachinery::meta;

/// Number of writes between two trims of the watch history: fewer than one trim removes.
const TRIM_EVERY: u64 = 64;
/// Replaces the body of an object, and what has no index: SQLite writes the index of each column that is named here, also of
/// an equal value.
pub(super) const REPLACE: &str = "UPDATE objects SET rev = ?4, body = ?5 WHERE storage = ?1 AND ns = ?2 AND name = ?3";
/// The ceiling of revisions rises in steps of this size.
const CEILING_STEP: u64 = 1_000_000;

impl Store {
    /// Writes an object: creation without `before`, replacement with it. Sets its resourceVersion and notifies the
    /// watchers. `life`: how long the object stays without another write (events).
    pub(crate) fn write(
        &mut self,
        storage: &str,
        mut value: Value,
        before: Option<&Arc<Stored>>,
        life: Option<Duration>,
    ) -> Result<Arc<Stored>, StoreError> {
        let key = ObjectKey::of(&value);
        let rev = self.next_revision()?;
        meta::set(&mut value, "resourceVersion", rev.to_string().into());
        let body = self.encode(storage, &key, &value)?;
        let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        let only_renews = storage == LEASES && before.is_some_and(|b| leases::only_renews(b.value(), &value));
        if !only_renews {
            let now = self.clock.now();
            let expires = life.map(|life| now.saturating_add(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)));
            let owners = owners_of(&value);
            let old_owners = before.map(|b| owners_of(b.head())).unwrap_or_default();
            let tx = self.conn.unchecked_transaction().map_err(|e| self.sql(e))?;
            let put = || {
                // The history of Leases is in memory.
                if storage != LEASES {
                    insert_change(&tx, storage, &key, rev, kind, now)?;
                }
                let uid = meta::text(&value, "uid");
                match before.filter(|before| expires.is_none() && meta::text(before.head(), "uid") == uid) {
                    Some(_) => replace(&tx, storage, &key, rev, &body)?,
                    None => put(&tx, storage, &key, rev, &body, uid, expires, before.is_some())?,
                }
                set_owners(&tx, storage, &key, &old_owners, &owners)
            };
            put().and_then(|()| tx.commit()).map_err(|e| self.sql(e))?;
            self.wrote(storage, (rev, now), body.len(), before);
            if life.is_some() {
                let less = before.map_or(0, |before| before.body.len() as u64);
                self.expiring = self.expiring.saturating_sub(less).saturating_add(body.len() as u64);
            }
        }
        self.rev = rev;
        let stored = Arc::new(Stored::new(key, rev, body));
        let _ = stored.value.set(value);
        let change = Change { rev, kind, object: Arc::clone(&stored), before: before.cloned() };
        self.announce(storage, change, only_renews);
        if life.is_some() && self.expiring > self.history.expiring {
            // The write that found it is valid.
            if let Err(error) = self.drop_oldest() {
                log::warn!("removing the oldest events: {error}");
            }
        }
        Ok(stored)
    }

    /// Removes an object. Returns its last state with the revision of the deletion.
    pub(crate) fn delete(&mut self, storage: &str, before: &Arc<Stored>) -> Result<Arc<Stored>, StoreError> {
        let key = &before.key;
        if gone::is_final(storage, before) {
            let noted = gone::note(&self.path, storage, key, before.head());
            noted.map_err(|e| StoreError::Unsynced { path: self.path.clone(), reason: e.to_string() })?;
        }
        let rev = self.next_revision()?;
        let last = before.at(rev);
        let now = self.clock.now();
        let tx = self.conn.unchecked_transaction().map_err(|e| self.sql(e))?;
        let delete = || {
            if storage != LEASES {
                insert_change(&tx, storage, key, rev, ChangeKind::Deleted, now)?;
            }
            let sql = "DELETE FROM objects WHERE storage = ?1 AND ns = ?2 AND name = ?3 RETURNING expires";
            let expires: Option<Option<i64>> = tx
                .prepare_cached(sql)?
                .query_row(params![storage, key.namespace, key.name], |row| row.get(0))
                .optional()?;
            set_owners(&tx, storage, key, &owners_of(before.head()), &[])?;
            Ok(expires.flatten().is_some())
        };
        let expires = delete().and_then(|expires| tx.commit().map(|()| expires)).map_err(|e| self.sql(e))?;
        if expires {
            self.expiring = self.expiring.saturating_sub(before.body.len() as u64);
        }
        self.wrote(storage, (rev, now), 0, Some(before));
        self.rev = rev;
        let kind = ChangeKind::Deleted;
        self.announce(
            storage,
            Change { rev, kind, object: Arc::clone(&last), before: Some(Arc::clone(before)) },
            false,
        );
        Ok(last)
    }

    /// The revision of the next write.
    fn next_revision(&mut self) -> Result<u64, StoreError> {
        // Long before it is needed: the ceiling is on the disk before a revision above the last one is seen.
        if self.rev.saturating_add(CEILING_STEP / 2) >= self.ceiling {
            self.raise_ceiling(self.rev + CEILING_STEP)?;
        }
        Ok(self.rev + 1)
    }

    /// Writes down that revisions below `ceiling` may be given out.
    pub(super) fn raise_ceiling(&mut self, ceiling: u64) -> Result<(), StoreError> {
        set_fact(&self.conn, "ceiling", ceiling).map_err(|e| self.sql(e))?;
        self.ceiling = ceiling;
        self.syncer.wrote_more();
        Ok(())
    }

    /// A transaction is in the file: the object has `bytes` now, or 0 if it was deleted.
    fn wrote(&mut self, storage: &str, (rev, at): (u64, i64), bytes: usize, before: Option<&Arc<Stored>>) {
        self.written = rev;
        let replaced = before.map_or(0, |before| before.body.len());
        if storage != LEASES {
            self.past.add(Row { rev, at, bytes: replaced as u64 });
        }
        let pages = keeper::pages(bytes, replaced);
        self.syncer.wrote(rev, pages.saturating_mul(keeper::PAGE), bodies::apart(bytes));
        self.keeper.wrote(pages);
    }

    /// Writes data that is only in memory, before a regular end.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        if self.ceiling == 0 {
            // It was never open.
            return Ok(());
        }
        let tx = self.conn.unchecked_transaction().map_err(|e| self.sql(e))?;
        let write = || {
            for (key, rev, body) in self.leases.renewed() {
                tx.prepare_cached(REPLACE)?.execute(params![
                    LEASES,
                    key.namespace,
                    key.name,
                    rev.cast_signed(),
                    body.as_ref()
                ])?;
            }
            set_fact(&tx, "ceiling", self.rev + 1)
        };
        write().and_then(|()| tx.commit()).map_err(|e| self.sql(e))?;
        self.leases.settled();
        self.ceiling = self.rev + 1;
        self.written = self.rev;
        self.syncer.wrote(self.rev, 0, 0);
        Ok(())
    }

    fn announce(&mut self, storage: &str, change: Change, only_renews: bool) {
        if storage == LEASES {
            self.leases.took(&change, change.kind == ChangeKind::Deleted, only_renews);
        }
        self.subscribers.send(storage, &change, only_renews);
        self.writes += u64::from(!only_renews);
        if !only_renews && (self.past.is_too_large(&self.history) || self.writes.is_multiple_of(TRIM_EVERY)) {
            // History that stays too long is not a reason to fail this write.
            if let Err(error) = self.trim() {
                log::warn!("trimming the watch history: {error}");
            }
        }
    }

    pub(super) fn encode(&self, storage: &str, key: &ObjectKey, value: &Value) -> Result<Vec<u8>, StoreError> {
        let mut body = serde_json::to_vec(value).map_err(|e| StoreError::Body {
            storage: storage.to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            reason: e.to_string(),
        })?;
        // It is kept, in queues and as a Lease, and may have up to twice the room that it needs.
        body.shrink_to_fit();
        Ok(body)
    }
}

/// Replaces an object of the same uid and expiry.
fn replace(conn: &Connection, storage: &str, key: &ObjectKey, rev: u64, body: &[u8]) -> rusqlite::Result<()> {
    let body = bodies::keep(conn, storage, rev, body)?;
    let columns = params![storage, key.namespace, key.name, rev.cast_signed(), body];
    conn.prepare_cached(REPLACE)?.execute(columns).map(drop)
}

#[expect(clippy::too_many_arguments, reason = "the columns of one row")]
fn put(
    conn: &Connection,
    storage: &str,
    key: &ObjectKey,
    rev: u64,
    body: &[u8],
    uid: &str,
    expires: Option<i64>,
    replaces: bool,
) -> rusqlite::Result<()> {
    let sql = if replaces {
        "UPDATE objects SET rev = ?4, body = ?5, uid = ?6, expires = ifnull(?7, expires) \
         WHERE storage = ?1 AND ns = ?2 AND name = ?3"
    } else {
        "INSERT INTO objects (storage, ns, name, rev, body, uid, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    };
    let body = bodies::keep(conn, storage, rev, body)?;
    let columns = params![storage, key.namespace, key.name, rev.cast_signed(), body, uid, expires];
    conn.prepare_cached(sql)?.execute(columns).map(drop)
}

pub(super) fn set_fact(conn: &Connection, name: &str, value: u64) -> rusqlite::Result<()> {
    conn.prepare_cached("INSERT OR REPLACE INTO facts (name, value) VALUES (?1, ?2)")?
        .execute(params![name, value.cast_signed()])
        .map(drop)
}
