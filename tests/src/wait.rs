//! Waits for a condition; on timeout the last error is in the message.

use std::time::{Duration, Instant};

/// `limit` on a machine of ordinary speed; `TEST_PATIENCE` (a whole number) times as long on an emulated one.
#[must_use]
pub fn patient(limit: Duration) -> Duration {
    let factor = std::env::var("TEST_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    limit * factor
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Calls `check` until it succeeds.
///
/// # Panics
/// It has not succeeded within the [`patient`] `limit`; the last error is in the message.
pub fn until<T>(limit: Duration, what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let limit = patient(limit);
    let start = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(last) if start.elapsed() > limit => panic!("not within {limit:?}: {what}; last: {last}"),
            // Most checks start a kubectl, which takes a tenth of a second of CPU: do not poll too often during a long
            // wait.
            Err(_) => std::thread::sleep((start.elapsed() / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)),
        }
    }
}
