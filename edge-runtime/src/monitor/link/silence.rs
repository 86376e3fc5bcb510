//! How long the monitor has not answered.

use std::cell::Cell;
use std::fs;
use std::time::{Duration, Instant};

/// Distinguishes a hung monitor from an idle one.
#[derive(Default)]
pub(super) struct Silence {
    /// Start of the oldest unanswered request; `None` if all are answered.
    pub(super) since: Cell<Option<Instant>>,
    pub(super) told: Cell<bool>,
}

impl Silence {
    pub(super) fn asked(&self) {
        self.since.set(self.since.get().or_else(|| Some(Instant::now())));
    }

    /// `waits`: for another answer.
    pub(super) fn heard(&self, waits: bool) {
        self.since.set(waits.then(Instant::now));
    }
}

pub(super) fn silent_because(pid: u64, patience: Duration) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or(" unknown").trim();
    format!(
        "the monitor of the containers (process {pid}, state {state}) has not answered for {} s: containers run on, none can \
         be started or stopped",
        patience.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_begins_with_the_oldest_unanswered_request() {
        let silence = Silence::default();
        silence.asked();
        let first = silence.since.get();
        silence.asked();
        assert!(first.is_some() && silence.since.get() == first);
        silence.heard(true);
        assert!(silence.since.get() >= first, "another answer is still missing");
        silence.heard(false);
        assert_eq!(silence.since.get(), None);
    }

    #[test]
    fn silence_of_a_process_that_is_gone_has_no_state() {
        let text = silent_because(u64::MAX, Duration::from_secs(30));
        assert!(text.contains("state unknown") && text.contains("for 30 s"), "{text}");
    }
}
