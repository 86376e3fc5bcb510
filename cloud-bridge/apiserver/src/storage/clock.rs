//! The time for the age of history and events: it starts at the wall clock once, and passes only while the bridge runs.
//! So a wall clock that is set, or is wrong after a restart, deletes neither.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension};

/// Seconds since some time that the state file's earlier runs have counted from, too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// When this run began.
    pub(super) base: i64,
    since: Instant,
}

impl Clock {
    /// Continues from the newest change in the file. A new file begins at the wall clock.
    pub(super) fn open(conn: &Connection) -> rusqlite::Result<Self> {
        let last =
            conn.query_row("SELECT at FROM changes ORDER BY rev DESC LIMIT 1", [], |row| row.get(0)).optional()?;
        Ok(Self::from(SystemTime::now(), last))
    }

    fn from(wall: SystemTime, last: Option<i64>) -> Self {
        let wall = wall.duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        Self { base: last.unwrap_or(wall), since: Instant::now() }
    }

    pub(super) fn now(&self) -> i64 {
        self.base.saturating_add(i64::try_from(self.since.elapsed().as_secs()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn time_goes_on_from_the_last_run() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let last = Some(1_800_000_000);
        assert_eq!(Clock::from(at(90), last).base, 1_800_000_000, "a board that boots in 1970");
        assert_eq!(Clock::from(at(2_100_000_000), last).base, 1_800_000_000, "one whose clock is ahead");
        assert_eq!(Clock::from(at(1_900_000_000), None).base, 1_900_000_000);
        assert_eq!(Clock::from(UNIX_EPOCH - Duration::from_secs(1), None).base, 0);
    }
}
