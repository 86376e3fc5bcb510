//! The past of the storage: changes since a revision, and forgetting them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::extent::{Most, Walked};
use super::leases::LEASES;
use super::rows::{place, unsigned};
use super::snapshot::BEFORE;
use super::write::set_fact;
use super::{Change, ChangeKind, Store, StoreError, Stored, bodies};
use apimachinery::key::ObjectKey;

/// Changes of all storages. Without what they replaced, which SQLite would read of each.
pub(super) const CHANGES: &str =
    "SELECT rev, storage, ns, name, kind FROM changes WHERE rev > ?1 AND rev <= ?2 ORDER BY rev";

/// A change as its row has it: revision, key, kind, and the state that it replaced.
type Row = (u64, ObjectKey, i64, Option<Vec<u8>>);

/// Changes that are forgotten in one go, and expired objects that are dropped in one: each is a row with its body and index,
/// a few milliseconds for all.
const TRIM_ROWS: usize = 96;
const DROPPED: u32 = 16;

/// A revision older than the history that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub asked: u64,
    /// The oldest revision that can be read.
    pub oldest: u64,
}

impl Store {
    /// Whether the state and the changes since `rev` are still known.
    pub(crate) fn knows(&self, storage: &str, rev: u64) -> Result<(), Expired> {
        let oldest = if storage == LEASES { self.leases.floor } else { self.floor };
        if rev < oldest {
            return Err(Expired { asked: rev, oldest });
        }
        Ok(())
    }

    /// The first changes of one storage after `rev` and up to `until`, in order, and after which revision to ask for the next
    /// ones, if there may be more. Call `knows` first.
    pub(crate) fn since(
        &self,
        storage: &str,
        namespace: Option<&str>,
        (rev, until): (u64, u64),
        most: Most,
    ) -> Result<(Vec<Change>, Option<u64>), StoreError> {
        if storage == LEASES {
            let changes: Vec<_> = self.leases.since(namespace, rev).filter(|change| change.rev <= until).collect();
            let next = changes.get(most.items.wrapping_sub(1)).filter(|_| changes.len() > most.items);
            let next = next.map(|last| last.rev);
            return Ok((changes.into_iter().take(most.items).cloned().collect(), next));
        }
        let read = || {
            let (mut statement, mut replaced) = (self.conn.prepare_cached(CHANGES)?, self.conn.prepare_cached(BEFORE)?);
            let mut found = statement.query(params![rev.cast_signed(), until.cast_signed()])?;
            let (mut rows, mut walked, mut last) = (Vec::<Row>::new(), Walked::default(), rev);
            while let Some(row) = found.next()? {
                if walked.enough(&most, rows.len()) {
                    return Ok((rows, Some(last)));
                }
                last = unsigned(row, 0)?;
                let of = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
                if of.0 != storage || namespace.is_some_and(|namespace| of.1 != namespace) {
                    // Changes of others are walked over, too.
                    walked.over(0);
                    continue;
                }
                let key = ObjectKey { namespace: of.1.to_owned(), name: row.get(3)? };
                let before = replaced.query_row([last.cast_signed()], |row| bodies::read(&self.conn, row, 0))?;
                walked.over(before.as_ref().map_or(0, Vec::len));
                rows.push((last, key, row.get(4)?, before));
            }
            Ok((rows, None))
        };
        let (rows, next) = read().map_err(|e| self.sql(e))?;
        // The state after a change is what the next change of its key replaced: walk backwards.
        let mut newer: BTreeMap<ObjectKey, Option<Arc<Stored>>> = BTreeMap::new();
        let mut changes = Vec::with_capacity(rows.len());
        for (rev, key, kind, before) in rows.into_iter().rev() {
            let before: Option<Arc<Stored>> = before.map(|bytes| Arc::new(Stored::replaced(key.clone(), bytes)));
            let after = match newer.insert(key.clone(), before.clone()) {
                Some(next) => next,
                None => self.made(storage, &key, rev)?,
            };
            let change = match (kind, before, after) {
                (2, Some(before), _) => {
                    let object = before.at(rev);
                    Change { rev, kind: ChangeKind::Deleted, object, before: Some(before) }
                }
                (1, Some(before), Some(object)) => {
                    Change { rev, kind: ChangeKind::Modified, object, before: Some(before) }
                }
                (0, _, Some(object)) => Change { rev, kind: ChangeKind::Added, object, before: None },
                _ => continue,
            };
            changes.push(change);
        }
        changes.reverse();
        Ok((changes, next))
    }

