//! Bodies with secrets, which stay off the disk if the administrator wants that (`security.secrets-in-memory`):
//! Secrets, and orders of jobs with logins of registries. They are in a temporary table, which SQLite keeps in memory;
//! their rows in the file say only that the object exists.
//!
//! A row without a body has a digest that matches no object, so that every list of the bridge brings the body again.
//! Knows nothing of pods.

use edge_protocol::message::{ORDER, Object};
use serde_json::Value;

use super::{Fact, Store, StoreError, Writer};

/// Same as [`is_secret`], as a condition on rows of `objects`.
const SECRET_ROWS: &str = r#"(kind = 'Secret' OR kind = 'Order' AND instr(body, '"secrets":["') > 0)"#;

/// Whether this object, with its body as JSON without spaces, must stay off the disk.
fn is_secret(kind: &str, body: &str) -> bool {
    kind == "Secret" || kind == ORDER && body.contains(r#""secrets":[""#)
}

/// Whether a looked-up object is known to exist while its body is not here.
pub fn is_withheld(object: &Value) -> bool {
    object.is_null()
}

/// Message about a Secret that [`is_withheld`].
pub fn withheld(name: &str) -> String {
    format!(
        "secret {name:?} is kept in memory only (security.secrets-in-memory) and comes again with the connection to the bridge"
    )
}

impl Store {
    /// Chooses where bodies of Secrets are stored; call it once, after opening. Moves those on disk to memory, and
    /// erases them in the file. Missing bodies are requested again: the next connection lists.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn keep_secrets_in_memory(&mut self, in_memory: bool) -> Result<(), StoreError> {
        let erased = self.fact(Fact::SecretsErased)?.is_some();
        if in_memory {
            let moved = self.move_secrets();
            let moved = moved.map_err(|source| self.sqlite(source))?;
            // An earlier start may have ended after it had moved them.
            if moved > 0 || !erased {
                match self.erase_secrets() {
                    Ok(()) => self.write(|writer| writer.set_fact(Fact::SecretsErased, "1"))?,
                    // A disk without room for this must not keep the node from starting.
                    Err(error) => log::error!("Secrets stay on the disk until the next start: {error}"),
                }
            }
        } else if erased {
            self.write(|writer| writer.clear_fact(Fact::SecretsErased))?;
        }
        let bodiless: Option<i64> = self.one("SELECT count(*) FROM objects WHERE body = ''", &[])?;
        // A connection that resumes would not bring what was there before.
        if bodiless > Some(0) && self.fact(Fact::LastSequence)?.is_some_and(|seq| !seq.is_empty()) {
            self.write(|writer| {
                writer.set_fact(Fact::Stream, "")?;
                writer.set_fact(Fact::LastSequence, "")
            })?;
        }
        Ok(())
    }

    /// Copies the bodies into memory; returns their number.
    fn move_secrets(&mut self) -> rusqlite::Result<usize> {
        self.db.pragma_update(None, "temp_store", "MEMORY")?;
        self.db.execute_batch(
            "CREATE TEMP TABLE secrets (
                 kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL,
                 digest TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;",
        )?;
        self.secrets_in_memory = true;
        let sql = format!(
            "INSERT INTO temp.secrets SELECT kind, namespace, name, uid, digest, body FROM objects
             WHERE {SECRET_ROWS} AND body != ''"
        );
        self.db.execute(&sql, [])
    }

    /// Erases the bodies in the file, what it has of deleted ones, and its copies.
    fn erase_secrets(&self) -> rusqlite::Result<()> {
        self.forget_copies();
        self.db.pragma_update(None, "secure_delete", "ON")?;
        self.db.execute(&format!("UPDATE objects SET digest = '', body = '' WHERE {SECRET_ROWS}"), [])?;
        self.db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")
    }

    /// The digest column of a query over `objects`, and what is joined to it.
    pub(super) fn digest_sources(&self) -> (&'static str, &'static str) {
        if self.secrets_in_memory {
            let join = " LEFT JOIN temp.secrets s ON s.kind = o.kind AND s.namespace = o.namespace
                         AND s.name = o.name AND s.uid = o.uid";
            ("coalesce(s.digest, o.digest)", join)
        } else {
            ("o.digest", "")
        }
    }

    pub(super) fn body_in_memory(&self, kind: &str, namespace: &str, name: &str) -> Result<Option<String>, StoreError> {
        if !self.secrets_in_memory {
            return Ok(None);
        }
        let sql = "SELECT body FROM temp.secrets WHERE kind = ?1 AND namespace = ?2 AND name = ?3";
        self.one(sql, &[&kind, &namespace, &name])
    }
}

impl Writer<'_> {
    /// What the file may have of an object: digest and body.
    pub(super) fn on_disk(&self, object: &Object) -> Result<(String, String), StoreError> {
        let (digest, body) = (&object.digest, object.body.to_string());
        if !self.secrets_in_memory || !is_secret(&digest.key.kind, &body) {
            return Ok((digest.digest.clone(), body));
        }
        let key = &digest.key;
        self.execute(
            "INSERT OR REPLACE INTO temp.secrets (kind, namespace, name, uid, digest, body)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            &[&key.kind, &key.namespace, &key.name, &digest.uid, &digest.digest, &body],
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
        if !self.secrets_in_memory {
            return Ok(());
        }
        let sql = "DELETE FROM temp.secrets WHERE kind = ?1 AND namespace = ?2 AND name = ?3 AND uid = ?4";
        self.execute(sql, &[&kind, &namespace, &name, &uid]).map(drop)
    }
}
