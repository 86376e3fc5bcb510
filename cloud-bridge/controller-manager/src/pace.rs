//! Time slices of controllers, which share one thread with the links of all nodes.

use std::time::{Duration, Instant};

/// Length of one slice, as for the controllers of the embedded API.
const SLICE: Duration = Duration::from_millis(2);

/// Measures the current slice. What is known of the cluster does not change between two slices of one attempt: news wait
/// in their watches, as kube-scheduler decides on a snapshot.
#[derive(Debug)]
pub(crate) struct Pace {
    slice: Duration,
    since: Instant,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self::with_slice(SLICE)
    }

    pub(crate) fn with_slice(slice: Duration) -> Self {
        Self { slice, since: Instant::now() }
    }

    /// Whether the slice is over.
    pub(crate) fn is_over(&self) -> bool {
        self.since.elapsed() >= self.slice
    }

    /// Marks the end of a small piece of work: one node or one pod was looked at. Gives the thread to others when the slice
    /// is over.
    pub(crate) async fn look(&mut self) {
        if self.is_over() {
            tokio::task::yield_now().await;
            self.since = Instant::now();
        }
    }
}