    /// The state of the object after the change with this revision.
    pub(super) fn made(&self, storage: &str, key: &ObjectKey, rev: u64) -> Result<Option<Arc<Stored>>, StoreError> {
        let next: Option<Option<Vec<u8>>> = self
            .conn
            .prepare_cached(
                "SELECT before FROM changes WHERE storage = ?1 AND ns = ?2 AND name = ?3 AND rev > ?4 \
                 ORDER BY rev LIMIT 1",
            )
            .and_then(|mut statement| {
                statement
                    .query_row(params![storage, key.namespace, key.name, rev.cast_signed()], |row| {
                        bodies::read(&self.conn, row, 0)
                    })
                    .optional()
            })
            .map_err(|e| self.sql(e))?;
        match next {
            Some(before) => Ok(before.map(|bytes| Arc::new(Stored::replaced(key.clone(), bytes)))),
            None => self.get(storage, key),
        }
    }

    /// Drops history beyond its limits and expired objects, a few at a time because the writer waits. Returns whether
    /// there is more.
    pub(super) fn trim(&mut self) -> Result<bool, StoreError> {
        let now = self.clock.now();
        // First the part to which a deletion adds.
        if let Some(last) = self.past.beyond(&self.history, now, TRIM_ROWS) {
            self.compact(last)?;
        }
        let expired = self.drop_expired(now)?;
        Ok(expired || self.past.beyond(&self.history, now, 1).is_some())
    }

    /// Deletes the history up to and including `rev`.
    pub(crate) fn compact(&mut self, rev: u64) -> Result<(), StoreError> {
        if rev <= self.floor {
            return Ok(());
        }
        self.conn
            .unchecked_transaction()
            .and_then(|tx| {
                bodies::forget(&tx, rev)?;
                tx.execute("DELETE FROM changes WHERE rev <= ?1", [rev.cast_signed()])?;
                set_fact(&tx, "floor", rev)?;
                tx.commit()
            })
            .map_err(|e| self.sql(e))?;
        self.floor = rev;
        self.past.forget(rev);
        Ok(())
    }

    /// Whether there are more than were dropped.
    fn drop_expired(&mut self, now: i64) -> Result<bool, StoreError> {
        let expired: Vec<(String, ObjectKey)> = self
            .conn
            .prepare_cached("SELECT storage, ns, name FROM objects WHERE expires < ?1 LIMIT ?2")
            .and_then(|mut statement| statement.query_map(params![now, DROPPED], place)?.collect())
            .map_err(|e| self.sql(e))?;
        let more = expired.len() >= DROPPED as usize;
        for (storage, key) in expired {
            if let Some(stored) = self.get(&storage, &key)? {
                self.delete(&storage, &stored)?;
            }
        }
        Ok(more)
    }
}

impl Store {
    /// Deletes the oldest expiring objects beyond the limit: some at a time, because it runs within a write.
    pub(super) fn drop_oldest(&mut self) -> Result<(), StoreError> {
        const AT_ONCE: i64 = 16;
        let oldest: Vec<(String, ObjectKey)> = self
            .conn
            .prepare_cached(
                "SELECT storage, ns, name FROM objects WHERE expires IS NOT NULL ORDER BY expires, rev LIMIT ?1",
            )
            .and_then(|mut statement| statement.query_map([AT_ONCE], place)?.collect())
            .map_err(|e| self.sql(e))?;
        for (storage, key) in oldest {
            if self.expiring <= self.history.expiring {
                break;
            }
            if let Some(stored) = self.get(&storage, &key)? {
                self.delete(&storage, &stored)?;
            }
        }
        Ok(())
    }
}
