//! How much of one container's output is kept per second, where the administrator says so. Pure: time comes in.

use std::time::Duration;

/// Output of this many seconds may come at once.
const BURST_SECONDS: u64 = 4;

/// A token bucket for bytes, and what it turned away.
#[derive(Debug)]
pub struct Limit {
    per_second: u64,
    left: u64,
    filled: Duration,
    /// Lines, not said yet.
    dropped: u64,
}

impl Limit {
    pub fn new(per_second: u64) -> Self {
        Self { per_second, left: per_second.saturating_mul(BURST_SECONDS), filled: Duration::ZERO, dropped: 0 }
    }

    /// Whether `bytes` of whole `lines` may be written at `now`; if not, the lines are counted.
    pub fn admit(&mut self, bytes: usize, lines: usize, now: Duration) -> bool {
        let passed = now.saturating_sub(self.filled);
        let earned = u128::from(self.per_second) * passed.as_millis() / 1000;
        if let Ok(earned @ 1..) = u64::try_from(earned) {
            self.left = self.left.saturating_add(earned).min(self.per_second.saturating_mul(BURST_SECONDS));
            self.filled = now;
        }
        match self.left.checked_sub(bytes as u64) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                self.dropped += lines as u64;
                false
            }
        }
    }

    /// What to write into the log about dropped lines, once for each gap.
    pub fn notice(&mut self) -> Option<String> {
        let dropped = std::mem::take(&mut self.dropped);
        (dropped > 0)
            .then(|| format!("[edge-runtime: {dropped} lines dropped, more than {} bytes per second]", self.per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_burst_lines_are_counted() {
        let mut limit = Limit::new(1000);
        let at = Duration::from_millis;
        assert!(limit.admit(4000, 40, at(0)), "four seconds at once");
        assert!(!limit.admit(10, 2, at(0)) && !limit.admit(10, 3, at(5)));
        assert!(limit.admit(500, 5, at(500)));
        let notice = limit.notice().unwrap();
        assert!(notice.contains("5 lines dropped"), "{notice}");
        assert_eq!(limit.notice(), None);
        assert!(
            limit.admit(4000, 1, at(100_000)) && !limit.admit(1, 1, at(100_000)),
            "saved up no more than the burst"
        );
    }

    #[test]
    fn many_small_looks_earn_as_much_as_one() {
        let mut limit = Limit::new(10);
        assert!(limit.admit(40, 1, Duration::ZERO));
        let admitted = (1..=5000).filter(|ms| limit.admit(1, 1, Duration::from_millis(*ms))).count();
        assert_eq!(admitted, 50);
    }
}
