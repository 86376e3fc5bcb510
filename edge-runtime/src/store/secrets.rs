//! Secret bodies that stay off the disk, where the administrator wants that (`security.secrets-in-memory`): they are in
//! a temporary table, which SQLite keeps in memory, and their rows in the file say only that the Secret exists.
//!
//! A row without a body has a digest that is nobody's, so that every list of the bridge brings the body again. Knows
//! nothing of pods.

use edge_protocol::message::Object;
use serde_json::Value;

use super::{Fact, Store, StoreError, Writer};

const KIND: &str = "Secret";

/// Whether a looked-up object is known to exist while its body is not here.
pub fn is_withheld(object: &Value) -> bool {
    object.is_null()
}

/// What is said of a Secret that [`is_withheld`].
pub fn withheld(name: &str) -> String {
    format!(
        "secret {name:?} is kept in memory only (security.secrets-in-memory) and comes again with the connection to the bridge"
    )
}

impl Store {
    /// Chooses where Secret bodies are from now on; to be called once, after opening. Those on disk move to memory and
    /// nothing is left of them in the file. Bodies that are nowhere are asked for again: the next connection lists.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn keep_secrets_in_memory(&mut self, in_memory: bool) -> Result<(), StoreError> {
        if in_memory {
            let moved = self.move_secrets();
            moved.map_err(|source| self.sqlite(source))?;
        }
        let bodiless = "SELECT count(*) FROM objects WHERE kind = ?1 AND digest = ''";
        let bodiless: Option<i64> = self.one(bodiless, [KIND])?;
        // A connection that resumes would not bring what was there before.
        if bodiless > Some(0) && self.fact(Fact::LastSequence)?.is_some_and(|seq| !seq.is_empty()) {
            self.write(|writer| {
                writer.set_fact(Fact::Stream, "")?;
                writer.set_fact(Fact::LastSequence, "")
            })?;
        }
        Ok(())
    }

    fn move_secrets(&mut self) -> rusqlite::Result<()> {
        self.db.pragma_update(None, "temp_store", "MEMORY")?;
        self.db.execute_batch(
            "CREATE TEMP TABLE secrets (
                 namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, digest TEXT NOT NULL,
                 body TEXT NOT NULL, PRIMARY KEY (namespace, name)) WITHOUT ROWID;",
        )?;
        self.secrets_in_memory = true;
        let moved = self.db.execute(
            "INSERT INTO temp.secrets SELECT namespace, name, uid, digest, body FROM objects
             WHERE kind = ?1 AND body != ''",
            [KIND],
        )?;
        if moved == 0 {
            return Ok(());
        }
        self.forget_copies();
        self.db.pragma_update(None, "secure_delete", "ON")?;
        self.db.execute("UPDATE objects SET digest = '', body = '' WHERE kind = ?1", [KIND])?;
        self.db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
    }

    /// The digest column of a query over `objects`, and what is joined to it.
    pub(super) fn digest_sources(&self) -> (&'static str, &'static str) {
        if self.secrets_in_memory {
            let join = " LEFT JOIN temp.secrets s ON o.kind = 'Secret' AND s.namespace = o.namespace
                         AND s.name = o.name AND s.uid = o.uid";
            ("coalesce(s.digest, o.digest)", join)
        } else {
            ("o.digest", "")
        }
    }

    pub(super) fn body_in_memory(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<String>, StoreError> {
        if kind != KIND || !self.secrets_in_memory {
            return Ok(None);
        }
        self.one("SELECT body FROM temp.secrets WHERE namespace = ?1 AND name = ?2", [namespace, name])
    }
}

impl Writer<'_> {
    /// What the file may have of an object: digest and body.
    pub(super) fn on_disk(&self, object: &Object) -> Result<(String, String), StoreError> {
        let digest = &object.digest;
        if digest.key.kind != KIND || !self.secrets_in_memory {
            return Ok((digest.digest.clone(), object.body.to_string()));
        }
        self.execute(
            "INSERT OR REPLACE INTO temp.secrets (namespace, name, uid, digest, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            (&digest.key.namespace, &digest.key.name, &digest.uid, &digest.digest, object.body.to_string()),
        )?;
        Ok((String::new(), String::new()))
    }

    pub(super) fn forget_in_memory(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), StoreError> {
        if kind != KIND || !self.secrets_in_memory {
            return Ok(());
        }
        let sql = "DELETE FROM temp.secrets WHERE namespace = ?1 AND name = ?2 AND uid = ?3";
        self.execute(sql, (namespace, name, uid)).map(drop)
    }
}
