//! Reports that the bridge has not acknowledged yet: they outlive the process and the link. Limited in rows, bytes and
//! age: beyond a limit the oldest event is dropped, never a status. Dropped events are counted, and one event reports
//! the number.

use edge_protocol::message::Report;

use super::{Fact, Store, StoreError, Writer};

/// Most rows kept. A status is one row per pod; the rest are events.
pub const OUTBOX_LIMIT: i64 = 2000;

/// Most bytes of events kept.
pub const OUTBOX_BYTES: i64 = 1 << 20;

/// Time after which waiting events expire: an API server keeps its own for an hour. Counted in uptime of the machine,
/// because its clock may be wrong.
pub const OUTBOX_TTL_S: i64 = 24 * 3600;

/// Interval of counting the bytes, in rows.
const COUNTED: i64 = 32;

/// One report under the number its acknowledgement will carry.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxRow {
    pub id: u64,
    pub report: Report,
}

/// Reports with the same subject replace each other; `None` for events.
#[must_use]
pub fn subject(report: &Report) -> Option<String> {
    match report {
        Report::PodStatus { uid, .. } => Some(format!("status/{uid}")),
        Report::PodGone { uid, .. } => Some(format!("gone/{uid}")),
        Report::Node { .. } => Some("node".into()),
        Report::MirrorPod { pod } => {
            Some(format!("mirror/{}/{}", pod["metadata"]["namespace"], pod["metadata"]["name"]))
        }
        Report::MirrorGone { static_uid, .. } => Some(format!("mirror-gone/{static_uid}")),
        Report::Order { job, .. } => Some(format!("order/{job}")),
        Report::CsiNode { .. } => Some("csi-node".into()),
        Report::Event { .. } | Report::Unknown => None,
    }
}

impl Store {
    /// All unacknowledged reports, oldest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn outbox(&self) -> Result<Vec<OutboxRow>, StoreError> {
        let sql = "SELECT id, report FROM outbox ORDER BY id";
        let rows: Vec<(i64, String)> = self.all(sql, &[], |row| Ok((row.get(0)?, row.get(1)?)))?;
        // A row of a version that knew more is kept and skipped: it is still that version's to send.
        let known = |(id, text): (i64, String)| {
            Some(OutboxRow { id: u64::try_from(id).ok()?, report: serde_json::from_str(&text).ok()? })
        };
        Ok(rows.into_iter().filter_map(known).collect())
    }

    /// Whether there are events that wait.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn has_events(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM outbox WHERE subject IS NULL)";
        Ok(self.one(sql, &[])?.unwrap_or_default())
    }

    /// How many reports wait, and their bytes.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn outbox_size(&self) -> Result<(i64, i64), StoreError> {
        let sql = "SELECT count(*), ifnull(sum(length(report)), 0) FROM outbox";
        let rows = self.all(sql, &[], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.into_iter().next().unwrap_or_default())
    }

    /// The unacknowledged report with this number, if it still waits.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn outbox_row(&self, id: u64) -> Result<Option<Report>, StoreError> {
        let id = i64::try_from(id).unwrap_or(i64::MAX);
        let text: Option<String> = self.one("SELECT report FROM outbox WHERE id = ?1", &[&id])?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }
}

impl Writer<'_> {
    /// Adds a report, replacing an older one of the same subject. Gives the number for its acknowledgement.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn report(&self, report: &Report) -> Result<u64, StoreError> {
        let text = self.json("report", report)?;
        let subject = subject(report);
        self.execute("INSERT OR REPLACE INTO outbox (subject, report) VALUES (?1, ?2)", &[&subject, &text])?;
        let id = self.tx.last_insert_rowid();
        if subject.is_none() {
            let mut dropped = self.execute(
                "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE subject IS NULL ORDER BY id
                 LIMIT max(0, (SELECT count(*) FROM outbox) - ?1))",
                &[&OUTBOX_LIMIT],
            )?;
            if id % COUNTED == 0 {
                while self.event_bytes()? > OUTBOX_BYTES {
                    dropped += self.execute(
                        "DELETE FROM outbox WHERE id IN
                         (SELECT id FROM outbox WHERE subject IS NULL ORDER BY id LIMIT ?1)",
                        &[&COUNTED],
                    )?;
                }
            }
            self.count_dropped(dropped)?;
        }
        Ok(id.unsigned_abs())
    }

    fn event_bytes(&self) -> Result<i64, StoreError> {
        let sql = "SELECT coalesce(sum(length(report)), 0) FROM outbox WHERE subject IS NULL";
        self.tx
            .query_row(sql, [], |row| row.get(0))
            .map_err(|source| StoreError::Sqlite { path: self.path.into(), source })
    }

    /// Drops events that have waited for too long. `now_s`: seconds since boot.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn expire(&self, now_s: i64) -> Result<(), StoreError> {
        self.execute("UPDATE outbox SET seen = ?1 WHERE seen IS NULL AND subject IS NULL", &[&now_s])?;
        let dropped = self.execute("DELETE FROM outbox WHERE seen < ?1", &[&(now_s - OUTBOX_TTL_S)])?;
        self.count_dropped(dropped)
    }

    fn count_dropped(&self, dropped: usize) -> Result<(), StoreError> {
        if dropped == 0 {
            return Ok(());
        }
        let dropped = i64::try_from(dropped).unwrap_or(i64::MAX);
        self.execute(
            "INSERT INTO facts (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = CAST(value AS INTEGER) + ?2",
            &[&Fact::Dropped.key(), &dropped],
        )
        .map(drop)
    }

    /// After a boot: boot times start again.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn forget_waiting(&self) -> Result<(), StoreError> {
        self.execute("UPDATE outbox SET seen = 0 WHERE seen IS NOT NULL", &[]).map(drop)
    }

    /// Deletes unsent statuses: after a power cut the bridge may have newer ones that this store has lost. Every pod
    /// with a record reports its own again.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn drop_statuses(&self) -> Result<(), StoreError> {
        self.execute("DELETE FROM outbox WHERE subject LIKE 'status/%'", &[]).map(drop)
    }

    /// The bridge has the report with this number.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn acknowledged(&self, id: u64) -> Result<(), StoreError> {
        self.execute("DELETE FROM outbox WHERE id = ?1", &[&i64::try_from(id).unwrap_or(i64::MAX)]).map(drop)
    }
}
