//! Objects the cloud sent: the pods to run here and the ConfigMaps and Secrets they name.

use edge_protocol::message::{Object, ObjectDigest, ObjectKey};
use rusqlite::{OptionalExtension, Row};

use super::{Store, StoreError, Writer};

fn digest_of(row: &Row<'_>) -> rusqlite::Result<ObjectDigest> {
    Ok(ObjectDigest {
        key: ObjectKey { kind: row.get(0)?, namespace: row.get(1)?, name: row.get(2)? },
        uid: row.get(3)?,
        digest: row.get(4)?,
    })
}

impl Store {
    /// What is held, without bodies, for the full sync by digest.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn held(&self) -> Result<Vec<ObjectDigest>, StoreError> {
        let run = || {
            let (digest, join) = self.digest_sources();
            let sql = format!("SELECT o.kind, o.namespace, o.name, o.uid, {digest} FROM objects o{join}");
            let mut statement = self.db.prepare(&sql)?;
            statement.query_map([], digest_of)?.collect::<rusqlite::Result<Vec<_>>>()
        };
        run().map_err(|source| self.sqlite(source))
    }

    /// The body of one object. Null is one that [is withheld](super::secrets::is_withheld).
    ///
    /// # Errors
    /// SQLite fails or the stored body is no JSON.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<serde_json::Value>, StoreError> {
        let sql = "SELECT body FROM objects WHERE kind = ?1 AND namespace = ?2 AND name = ?3";
        let body: Option<String> = self
            .db
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([kind, namespace, name], |row| row.get(0)).optional())
            .map_err(|source| self.sqlite(source))?;
        let body = match body.as_deref() {
            Some("") => match self.body_in_memory(kind, namespace, name).map_err(|source| self.sqlite(source))? {
                None => return Ok(Some(serde_json::Value::Null)),
                found => found,
            },
            _ => body,
        };
        body.map(|body| self.parse(&format!("{kind} {namespace}/{name}"), &body)).transpose()
    }

    /// The bodies of all objects of one kind. One that does not parse is left out and named in the second list.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn objects_of(&self, kind: &str) -> Result<(Vec<serde_json::Value>, Vec<StoreError>), StoreError> {
        let run = || {
            let mut statement = self.db.prepare("SELECT namespace, name, body FROM objects WHERE kind = ?1")?;
            let rows = statement.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String, String)>>>()
        };
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for (namespace, name, body) in run().map_err(|source| self.sqlite(source))? {
            match self.parse(&format!("{kind} {namespace}/{name}"), &body) {
                Ok(body) => good.push(body),
                Err(error) => bad.push(error),
            }
        }
        Ok((good, bad))
    }

    pub(super) fn parse<T: serde::de::DeserializeOwned>(&self, what: &str, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|source| StoreError::Row {
            path: self.path.clone(),
            what: what.into(),
            source,
        })
    }
}

impl Writer<'_> {
    /// # Errors
    /// SQLite fails.
    pub fn put_object(&self, object: &Object) -> Result<(), StoreError> {
        let ObjectDigest { key, uid, .. } = &object.digest;
        let (digest, body) = self.on_disk(object)?;
        self.execute(
            "INSERT OR REPLACE INTO objects (kind, namespace, name, uid, digest, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (&key.kind, &key.namespace, &key.name, uid, digest, body),
        )
        .map(drop)
    }

    /// Removes the object only if it still has this uid: a tombstone never hits a successor of the same name.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn delete_object(&self, key: &ObjectKey, uid: &str) -> Result<(), StoreError> {
        self.forget_in_memory(&key.kind, &key.namespace, &key.name, uid)?;
        self.execute(
            "DELETE FROM objects WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND uid = ?4",
            (&key.kind, &key.namespace, &key.name, uid),
        )
        .map(drop)
    }
}
