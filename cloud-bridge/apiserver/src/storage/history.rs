//! The past of the storage: changes since a revision, a list as it was at a revision, and forgetting both.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Rows, params};

use super::leases::LEASES;
use super::rows::{deleted_state, place, unsigned};
use super::write::set_fact;
use super::{Change, ChangeKind, Store, StoreError, Stored};
use apimachinery::key::ObjectKey;

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

/// A revision older than the history that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub asked: u64,
    /// The oldest revision that can be asked for.
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

    /// The first `most` changes of one storage after `rev` and up to `until`, in order, and after which to ask for the
    /// next ones, if there are more. Call `knows` first.
    pub(crate) fn since(
        &self,
        storage: &str,
        namespace: Option<&str>,
        (rev, until): (u64, u64),
        most: usize,
    ) -> Result<(Vec<Change>, Option<u64>), StoreError> {
        if storage == LEASES {
            let changes: Vec<_> =
                self.leases.since(namespace, rev).filter(|change| change.rev <= until).take(most).cloned().collect();
            let next = changes.last().filter(|_| changes.len() == most).map(|last| last.rev);
            return Ok((changes, next));
        }
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let rows: Vec<(u64, ObjectKey, i64, Option<Vec<u8>>)> = self
            .conn
            .prepare_cached(
                "SELECT rev, ns, name, kind, before FROM changes WHERE rev > ?1 AND storage = ?2 \
                 AND (?3 = '' OR ns = ?3) AND rev <= ?4 ORDER BY rev LIMIT ?5",
            )
            .and_then(|mut statement| {
                statement
                    .query_map(
                        params![rev.cast_signed(), storage, namespace.unwrap_or(""), until.cast_signed(), limit],
                        |row| {
                            let key = ObjectKey { namespace: row.get(1)?, name: row.get(2)? };
                            Ok((unsigned(row, 0)?, key, row.get(3)?, row.get(4)?))
                        },
                    )?
                    .collect()
            })
            .map_err(|e| self.sql(e))?;
        let next = rows.last().filter(|_| rows.len() == most).map(|(rev, ..)| *rev);
        // What a change made is what the next change of its key replaced: walk backwards.
        let mut newer: BTreeMap<ObjectKey, Option<Arc<Stored>>> = BTreeMap::new();
        let mut changes = Vec::with_capacity(rows.len());
        for (rev, key, kind, before) in rows.into_iter().rev() {
            let before: Option<Arc<Stored>> = before.map(|bytes| Arc::new(replaced(key.clone(), bytes)));
            let after = match newer.insert(key.clone(), before.clone()) {
                Some(next) => next,
                None => self.made(storage, &key, rev)?,
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
        Ok((changes, next))
    }

    /// What the change with this revision made of the object.
    fn made(&self, storage: &str, key: &ObjectKey, rev: u64) -> Result<Option<Arc<Stored>>, StoreError> {
        let next: Option<Option<Vec<u8>>> = self
            .conn
            .prepare_cached(
                "SELECT before FROM changes WHERE storage = ?1 AND ns = ?2 AND name = ?3 AND rev > ?4 \
                 ORDER BY rev LIMIT 1",
            )
            .and_then(|mut statement| {
                statement
                    .query_row(params![storage, key.namespace, key.name, rev.cast_signed()], |row| row.get(0))
                    .optional()
            })
            .map_err(|e| self.sql(e))?;
        match next {
            Some(before) => Ok(before.map(|bytes| Arc::new(replaced(key.clone(), bytes)))),
            None => self.get(storage, key),
        }
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
        if storage == LEASES {
            let then = self.leases.at(namespace, rev).into_iter();
            let then = then.filter(|(key, stored)| after.is_none_or(|after| key > after) && select(stored));
            return Ok(then.map(|(_, stored)| stored).take(limit.unwrap_or(usize::MAX)).collect());
        }
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
                items.extend(then.filter(|then| select(then)).map(|then| then.unparsed()));
            }
            Ok(items)
        };
        run().map_err(|e| self.sql(e))
    }

    /// Drops expired objects, then history beyond its limits of age, rows and bytes.
    pub(super) fn trim(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.drop_expired(now)?;
        let age = now.saturating_sub(i64::try_from(self.history.age.as_secs()).unwrap_or(i64::MAX));
        let newest = |sql: &str, limit: i64| -> Result<Option<i64>, StoreError> {
            self.conn.query_row(sql, [limit], |row| row.get(0)).optional().map_err(|e| self.sql(e))
        };
        let by_age = newest("SELECT rev FROM changes WHERE at < ?1 ORDER BY rev DESC LIMIT 1", age)?;
        let by_rows =
            newest("SELECT rev FROM changes ORDER BY rev DESC LIMIT 1 OFFSET ?1", self.history.rows.cast_signed())?;
        let (by_bytes, kept) = self.over_bytes()?;
        // The newest row stays.
        let floor = by_age.max(by_rows).max(by_bytes).map_or(0, i64::cast_unsigned).min(self.written.saturating_sub(1));
        self.history_bytes = kept;
        self.compact(floor)
    }

    /// The newest change before which there are too many bytes of replaced states, and how many bytes come after it. With
    /// some room, so that this is not asked again at once.
    fn over_bytes(&self) -> Result<(Option<i64>, u64), StoreError> {
        let room = self.history.bytes - self.history.bytes / 4;
        let walk = || {
            let mut rows = self.conn.prepare_cached("SELECT rev, length(before) FROM changes ORDER BY rev DESC")?;
            let (mut rows, mut kept) = (rows.query([])?, 0_u64);
            while let Some(row) = rows.next()? {
                let bytes: Option<i64> = row.get(1)?;
                let sum = kept.saturating_add(bytes.map_or(0, i64::cast_unsigned));
                if sum > room {
                    return Ok((Some(row.get(0)?), kept));
                }
                kept = sum;
            }
            Ok((None, kept))
        };
        walk().map_err(|e| self.sql(e))
    }

    /// Forgets the history up to and including `rev`.
    pub(crate) fn compact(&mut self, rev: u64) -> Result<(), StoreError> {
        if rev <= self.floor {
            return Ok(());
        }
        self.conn
            .unchecked_transaction()
            .and_then(|tx| {
                tx.execute("DELETE FROM changes WHERE rev <= ?1", [rev.cast_signed()])?;
                set_fact(&tx, "floor", rev)?;
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

impl Store {
    /// Removes the oldest of what expires, until it takes no more room than it may: some at a time, for a write has found it.
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
    Stored::new(stored.key, rev.unwrap_or(0), stored.body)
}
