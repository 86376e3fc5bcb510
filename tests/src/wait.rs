//! Waiting for something to become true, with the last reason in the message when it does not.

use std::time::{Duration, Instant};

/// Asks `check` until it succeeds.
///
/// # Panics
/// It has not succeeded within `limit`; the last error is in the message.
pub fn until<T>(limit: Duration, what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(last) if start.elapsed() > limit => panic!("not within {limit:?}: {what}; last: {last}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
