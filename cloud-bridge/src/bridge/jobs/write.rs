//! When the status of a job is written, and what follows from a write that failed. Pure.

use std::time::Duration;

use edge_protocol::message::OrderPhase;

use super::status::{Entry, Status};

/// Minimum interval between two writes of one status; a large one is also limited in bytes per second.
const EACH: Duration = Duration::from_secs(1);
const BYTES: usize = 256 << 10;
/// Pause after a failed write, doubled up to the second value.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(20));

/// How a status has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// Only reasons of waiting nodes, or of the job.
    Words,
    Real,
}

impl Change {
    pub(super) fn between(before: &Status, after: &Status) -> Self {
        if before == after {
            return Self::None;
        }
        let differs = |(old, new): (&Entry, &Entry)| {
            old != new && (old.phase != OrderPhase::Pending || new.phase != OrderPhase::Pending)
        };
        let real = before.phase != after.phase
            || before.nodes.len() != after.nodes.len()
            || before.nodes.iter().zip(&after.nodes).any(differs);
        if real { Self::Real } else { Self::Words }
    }
}

/// Pause after a status of this size, in bytes, was written.
pub(super) fn pause_after(size: usize) -> Duration {
    let millis = u64::try_from(size.saturating_mul(1000) / BYTES).unwrap_or(u64::MAX);
    EACH.max(Duration::from_millis(millis))
}

/// Pause after a failed write that followed this number of failures.
pub(super) fn pause_after_failure(failures: u32) -> Duration {
    AGAIN.0.saturating_mul(1 << failures.min(10)).min(AGAIN.1)
}

/// Reason why a write failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Another bridge or a user has written the job meanwhile.
    Changed,
    /// The job does not exist any more.
    Gone,
    /// Another attempt may help.
    Other,
}

impl Obstacle {
    /// `code`: the status of the API's answer, if there was one.
    pub(super) fn of(code: Option<u16>) -> Self {
        match code {
            Some(409) => Self::Changed,
            Some(404) => Self::Gone,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::JobPhase;
    use super::*;

    fn status(nodes: &[(&str, OrderPhase, &str)]) -> Status {
        let nodes = nodes.iter().map(|(node, phase, reason)| Entry::new(node, *phase, reason)).collect();
        Status { phase: Some(JobPhase::InProgress), reason: String::new(), nodes }
    }

    #[test]
    fn only_reasons_of_waiting_nodes_can_wait() {
        let before = status(&[("a", OrderPhase::Pending, "x"), ("b", OrderPhase::InProgress, "x")]);
        assert_eq!(Change::between(&before, &before.clone()), Change::None);
        let words = status(&[("a", OrderPhase::Pending, "y"), ("b", OrderPhase::InProgress, "x")]);
        assert_eq!(Change::between(&before, &words), Change::Words);
        for real in [
            status(&[("a", OrderPhase::InProgress, "x"), ("b", OrderPhase::InProgress, "x")]),
            status(&[("a", OrderPhase::Pending, "x"), ("b", OrderPhase::InProgress, "y")]),
            status(&[("a", OrderPhase::Pending, "x")]),
            Status { phase: Some(JobPhase::Completed), ..before.clone() },
        ] {
            assert_eq!(Change::between(&before, &real), Change::Real, "{real:?}");
        }
        assert_eq!(Change::between(&before, &Status { reason: "z".into(), ..before.clone() }), Change::Words);
    }

    #[test]
    fn large_statuses_are_written_less_often() {
        assert_eq!((pause_after(0), pause_after(BYTES)), (EACH, EACH));
        assert_eq!(pause_after(3 * BYTES), 3 * EACH);
    }

    #[test]
    fn failed_write_backs_off_within_bounds() {
        assert_eq!((pause_after_failure(0), pause_after_failure(1)), (AGAIN.0, AGAIN.0 * 2));
        assert_eq!(pause_after_failure(u32::MAX), AGAIN.1);
        let obstacles = [Some(409), Some(404), Some(500), None].map(Obstacle::of);
        assert_eq!(obstacles, [Obstacle::Changed, Obstacle::Gone, Obstacle::Other, Obstacle::Other]);
    }
}
