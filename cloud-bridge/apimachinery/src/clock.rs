//! The time of day, for machines whose clock may be in 1970: at least the build time of this source, plus the uptime of
//! this process.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// Seconds of the Unix epoch before which this source did not exist: 2026-01-01.
const SOURCE_EPOCH: u64 = 1_767_225_600;

/// The time now. Two times of one process are in order even if the clock is in 1970.
pub fn now() -> SystemTime {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    floored(SystemTime::now(), BEGUN.get_or_init(Instant::now).elapsed())
}

/// The time now, for what expires.
pub fn timestamp() -> Timestamp {
    Timestamp::try_from(now()).unwrap_or_else(|_| Timestamp::now())
}

/// A time from another clock, if it is plausible.
pub fn believable(clock: SystemTime) -> SystemTime {
    floored(clock, Duration::ZERO)
}

fn floored(clock: SystemTime, running: Duration) -> SystemTime {
    // Packagers set it (reproducible-builds.org); a build at a desk has the constant.
    let built = option_env!("SOURCE_DATE_EPOCH").and_then(|text| text.parse().ok()).unwrap_or(SOURCE_EPOCH);
    clock.max(UNIX_EPOCH + Duration::from_secs(built).saturating_add(running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g25_a_clock_before_the_build_is_not_believed() {
        let second = Duration::from_secs;
        let (boot, built) = (UNIX_EPOCH + second(40), floored(UNIX_EPOCH, Duration::ZERO));
        assert!(built >= UNIX_EPOCH + second(SOURCE_EPOCH));
        assert_eq!(floored(boot, second(7)), built + second(7), "and goes on");
        let right = built + second(1_000_000);
        assert_eq!(floored(right, second(7)), right);
        assert_eq!(floored(UNIX_EPOCH - second(9), second(7)), built + second(7), "before 1970 is no panic");
    }
}
