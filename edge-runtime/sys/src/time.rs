//! Waiting with an end to it. Knows nothing of what is waited for.

use std::future::Future;
use std::io;
use std::time::Duration;

/// What `work` gives, unless the time is over first.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let late = async {
        smol::Timer::after(limit).await;
        None
    };
    smol::future::or(async { Some(work.await) }, late).await
}

/// Same as [`within`], for I/O.
///
/// # Errors
/// Those of `work`, or [`io::ErrorKind::TimedOut`].
pub async fn io_within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    within(limit, work).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}
