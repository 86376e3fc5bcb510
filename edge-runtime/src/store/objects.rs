//! Objects the cloud sent: the pods to run here and the ConfigMaps and Secrets they name.

use edge_protocol::message::{Object, ObjectDigest, ObjectKey};

use super::{Store, StoreError, Writer};

impl Store {
    /// Held objects without bodies, for the full sync by digest.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn held(&self) -> Result<Vec<ObjectDigest>, StoreError> {
        let (digest, join) = self.digest_sources();
        let sql = format!("SELECT o.kind, o.namespace, o.name, o.uid, {digest} FROM objects o{join}");
        self.all(&sql, &[], |row| {
            let key = ObjectKey { kind: row.get(0)?, namespace: row.get(1)?, name: row.get(2)? };
            Ok(ObjectDigest { key, uid: row.get(3)?, digest: row.get(4)? })
        })
    }

    /// The body of one object; null if it [is withheld](super::secrets::is_withheld).
    ///
    /// # Errors
    /// SQLite fails or the stored body is not JSON.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<serde_json::Value>, StoreError> {
        let sql = "SELECT body FROM objects WHERE kind = ?1 AND namespace = ?2 AND name = ?3";
        let body: Option<String> = self.one(sql, &[&kind, &namespace, &name])?;
        let body = match body.as_deref() {
            Some("") => match self.body_in_memory(kind, namespace, name)? {
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
        let sql = "SELECT namespace, name, body FROM objects WHERE kind = ?1";
        let rows: Vec<[String; 3]> = self.all(sql, &[&kind], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?;
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for [namespace, name, body] in rows {
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
            &[&key.kind, &key.namespace, &key.name, &uid, &digest, &body],
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
            &[&key.kind, &key.namespace, &key.name, &uid],
        )
        .map(drop)
    }
}
