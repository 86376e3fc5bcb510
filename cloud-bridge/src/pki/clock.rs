//! The time for issuing and checking certificates: the host's clock, but never before the build of this program. A
//! board without a battery boots in 1970, and a certificate by that clock would expire before its first use. The age of
//! a certificate also uses this clock, which may jump, and not the uptime of this process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use apimachinery::clock::{believable, now};
use rustls::time_provider::TimeProvider;
use rustls_pki_types::UnixTime;

/// Interval of renewing the bridge's own certificates. Each is valid for a year or more.
pub const ANEW: Duration = Duration::from_secs(30 * 24 * 3600);
/// Interval of checking the clock.
const LOOK: Duration = Duration::from_secs(60);

/// Whether a certificate of this time must be renewed: also if the clock was set, and its end came nearer by years.
fn is_due(made: SystemTime, now: SystemTime) -> bool {
    now.duration_since(made).is_ok_and(|age| age >= ANEW)
}

/// Whether a certificate of this time need not be renewed yet.
pub(crate) fn is_fresh(made: SystemTime, now: SystemTime) -> bool {
    !is_due(made, now)
}

/// Returns when a certificate of this time must be renewed.
pub async fn due(made: SystemTime) {
    while !is_due(made, now()) {
        tokio::time::sleep(LOOK).await;
    }
}

/// The clock for TLS.
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
    fn g25_a_clock_that_was_set_makes_certificates_due() {
        let made = believable(UNIX_EPOCH);
        assert!(!is_due(made, made) && !is_due(made, made + ANEW / 2));
        assert!(is_due(made, made + ANEW) && is_due(made, made + 100 * ANEW));
        // The clock was ahead: the certificate is valid for longer than intended, which does no harm.
        assert!(!is_due(made, made - ANEW));
    }
}
