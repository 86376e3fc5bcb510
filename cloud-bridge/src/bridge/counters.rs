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

/// The number of things that are under way.
#[derive(Debug)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts one thing until the returned value is dropped.
    pub(crate) fn enter(&'static self) -> Present {
        self.0.fetch_add(1, Ordering::Relaxed);
        Present(self)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One thing that a [`Gauge`] counts.
#[derive(Debug)]
pub(crate) struct Present(&'static Gauge);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
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

/// Requests of pods to the API through the link, and those that the bridge itself refused or could not pass on.
pub(crate) static POD_REQUESTS: Counter = Counter::new();
pub(crate) static POD_REQUESTS_REFUSED: Counter = Counter::new();
/// Those under way, watches included.
pub(crate) static POD_REQUESTS_OPEN: Gauge = Gauge::new();

/// Requests at kubelet ports for nodes of this bridge, those that other bridges forward included.
pub(crate) static KUBELET_REQUESTS: Counter = Counter::new();
/// Requests at kubelet ports for nodes of other bridges, and those of them that no bridge has answered.
pub(crate) static KUBELET_FORWARDED: Counter = Counter::new();
pub(crate) static KUBELET_UNANSWERED: Counter = Counter::new();
/// Forwarded ones under way, streams included.
pub(crate) static KUBELET_FORWARDED_OPEN: Gauge = Gauge::new();
