//! Limits of the history: its changes, and those to delete. Pure; `history` executes it.

use std::collections::VecDeque;
use std::time::Duration;

/// How much of the past is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct History {
    /// At least this long...
    pub age: Duration,
    /// ...but never in more changes than this...
    pub rows: u64,
    /// ...and never more bytes of replaced states than this.
    pub bytes: u64,
    /// How many bytes of objects that expire, which are events, are kept: the oldest go first.
    pub expiring: u64,
}

/// One row of `changes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) rev: u64,
    /// Seconds since 1970, by the storage's clock.
    pub(super) at: i64,
    /// Size of the replaced state.
    pub(super) bytes: u64,
}

/// The rows of `changes`, in order.
#[derive(Debug, Default)]
pub(super) struct Past {
    rows: VecDeque<Row>,
    bytes: u64,
}

impl Past {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push_back(row);
        self.bytes = self.bytes.saturating_add(row.bytes);
    }

    /// Replaced states of more bytes are held than may be.
    pub(super) fn is_too_large(&self, kept: &History) -> bool {
        self.bytes > kept.bytes
    }

    /// The last of the oldest `most` rows that are beyond a limit of age, number or bytes. The newest row stays.
    pub(super) fn beyond(&self, kept: &History, now: i64, most: usize) -> Option<u64> {
        let oldest = now.saturating_sub(i64::try_from(kept.age.as_secs()).unwrap_or(i64::MAX));
        let (mut rows, mut bytes, mut last) = (self.rows.len() as u64, self.bytes, None);
        for row in self.rows.iter().take(most) {
            if rows <= 1 || rows <= kept.rows && bytes <= kept.bytes && row.at >= oldest {
                break;
            }
            (rows, bytes, last) = (rows - 1, bytes - row.bytes, Some(row.rev));
        }
        last
    }

    /// Removes everything up to and including this revision.
    pub(super) fn forget(&mut self, rev: u64) {
        while let Some(row) = self.rows.pop_front_if(|row| row.rev <= rev) {
            self.bytes = self.bytes.saturating_sub(row.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_rows_go_some_at_a_time_until_every_limit_holds() {
        let kept = History { age: Duration::from_secs(100), rows: 5, bytes: 40, expiring: 0 };
        let mut past = Past::default();
        for (rev, at) in [(1, 0), (2, 10), (4, 20), (5, 200), (7, 210)] {
            past.add(Row { rev, at, bytes: 10 });
        }
        assert!(past.is_too_large(&kept));
        assert_eq!(past.beyond(&kept, 0, 100), Some(1), "50 bytes are too many, 40 are not");
        let large = History { bytes: 100, ..kept };
        assert_eq!(
            (large.rows, past.beyond(&large, 100, 100)),
            (5, None),
            "five rows may be kept, and none is too old"
        );
        assert_eq!(past.beyond(&History { rows: 3, ..large }, 100, 100), Some(2));
        assert_eq!(past.beyond(&large, 115, 100), Some(2));
        assert_eq!((past.beyond(&large, 1000, 100), past.beyond(&large, 1000, 2)), (Some(5), Some(2)), "one stays");
        past.forget(4);
        assert!(!past.is_too_large(&kept));
        past.forget(u64::MAX);
        assert_eq!((past.bytes, past.beyond(&kept, i64::MAX, 1)), (0, None));
    }
}
