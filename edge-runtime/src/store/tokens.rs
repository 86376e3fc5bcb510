//! Service account tokens of the pods here. They go with their pod and with nothing else, least of all because they
//! have expired.

use serde::de::DeserializeOwned;

use super::{Store, StoreError, Writer};
use crate::pod::token::{self, Held, Wanted};

impl Store {
    /// # Errors
    /// SQLite fails or the row is not what was written.
    pub fn token(&self, uid: &str, wanted: &Wanted) -> Result<Option<Held>, StoreError> {
        self.token_by_name(uid, &wanted.name())
    }

    fn token_by_name<T: DeserializeOwned>(&self, uid: &str, name: &str) -> Result<Option<T>, StoreError> {
        let record: Option<String> =
            self.one("SELECT record FROM tokens WHERE uid = ?1 AND name = ?2", &[&uid, &name])?;
        record.map(|record| self.parse(&format!("token {name} of pod {uid}"), &record)).transpose()
    }

    /// What volumes and environments are made from: an object of the cloud, or, for the kind of
    /// [`token::KIND`], a token. A row that cannot be read counts as missing, and is logged.
    pub fn lookup(&self, kind: &str, namespace: &str, name: &str) -> Option<serde_json::Value> {
        let found = match kind {
            token::KIND => self.token_by_name(namespace, name),
            _ => self.object(kind, namespace, name),
        };
        found.unwrap_or_else(|error| {
            log::error!("{error}");
            None
        })
    }
}

impl Writer<'_> {
    /// # Errors
    /// SQLite fails.
    pub fn put_token(&self, uid: &str, wanted: &Wanted, held: &Held) -> Result<(), StoreError> {
        let record = self.json("token", held)?;
        let sql = "INSERT OR REPLACE INTO tokens (uid, name, record) VALUES (?1, ?2, ?3)";
        self.execute(sql, &[&uid, &wanted.name(), &record]).map(drop)
    }
}
