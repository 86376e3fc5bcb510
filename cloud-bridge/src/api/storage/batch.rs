//! Renewals of Leases share a transaction for up to a second. Ten thousand nodes renew seven hundred times a second,
//! and what a power cut takes of them the nodes say again within seconds; every other write is committed by itself,
//! and takes with it what waits here.

use std::time::{Duration, Instant};

use rusqlite::Connection;

/// Where Leases are stored.
pub(in crate::api) const LEASES: &str = "leases.coordination.k8s.io";

/// Writes that wait at most, fewer than revisions are skipped at the next opening.
const MAX_WRITES: u32 = 256;
/// How long they wait at most.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The transaction that is open.
#[derive(Debug, Default)]
pub(super) struct Batch {
    open: Option<(Instant, u32)>,
}

impl Batch {
    /// Opens the transaction if it is not.
    pub(super) fn begin(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        if self.open.is_none() {
            conn.execute_batch("BEGIN IMMEDIATE")?;
            self.open = Some((Instant::now(), 0));
        }
        Ok(())
    }

    /// One more write is in it; it is committed when it is old or large enough.
    pub(super) fn wrote(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        if let Some((_, writes)) = &mut self.open {
            *writes += 1;
        }
        let due = self.open.is_some_and(|(since, writes)| writes >= MAX_WRITES || since.elapsed() >= MAX_AGE);
        if due { self.flush(conn) } else { Ok(()) }
    }

    /// Commits what waits.
    pub(super) fn flush(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        if self.open.take().is_some() {
            conn.execute_batch("COMMIT").inspect_err(|_| {
                // Renewals are lost with it, which come again; an open transaction would lose everything after.
                let _ = conn.execute_batch("ROLLBACK");
            })?;
        }
        Ok(())
    }

    /// Gives up what waits, after a statement has failed.
    pub(super) fn abandon(&mut self, conn: &Connection) {
        if self.open.take().is_some() {
            // SQLite may have rolled back already.
            let _ = conn.execute_batch("ROLLBACK");
        }
    }
}
