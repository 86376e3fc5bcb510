//! Waiting for a time that may never come.

use tokio::time::Instant;

/// Waits until this time, without one forever.
pub(crate) async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
