//! How far a pull is, and when the daemon hears of it. Pure.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bytes of an image that are here, and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub bytes: u64,
    pub total: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.bytes.saturating_mul(100).checked_div(self.total).unwrap_or(0).min(100);
        write!(f, "{percent} % ({} of {} bytes)", self.bytes, self.total)
    }
}

/// Time until the first report; each later one takes twice as long as the one before. A pull of two hours makes seven, and
/// each becomes an event that needs the same slow link.
#[derive(Debug)]
pub struct Pace(Duration);

impl Default for Pace {
    fn default() -> Self {
        Self(Duration::from_secs(60))
    }
}

impl Pace {
    /// Whether a pull that began so long ago reports now.
    pub fn is_due(&mut self, elapsed: Duration) -> bool {
        let is_due = elapsed >= self.0;
        if is_due {
            self.0 = elapsed.saturating_mul(2);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_shows_percent_and_bytes() {
        let shown = |bytes, total| Progress { bytes, total }.to_string();
        assert_eq!(shown(2_100_000, 5_000_000), "42 % (2100000 of 5000000 bytes)");
        assert_eq!(shown(0, 0), "0 % (0 of 0 bytes)");
        assert!(shown(u64::MAX, 7).starts_with("100 % "), "a registry may tell any size");
    }

    #[test]
    fn reports_of_a_long_pull_get_rarer() {
        let mut pace = Pace::default();
        let due: Vec<u64> = (0..7200).filter(|at| pace.is_due(Duration::from_secs(*at))).collect();
        assert_eq!(due, [60, 120, 240, 480, 960, 1920, 3840]);
    }
}
