//! How much of one container's output is kept per second. Pure: time comes in.

use std::time::Duration;

use super::cri::MAX_PART;
use super::losses::count_lines;

/// Output of this many seconds may come at once: with the default, as much as a log file holds before it is rotated.
const BURST_SECONDS: u64 = 300;

/// The longest line, with what stands before it.
const LONGEST: u64 = MAX_PART as u64 + 64;

/// What saying it costs, about.
const NOTICE: u64 = 128;

/// What passes of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    /// Whole lines from its beginning.
    pub bytes: usize,
    /// A line to write before them: about lines dropped earlier.
    pub notice: Option<String>,
}

/// A token bucket for bytes, and what it turned away.
#[derive(Debug)]
pub(super) struct Limit {
    per_second: u64,
    left: u64,
    filled: Duration,
    /// The bucket is empty: nothing passes until it has a second's worth, so that messages about it do not flood the
    /// log.
    dry: bool,
    /// Lines, not said yet.
    dropped: u64,
}

impl Limit {
    pub(super) fn new(per_second: u64) -> Self {
        let mut limit = Self { per_second, left: 0, filled: Duration::ZERO, dry: false, dropped: 0 };
        limit.left = limit.burst();
        limit
    }

    /// How much of `batch` may be written at `now`. The other lines are counted.
    pub(super) fn admit(&mut self, batch: &[u8], now: Duration) -> Admitted {
        let passed = now.saturating_sub(self.filled);
        let earned = u128::from(self.per_second) * passed.as_millis() / 1000;
        if let Ok(earned @ 1..) = u64::try_from(earned) {
            self.left = self.left.saturating_add(earned).min(self.burst());
            self.filled = now;
        }
        // Any line must pass some time.
        self.dry &= self.left < self.per_second.max(LONGEST);
        let room = if self.dry { 0 } else { usize::try_from(self.left).unwrap_or(usize::MAX).min(batch.len()) };
        let bytes = batch[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.left = self.left.saturating_sub(bytes as u64);
        let notice = if bytes > 0 { self.notice() } else { None };
        if bytes < batch.len() {
            self.dry = true;
            self.dropped = self.dropped.saturating_add(count_lines(&batch[bytes..]));
        }
        Admitted { bytes, notice }
    }

    /// What to write into the log about dropped lines, once for each gap. It counts like a line.
    pub(super) fn notice(&mut self) -> Option<String> {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped == 0 {
            return None;
        }
        self.left = self.left.saturating_sub(NOTICE);
        Some(format!("[edge-runtime: {dropped} lines dropped, more than {} bytes per second]", self.per_second))
    }

    fn burst(&self) -> u64 {
        self.per_second.saturating_mul(BURST_SECONDS).max(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize, length: usize) -> Vec<u8> {
        let mut line = vec![b'x'; length - 1];
        line.push(b'\n');
        line.repeat(count)
    }

    #[test]
    fn beyond_the_burst_lines_are_counted() {
        let mut limit = Limit::new(100_000);
        let at = Duration::from_millis;
        let silent = |bytes| Admitted { bytes, notice: None };
        assert_eq!(limit.admit(&lines(300_000, 100), at(0)), silent(30_000_000), "five minutes' worth at once");
        assert_eq!((limit.admit(&lines(2, 100), at(0)), limit.admit(&lines(3, 100), at(500))), (silent(0), silent(0)));
        let after = limit.admit(&lines(5, 100), at(1000));
        assert_eq!(after.bytes, 500);
        assert!(after.notice.unwrap().contains("5 lines dropped"));
        assert_eq!(limit.notice(), None);
        let later = at(10_000_000);
        assert_eq!(limit.admit(&lines(300_001, 100), later), silent(30_000_000), "saved up no more than the burst");
        assert!(limit.notice().unwrap().contains("1 lines dropped"));
    }

    #[test]
    fn fitting_part_of_a_batch_is_kept() {
        let mut limit = Limit::new(1024);
        assert_eq!(limit.admit(&lines(4, 100_000), Duration::ZERO).bytes, 300_000, "three of four");
        assert!(limit.notice().unwrap().contains("1 lines dropped"));
    }

    #[test]
    fn the_longest_line_passes_the_smallest_limit() {
        let mut limit = Limit::new(1);
        let line = lines(1, MAX_PART + 50);
        assert_eq!(limit.admit(&line, Duration::ZERO).bytes, line.len());
        assert_eq!(limit.admit(&line, Duration::from_secs(1)).bytes, 0);
        assert_eq!(limit.admit(&line, Duration::from_secs(100_000)).bytes, line.len());
    }

    #[test]
    fn flood_is_reported_once_a_second() {
        let mut limit = Limit::new(100_000);
        limit.admit(&lines(300_000, 100), Duration::ZERO);
        let looks =
            (1..=50_000).map(|tenth| limit.admit(b"xxxxxxxxx\nxxxxxxxxx\n", Duration::from_micros(tenth * 100)));
        let (mut bytes, mut notices) = (0, 0);
        looks.for_each(|admitted| {
            bytes += admitted.bytes;
            notices += usize::from(admitted.notice.is_some());
        });
        assert!((300_000..=500_000).contains(&bytes) && (2..=5).contains(&notices), "{bytes} in 5 s, {notices}");
    }
}
