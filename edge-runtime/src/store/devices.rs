//! State of the device helper for each device, by the Device's uid; only the helper knows the text.

use super::{Store, StoreError, Writer};

impl Store {
    /// Uid and record of each.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn kept_devices(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.all("SELECT uid, record FROM device_twins", &[], |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

impl Writer<'_> {
    /// `written`: milliseconds since 1970, by the node's clock.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn keep_device(&self, uid: &str, record: &str, written: i64) -> Result<(), StoreError> {
        let sql = "INSERT OR REPLACE INTO device_twins (uid, record, written) VALUES (?1, ?2, ?3)";
        self.execute(sql, &[&uid, &record, &written]).map(drop)
    }

    /// # Errors
    /// SQLite fails.
    pub fn forget_device(&self, uid: &str) -> Result<(), StoreError> {
        self.execute("DELETE FROM device_twins WHERE uid = ?1", &[&uid]).map(drop)
    }
}
