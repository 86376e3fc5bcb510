//! What a bridge counts while it runs, for its metrics: plain numbers that nothing decides by.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number.
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

/// Attempts to write a report of a node: it is in the API, will never be, is tried again.
pub(crate) static REPORTS_WRITTEN: Counter = Counter::new();
pub(crate) static REPORTS_REFUSED: Counter = Counter::new();
pub(crate) static REPORTS_AGAIN: Counter = Counter::new();

/// Requests to the API, and those that it did not answer with a success: with a client's error (a conflict or an object that is
/// gone is one, and no fault), with its own, not at all.
pub(crate) static API_REQUESTS: Counter = Counter::new();
pub(crate) static API_CLIENT_ERRORS: Counter = Counter::new();
pub(crate) static API_SERVER_ERRORS: Counter = Counter::new();
pub(crate) static API_UNREACHED: Counter = Counter::new();

/// Sessions of nodes that have begun.
pub(crate) static SESSIONS: Counter = Counter::new();
