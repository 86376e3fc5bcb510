//! The past of the storage: changes since a revision, a list as it was at a revision, and forgetting both.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use rusqlite::{OptionalExtension, Rows, params};

use super::batch::LEASES;
use super::rows::{deleted_state, place, seconds, unsigned};
use super::{Change, ChangeKind, Store, StoreError, Stored};
use crate::api::resource::ObjectKey;

/// Changes of Leases are kept for so many revisions at least.
const LEASE_ROWS: u64 = 4096;

/// Objects of a storage after a place, and what was changed there since a revision (`?4`), both in key order.
const EVERYWHERE: [&str; 2] = [
    "SELECT ns, name, rev, body FROM objects WHERE storage = ?1 AND (ns, name) > (?2, ?3) AND ?4 = ?4
     ORDER BY ns, name",
    "SELECT ns, name, before FROM changes WHERE storage = ?1 AND (ns, name) > (?2, ?3) AND rev > ?4
     ORDER BY ns, name, rev",
];
const IN_NAMESPACE: [&str; 2] = [
    "SELECT ns, name, rev, body FROM objects WHERE storage = ?1 AND ns = ?2 AND name > ?3 AND ?4 = ?4 ORDER BY name",
    "SELECT ns, name, before FROM changes WHERE storage = ?1 AND ns = ?2 AND name > ?3 AND rev > ?4
     ORDER BY name, rev",
];

/// A revision older than the history that is kept, or one that may have been lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub asked: u64,
    /// The oldest revision that can be asked for.
    pub oldest: u64,
}

impl Store {
    /// Whether the state and the changes since `rev` are still known.
    pub(crate) fn knows(&self, storage: &str, rev: u64) -> Result<(), Expired> {
        let lost = rev > self.gap.0 && rev < self.gap.1;
        let floor = if storage == LEASES { self.floor.max(self.leases_floor) } else { self.floor };
        if rev < floor || lost {
            let oldest = if lost { self.gap.1 } else { floor };
            return Err(Expired { asked: rev, oldest });
        }
        Ok(())
    }

