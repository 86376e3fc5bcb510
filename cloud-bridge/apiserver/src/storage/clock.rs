//! The time for the age of history and events: it starts at the wall clock and continues monotonically, so that setting
//! the clock deletes neither.

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
    /// Continues from the newest change in the file, or from the wall clock if that is later.
    pub(super) fn open(conn: &Connection) -> rusqlite::Result<Self> {
        let last =
            conn.query_row("SELECT at FROM changes ORDER BY rev DESC LIMIT 1", [], |row| row.get(0)).optional()?;
        Ok(Self::from(SystemTime::now(), last.unwrap_or_default()))
    }

    fn from(wall: SystemTime, last: i64) -> Self {
        let wall = wall.duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        Self { base: wall.max(last), since: Instant::now() }
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
        assert_eq!(Clock::from(at(90), 1_800_000_000).base, 1_800_000_000, "a board that boots in 1970");
        assert_eq!(Clock::from(at(1_900_000_000), 1_800_000_000).base, 1_900_000_000);
        assert_eq!(Clock::from(UNIX_EPOCH - Duration::from_secs(1), 0).base, 0);
    }
}
