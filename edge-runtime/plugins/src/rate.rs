//! A limit of calls: some at once, and some a second.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Rate {
    burst: u32,
    /// Until there is another one.
    each: Duration,
    left: u32,
    since: Instant,
}

impl Rate {
    pub(crate) fn new(now: Instant, per_second: u32, burst: u32) -> Self {
        Self { burst, each: Duration::from_secs(1) / per_second.max(1), left: burst, since: now }
    }

    /// Whether there is one left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        while self.left < self.burst && now.saturating_duration_since(self.since) >= self.each {
            self.left += 1;
            self.since += self.each;
        }
        if self.left == self.burst {
            self.since = now;
        }
        let takes = self.left > 0;
        self.left = self.left.saturating_sub(1);
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_run_out_and_come_back() {
        let start = Instant::now();
        let mut rate = Rate::new(start, 100, 10);
        let taken = |rate: &mut Rate, after: u64| {
            (0..1_000).take_while(|_| rate.take(start + Duration::from_millis(after))).count()
        };
        assert_eq!(taken(&mut rate, 0), 10);
        assert_eq!(taken(&mut rate, 9), 0);
        assert_eq!(taken(&mut rate, 35), 3);
        assert_eq!(taken(&mut rate, 40), 1);
        assert_eq!(taken(&mut rate, 3_600_000), 10);
    }
}
