//! The stored state: single objects, lists, counts, and owners.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};

use super::leases::LEASES;
use super::rows::{place, unsigned};
use super::{Place, Store, StoreError, Stored, bodies};
use apimachinery::key::ObjectKey;

impl Store {
    /// One object.
    pub(crate) fn get(&self, storage: &str, key: &ObjectKey) -> Result<Option<Arc<Stored>>, StoreError> {
        if storage == LEASES {
            return Ok(self.leases.get(key));
        }
        self.conn
            .prepare_cached("SELECT rev, body FROM objects WHERE storage = ?1 AND ns = ?2 AND name = ?3")
            .and_then(|mut statement| {
                statement
                    .query_row(params![storage, key.namespace, key.name], |row| {
                        let body = bodies::read(&self.conn, row, 1)?.unwrap_or_default();
                        Ok(Arc::new(Stored::new(key.clone(), unsigned(row, 0)?, body)))
                    })
                    .optional()
            })
            .map_err(|e| self.sql(e))
    }

    /// Objects of one storage in key order, at most `limit` after `after`.
    pub(crate) fn list(
        &self,
        storage: &str,
        namespace: Option<&str>,
        after: Option<&ObjectKey>,
        limit: Option<usize>,
    ) -> Result<Vec<Arc<Stored>>, StoreError> {
        if storage == LEASES {
            return Ok(self.leases.list(namespace, after).take(limit.unwrap_or(usize::MAX)).collect());
        }
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
                        let body = bodies::read(&self.conn, row, 3)?.unwrap_or_default();
                        Ok(Arc::new(Stored::new(key, unsigned(row, 2)?, body)))
                    },
                )?;
                rows.collect()
            })
            .map_err(|e| self.sql(e))
    }

    /// Number of objects of one storage after `after`; `None` above `most`, since counting them would take too long.
    pub(crate) fn count(
        &self,
        storage: &str,
        namespace: Option<&str>,
        after: &ObjectKey,
        most: u64,
    ) -> Result<Option<u64>, StoreError> {
        let looked_at = most.saturating_add(1);
        if storage == LEASES {
            let leases = self.leases.list(namespace, Some(after));
            let count = leases.take(usize::try_from(looked_at).unwrap_or(usize::MAX)).count() as u64;
            return Ok((count <= most).then_some(count));
        }
        let sql = if namespace.is_some() {
            "SELECT count(*) FROM (SELECT 1 FROM objects WHERE storage = ?1 AND ns = ?2 AND name > ?4 AND ?3 = ?3 LIMIT ?5)"
        } else {
            "SELECT count(*) FROM (SELECT 1 FROM objects WHERE storage = ?1 AND (ns, name) > (?3, ?4) AND ?2 = ?2 LIMIT ?5)"
        };
        let looked_at = i64::try_from(looked_at).unwrap_or(i64::MAX);
        let count = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut statement| {
                let values = params![storage, namespace.unwrap_or(""), after.namespace, after.name, looked_at];
                statement.query_row(values, |row| unsigned(row, 0))
            })
            .map_err(|e| self.sql(e))?;
        Ok((count <= most).then_some(count))
    }

    /// Calls this with each object of a storage whose body has at least `least` bytes.
    pub(crate) fn each_large(
        &self,
        storage: &str,
        least: usize,
        mut each: impl FnMut(&ObjectKey, &[u8]),
    ) -> Result<(), StoreError> {
        let length = bodies::length("objects.body");
        let mut all = || -> rusqlite::Result<()> {
            let sql = format!("SELECT ns, name, body FROM objects WHERE storage = ?1 AND {length} >= ?2");
            let mut statement = self.conn.prepare(&sql)?;
            let mut rows = statement.query(params![storage, i64::try_from(least).unwrap_or(i64::MAX)])?;
            while let Some(row) = rows.next()? {
                let key = ObjectKey { namespace: row.get(0)?, name: row.get(1)? };
                each(&key, &bodies::read(&self.conn, row, 2)?.unwrap_or_default());
            }
            Ok(())
        };
        all().map_err(|e| self.sql(e))
    }

    /// The storages, served or not, that hold something in this namespace, in order. Uses the index to go from one
    /// storage to the next, so it does not scan all objects.
    pub(crate) fn storages_in(&self, namespace: &str) -> Result<Vec<String>, StoreError> {
        self.conn
            .prepare_cached(
                "WITH RECURSIVE storages(storage) AS (SELECT min(storage) FROM objects UNION ALL \
                     SELECT (SELECT min(objects.storage) FROM objects WHERE objects.storage > storages.storage) \
                     FROM storages WHERE storages.storage IS NOT NULL) \
                 SELECT storage FROM storages WHERE EXISTS \
                     (SELECT 1 FROM objects WHERE objects.storage = storages.storage AND ns = ?1) ORDER BY storage",
            )
            .and_then(|mut statement| statement.query_map([namespace], |row| row.get(0))?.collect())
            .map_err(|e| self.sql(e))
    }

    /// Where the object with this uid is stored.
    pub(crate) fn by_uid(&self, uid: &str) -> Result<Option<Place>, StoreError> {
        self.conn
            .prepare_cached("SELECT storage, ns, name FROM objects WHERE uid = ?1")
            .and_then(|mut statement| statement.query_row([uid], place).optional())
            .map_err(|e| self.sql(e))
    }

    /// The first `most` objects after `after` whose ownerReferences name this uid, in order.
    pub(crate) fn dependents(&self, uid: &str, after: Option<&Place>, most: usize) -> Result<Vec<Place>, StoreError> {
        let (storage, namespace, name) =
            after.map_or(("", "", ""), |(storage, key)| (storage.as_str(), key.namespace.as_str(), key.name.as_str()));
        self.conn
            .prepare_cached(
                "SELECT storage, ns, name FROM owners WHERE owner = ?1 AND (storage, ns, name) > (?2, ?3, ?4) \
                 ORDER BY storage, ns, name LIMIT ?5",
            )
            .and_then(|mut statement| {
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                statement.query_map(params![uid, storage, namespace, name, most], place)?.collect()
            })
            .map_err(|e| self.sql(e))
    }
}
