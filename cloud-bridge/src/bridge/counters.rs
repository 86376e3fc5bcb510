//! Counters of a bridge for its metrics. No decision depends on them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter.
#[derive(Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Attempts to write a report of a node, by result: written, refused, retried.
pub(crate) static REPORTS_WRITTEN: Counter = Counter::new();
pub(crate) static REPORTS_REFUSED: Counter = Counter::new();
pub(crate) static REPORTS_AGAIN: Counter = Counter::new();

/// Requests to the API, and those without success: with a client's error (including usual ones, such as a conflict or a
/// missing object), with a server's error, without an answer.
pub(crate) static API_REQUESTS: Counter = Counter::new();
pub(crate) static API_CLIENT_ERRORS: Counter = Counter::new();
pub(crate) static API_SERVER_ERRORS: Counter = Counter::new();
pub(crate) static API_UNREACHED: Counter = Counter::new();

/// Started sessions of nodes.
pub(crate) static SESSIONS: Counter = Counter::new();
