//! One token of a pod, and when to ask for the next one. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::pod::clock::{Mono, Now};
use crate::pod::token::Held;

/// Pause after a refusal, doubled with each up to the second figure.
pub(super) const AGAIN: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(300));
/// A wall clock that jumps moves what is due: it is looked at again after this at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// One token of one pod.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) held: Option<Held>,
    /// When it arrived, if it did in this process: its age by the monotonic clock.
    pub(super) came: Option<Mono>,
    /// Spreads the refresh.
    pub(super) random: u32,
    pub(super) asked: Option<u64>,
    pub(super) refusals: u32,
    pub(super) not_before: Option<Mono>,
    pub(super) problem: String,
}

impl Slot {
    /// `None` while a request is under way.
    pub(super) fn due(&self, now: &Now) -> Option<Mono> {
        if self.asked.is_some() {
            return None;
        }
        let refresh = self.held.as_ref().map(|held| {
            let refresh = held.refresh_at(self.random);
            let left = |from: Timestamp| Duration::try_from(refresh.duration_since(from)).unwrap_or_default();
            match self.came {
                Some(came) => came.after(left(held.issued)),
                // If the clock is behind, the age is unknown.
                None if now.wall < held.issued => now.mono,
                None => now.mono.after(left(now.wall).min(LOOK_AGAIN)),
            }
        });
        // A look that comes before its time finds nothing due and looks again.
        let due = refresh.unwrap_or(now.mono);
        Some(self.not_before.map_or(due, |at| at.max(due)))
    }

    pub(super) fn refused(&mut self, reason: String, now: Mono) {
        let pause = AGAIN.0.saturating_mul(1 << self.refusals.min(16)).min(AGAIN.1);
        self.refusals += 1;
        self.not_before = Some(now.after(pause));
        self.problem = reason;
    }

    pub(super) fn is_due(&self, now: &Now) -> bool {
        self.due(now).is_some_and(|at| at <= now.mono)
    }
}
