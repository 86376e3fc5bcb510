//! Rounds of readings. Pure.

/// Number of a round. What is requested from the API in a round is at least as new as everything that nodes held before
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Round(pub(in crate::bridge) u64);

impl Round {
    pub(super) fn after(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}
