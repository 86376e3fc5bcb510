//! The time by which certificates are made and judged: the host's clock, but never before this program was built. A
//! board without a battery boots in 1970, and what it signs by that clock has ended before anybody sees it. Also when
//! what was signed is old: by that clock, which may jump, and not by how long this process has run.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

/// Seconds of the Unix epoch before which this source did not exist: 2026-01-01.
const SOURCE_EPOCH: u64 = 1_767_225_600;

/// How often one's own certificates are made again. Each is good for a year or more.
pub const ANEW: Duration = Duration::from_secs(30 * 24 * 3600);
/// How often the clock is looked at.
const LOOK: Duration = Duration::from_secs(60);

/// The time now. Two times of one process are in order even where the clock stands in 1970.
pub fn now() -> SystemTime {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    floored(SystemTime::now(), BEGUN.get_or_init(Instant::now).elapsed())
}

/// A time that somebody's clock has told, if it can be true.
pub fn believable(clock: SystemTime) -> SystemTime {
    floored(clock, Duration::ZERO)
}

fn floored(clock: SystemTime, running: Duration) -> SystemTime {
    // Packagers set it (reproducible-builds.org); a build at a desk has the constant.
    let built = option_env!("SOURCE_DATE_EPOCH").and_then(|text| text.parse().ok()).unwrap_or(SOURCE_EPOCH);
    clock.max(UNIX_EPOCH + Duration::from_secs(built).saturating_add(running))
}

/// Whether what was made then is due to be made again: also when the clock was set, and its end came nearer by years.
fn is_due(made: SystemTime, now: SystemTime) -> bool {
    now.duration_since(made).is_ok_and(|age| age >= ANEW)
}

/// Returns when what was made then is due.
pub async fn due(made: SystemTime) {
    while !is_due(made, now()) {
        tokio::time::sleep(LOOK).await;
    }
}

/// For TLS.
#[derive(Debug)]
pub struct Floored;

impl TimeProvider for Floored {
    fn current_time(&self) -> Option<UnixTime> {
        now().duration_since(UNIX_EPOCH).ok().map(UnixTime::since_unix_epoch)
    }
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

    #[test]
    fn g25_a_clock_that_was_set_makes_certificates_due() {
        let made = floored(UNIX_EPOCH, Duration::ZERO);
        assert!(!is_due(made, made) && !is_due(made, made + ANEW / 2));
        assert!(is_due(made, made + ANEW) && is_due(made, made + 100 * ANEW));
        // One that was ahead: what was made then is good for longer than it should be, and no trouble.
        assert!(!is_due(made, made - ANEW));
    }
}
