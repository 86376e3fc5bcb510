//! Time slices of the scheduler, which shares one thread with the links of all nodes.

use std::time::{Duration, Instant};

/// Length of one slice, as for the controllers of the embedded API.
const SLICE: Duration = Duration::from_millis(2);

/// Measures the current slice. What is known of the cluster does not change between two slices of one attempt: news wait
/// in their watches, as kube-scheduler decides on a snapshot.
#[derive(Debug)]
pub(super) struct Pace {
    slice: Duration,
    since: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self::with_slice(SLICE)
    }

    pub(super) fn with_slice(slice: Duration) -> Self {
        Self { slice, since: Instant::now() }
    }

    /// Marks the end of a small piece of work: one node or one pod was looked at. Gives the thread to others when the slice
    /// is over.
    pub(super) async fn look(&mut self) {
        if self.since.elapsed() >= self.slice {
            tokio::task::yield_now().await;
            self.since = Instant::now();
        }
    }
}
