//! Detects that the node is idle, to release memory: an idle node does not need the memory of starting and ending pods.
//! Does not know that work.

use std::time::Duration;

use crate::pod::clock::Mono;

/// Idle time before memory is given back: longer than the start of several pods together takes, shorter than the
/// interval of any monitoring.
const REST: Duration = Duration::from_secs(10);

/// Since when there was work.
#[derive(Debug, Default)]
pub(super) struct Idle {
    trim_at: Option<Mono>,
}

impl Idle {
    /// There is work.
    pub(super) fn disturb(&mut self, now: Mono) {
        self.trim_at = Some(now.after(REST));
    }

    /// Whether the node has come to rest; once, and not again before there was more work.
    pub(super) fn rested(&mut self, now: Mono) -> bool {
        self.trim_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether the last work was at least [`REST`] ago, and [`Idle::rested`] has returned that.
    pub(super) const fn is_rest(&self) -> bool {
        self.trim_at.is_none()
    }

    /// When to ask.
    pub(super) const fn due(&self) -> Option<Mono> {
        self.trim_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_detected_once_after_the_last_work() {
        let mut idle = Idle::default();
        assert!(!idle.rested(Mono(0)));
        idle.disturb(Mono(1_000));
        idle.disturb(Mono(5_000));
        assert!(!idle.rested(Mono(11_000)));
        assert_eq!(idle.due(), Some(Mono(15_000)));
        assert!(!idle.is_rest());
        assert!(idle.rested(Mono(15_000)));
        assert!(idle.is_rest());
        assert!(!idle.rested(Mono(15_001)));
        assert_eq!(idle.due(), None);
    }

    #[test]
    fn work_at_the_last_moment_puts_rest_off() {
        let mut idle = Idle::default();
        idle.disturb(Mono(0));
        assert!(!idle.rested(Mono(9_999)));
        idle.disturb(Mono(9_999));
        assert!(!idle.rested(Mono(10_000)) && !idle.is_rest());
        assert_eq!(idle.due(), Some(Mono(19_999)));
        assert!(idle.rested(Mono(19_999)));
    }
}
