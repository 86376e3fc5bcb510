//! Messages of devices that wait for the bridge: by rule, in their order. The text of each is the helper's own. Which of them
//! are sent is the node's to decide.
//!
//! An index of uids alone would look like damaged pods to [`salvage`](super::salvage): here they have a prefix.

use super::{Store, StoreError, Writer};

fn key(rule: &str) -> String {
    format!("rule/{rule}")
}

/// A message to send.
pub struct Message {
    pub id: i64,
    /// Expiry by [`Fact::MessageClock`](super::Fact::MessageClock).
    pub expires: i64,
    pub record: String,
}

impl Store {
    /// Uids of the rules for which something waits.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn rules_with_messages(&self) -> Result<Vec<String>, StoreError> {
        self.all("SELECT DISTINCT substr(rule, 6) FROM device_messages", &[], |row| row.get(0))
    }

    /// The first of a rule after this one.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn next_message(&self, rule: &str, after: i64) -> Result<Option<Message>, StoreError> {
        let sql = "SELECT id, expires, record FROM device_messages WHERE rule = ?1 AND id > ?2 ORDER BY id LIMIT 1";
        let read = |row: &rusqlite::Row<'_>| Ok(Message { id: row.get(0)?, expires: row.get(1)?, record: row.get(2)? });
        Ok(self.all(sql, &[&key(rule), &after], read)?.pop())
    }
}

impl Writer<'_> {
    /// # Errors
    /// SQLite fails.
    pub fn put_message(&self, rule: &str, class: u8, expires: i64, record: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO device_messages (rule, class, expires, bytes, record) VALUES (?1, ?2, ?3, ?4, ?5)";
        let bytes = i64::try_from(record.len()).unwrap_or(i64::MAX);
        self.execute(sql, &[&key(rule), &class, &expires, &bytes, &record]).map(drop)
    }

    /// # Errors
    /// SQLite fails.
    pub fn message_done(&self, id: i64) -> Result<(), StoreError> {
        self.execute("DELETE FROM device_messages WHERE id = ?1", &[&id]).map(drop)
    }

    /// # Errors
    /// SQLite fails.
    pub fn forget_messages_of(&self, rule: &str) -> Result<(), StoreError> {
        self.execute("DELETE FROM device_messages WHERE rule = ?1", &[&key(rule)]).map(drop)
    }

    /// Drops expired messages, and then the oldest of the lowest class until at most `most` bytes are left. Returns the
    /// number dropped.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn drop_messages(&self, now: i64, most: i64) -> Result<usize, StoreError> {
        let mut dropped = self.execute("DELETE FROM device_messages WHERE expires <= ?1", &[&now])?;
        let sql = "DELETE FROM device_messages WHERE id = (SELECT id FROM device_messages ORDER BY class, id LIMIT 1)
                       AND (SELECT sum(bytes) FROM device_messages) > ?1";
        while self.execute(sql, &[&most])? > 0 {
            dropped += 1;
        }
        Ok(dropped)
    }
}
