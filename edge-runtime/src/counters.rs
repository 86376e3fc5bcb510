//! What the daemon counts while it runs, for its metrics: plain numbers that anything may raise and nothing decides by. They
//! begin at nought with the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number.
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub fn one(&self) {
        self.add(1);
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Keeps the maximum.
    pub fn at_least(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Connections on which the bridge said welcome.
pub static LINK_WELCOMES: Counter = Counter::new();
/// Bytes of websocket messages, without TLS: objects, reports and what keeps the link up.
pub static LINK_SENT_MESSAGES: Counter = Counter::new();
pub static LINK_RECEIVED_MESSAGES: Counter = Counter::new();
/// Bytes of streams: logs, exec, port-forward.
pub static LINK_SENT_STREAMS: Counter = Counter::new();
pub static LINK_RECEIVED_STREAMS: Counter = Counter::new();

/// Requests of pods to the API that the link has taken, and not.
pub static API_REQUESTS: Counter = Counter::new();
pub static REFUSED_API_REQUESTS: Counter = Counter::new();

/// Commits of the store, also those without a change.
pub static COMMITS: Counter = Counter::new();
/// Times that the medium was waited for.
pub static SYNCS: Counter = Counter::new();

/// How often a helper had ended, or the monitor was lost.
pub static LOST_MONITOR: Counter = Counter::new();
pub static LOST_DNS: Counter = Counter::new();
pub static LOST_DEVICES: Counter = Counter::new();
pub static LOST_API: Counter = Counter::new();
pub static LOST_PLUGINS: Counter = Counter::new();
/// Devices of plugins that were allocated to containers, and attempts that failed.
pub static ALLOCATIONS: Counter = Counter::new();
pub static FAILED_ALLOCATIONS: Counter = Counter::new();
/// Process id of the monitor; 0 without one.
pub static MONITOR_PID: Counter = Counter::new();

/// Results of probes: startup, readiness, liveness; each successful, failed, not made.
pub static PROBES: [[Counter; 3]; 3] = [const { [const { Counter::new() }; 3] }; 3];

/// Images fetched, and not.
pub static PULLS: Counter = Counter::new();
pub static FAILED_PULLS: Counter = Counter::new();

/// Turns of the loop, the nanoseconds of the longest one, and how many took longer than a second.
pub static TURNS: Counter = Counter::new();
pub static LONGEST_TURN: Counter = Counter::new();
pub static STALLS: Counter = Counter::new();
/// Milliseconds since boot when the last turn began to wait.
pub static LAST_TURN: Counter = Counter::new();