    /// The changes of one storage after `rev`, in order. Call `knows` first.
    pub(crate) fn since(&self, storage: &str, namespace: Option<&str>, rev: u64) -> Result<Vec<Change>, StoreError> {
        let rows: Vec<(u64, ObjectKey, i64, Option<Vec<u8>>)> = self
            .conn
            .prepare_cached(
                "SELECT rev, ns, name, kind, before FROM changes WHERE rev > ?1 AND storage = ?2 \
                 AND (?3 = '' OR ns = ?3) ORDER BY rev",
            )
            .and_then(|mut statement| {
                statement
                    .query_map(params![rev.cast_signed(), storage, namespace.unwrap_or("")], |row| {
                        let key = ObjectKey { namespace: row.get(1)?, name: row.get(2)? };
                        Ok((unsigned(row, 0)?, key, row.get(3)?, row.get(4)?))
                    })?
                    .collect()
            })
            .map_err(|e| self.sql(e))?;
        // What a change made is what the next change of its key replaced: walk backwards.
        let mut newer: BTreeMap<ObjectKey, Option<Arc<Stored>>> = BTreeMap::new();
        let mut changes = Vec::with_capacity(rows.len());
        for (rev, key, kind, before) in rows.into_iter().rev() {
            let before: Option<Arc<Stored>> = before.map(|bytes| Arc::new(replaced(key.clone(), bytes)));
            let after = match newer.insert(key.clone(), before.clone()) {
                Some(next) => next,
                None => self.get(storage, &key)?,
            };
            let change = match (kind, before, after) {
                (2, Some(before), _) => {
                    let object = deleted_state(&before, rev);
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
        Ok(changes)
    }

    /// The first `limit` selected objects after `after`, in key order, as they were at `rev`. Call `knows` first.
    ///
    /// Walks objects and changes side by side and no further than needed: a page of a long list costs what it holds,
    /// not what the list does.
    pub(crate) fn list_at(
        &self,
        storage: &str,
        namespace: Option<&str>,
        rev: u64,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
        select: &dyn Fn(&Stored) -> bool,
    ) -> Result<Vec<Arc<Stored>>, StoreError> {
        let run = || {
            let (after_ns, after_name) = after.map_or(("", ""), |key| (key.namespace.as_str(), key.name.as_str()));
            let place = params![storage, namespace.unwrap_or(after_ns), after_name, rev.cast_signed()];
            let [objects, changes] = if namespace.is_some() { IN_NAMESPACE } else { EVERYWHERE };
            let (mut objects, mut changes) = (self.conn.prepare_cached(objects)?, self.conn.prepare_cached(changes)?);
            let (mut objects, mut changes) = (objects.query(place)?, changes.query(place)?);
            let (mut object, mut change) = (next_object(&mut objects)?, next_change(&mut changes, None)?);
            let mut items = Vec::new();
            while limit.is_none_or(|limit| items.len() < limit) {
                let order = match (&object, &change) {
                    (None, None) => break,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some(object), Some((key, _))) => object.key.cmp(key),
                };
                // What was changed since is what the first change after `rev` replaced; an addition replaced nothing.
                let then =
                    if order.is_lt() { object.take() } else { change.as_mut().and_then(|(_, then)| then.take()) };
                if order.is_le() {
                    object = next_object(&mut objects)?;
                }
                if order.is_ge() {
                    change = next_change(&mut changes, change.map(|(key, _)| key))?;
                }
                items.extend(then.filter(|then| select(then)).map(Arc::new));
            }
            Ok(items)
        };
        run().map_err(|e| self.sql(e))
    }

    /// Drops expired objects, then history beyond its age and row limits.
    pub(super) fn trim(&mut self) -> Result<(), StoreError> {
        let now = seconds(SystemTime::now());
        self.drop_expired(now)?;
        self.flush()?;
        self.trim_leases()?;
        let age = now.saturating_sub(i64::try_from(self.history.as_secs()).unwrap_or(i64::MAX));
        let by_age: Option<i64> = self
            .conn
            .query_row("SELECT rev FROM changes WHERE at < ?1 ORDER BY rev DESC LIMIT 1", [age], |row| row.get(0))
            .optional()
            .map_err(|e| self.sql(e))?;
        let by_rows: Option<i64> = self
            .conn
            .query_row(
                "SELECT rev FROM changes ORDER BY rev DESC LIMIT 1 OFFSET ?1",
                [self.history_rows.cast_signed()],
                |row| row.get(0),
            )
            .optional()
            .map_err(|e| self.sql(e))?;
        // The newest row stays: the counter is read from it.
        let floor = by_age.max(by_rows).map_or(0, i64::cast_unsigned).min(self.rev.saturating_sub(1));
        self.compact(floor)
    }

    /// Renewals of many nodes would leave no room for the history of anything else.
    fn trim_leases(&mut self) -> Result<(), StoreError> {
        let floor = self.rev.saturating_sub(LEASE_ROWS);
        self.conn
            .prepare_cached("DELETE FROM changes WHERE +storage = ?1 AND rev <= ?2")
            .and_then(|mut statement| statement.execute(params![LEASES, floor.cast_signed()]))
            .map_err(|e| self.sql(e))?;
        self.leases_floor = self.leases_floor.max(floor);
        Ok(())
    }

    /// Forgets the history up to and including `rev`.
    pub(crate) fn compact(&mut self, rev: u64) -> Result<(), StoreError> {
        if rev <= self.floor {
            return Ok(());
        }
        self.flush()?;
        self.conn
            .unchecked_transaction()
            .and_then(|tx| {
                tx.execute("DELETE FROM changes WHERE rev <= ?1", [rev.cast_signed()])?;
                tx.execute("INSERT OR REPLACE INTO facts (name, value) VALUES ('floor', ?1)", [rev.cast_signed()])?;
                tx.commit()
            })
            .map_err(|e| self.sql(e))?;
        self.floor = rev;
        Ok(())
    }

    fn drop_expired(&mut self, now: i64) -> Result<(), StoreError> {
        let expired: Vec<(String, ObjectKey)> = self
            .conn
            .prepare_cached("SELECT storage, ns, name FROM objects WHERE expires < ?1 LIMIT 512")
            .and_then(|mut statement| statement.query_map([now], place)?.collect())
            .map_err(|e| self.sql(e))?;
        for (storage, key) in expired {
            if let Some(stored) = self.get(&storage, &key)? {
                self.delete(&storage, &stored)?;
            }
        }
        Ok(())
    }
}

fn next_object(rows: &mut Rows<'_>) -> rusqlite::Result<Option<Stored>> {
    let Some(row) = rows.next()? else { return Ok(None) };
    let key = ObjectKey { namespace: row.get(0)?, name: row.get(1)? };
    Ok(Some(Stored::new(key, unsigned(row, 2)?, row.get::<_, Vec<u8>>(3)?)))
}

/// The first change of the next key, and what it replaced.
fn next_change(rows: &mut Rows<'_>, last: Option<ObjectKey>) -> rusqlite::Result<Option<(ObjectKey, Option<Stored>)>> {
    while let Some(row) = rows.next()? {
        let key = ObjectKey { namespace: row.get(0)?, name: row.get(1)? };
        if last.as_ref() == Some(&key) {
            continue;
        }
        let before = row.get::<_, Option<Vec<u8>>>(2)?.map(|body| replaced(key.clone(), body));
        return Ok(Some((key, before)));
    }
    Ok(None)
}

/// A state that was replaced; its revision is in its body only.
fn replaced(key: ObjectKey, body: Vec<u8>) -> Stored {
    let stored = Stored::new(key, 0, body);
    let rev = stored.value()["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    Stored { rev: rev.unwrap_or(0), ..stored }
}
