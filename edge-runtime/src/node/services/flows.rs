//! When to delete flows of datagrams from the kernel's table: the table may be long, and the endpoints of any pod may
//! change all the time. Pure.

use std::time::Duration;

use crate::net::services::datagrams::Told;
use crate::pod::clock::Mono;

/// Pause after a check, as a multiple of its time: it takes this share of the board at most.
const SHARE: u32 = 20;
const AT_MOST: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Flows {
    /// Rules have changed since the last look.
    pub(super) stale: bool,
    /// Since when a look is under way.
    pub(super) since: Option<Mono>,
    not_before: Option<Mono>,
    /// What Services there were at the last look.
    pub(super) told: Told,
}

impl Flows {
    /// When the next look is due; none if there is nothing to look for, or one is under way.
    pub(super) fn due(&self, now: Mono) -> Option<Mono> {
        (self.stale && self.since.is_none()).then(|| self.not_before.map_or(now, |at| at.max(now)))
    }

    pub(super) fn done(&mut self, now: Mono) {
        if let Some(since) = self.since.take() {
            self.not_before = Some(now.after(now.since(since).saturating_mul(SHARE).min(AT_MOST)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_table_is_looked_at_less_often() {
        let at = |ms: u64| Mono::default().after(Duration::from_millis(ms));
        let mut flows = Flows::default();
        assert_eq!(flows.due(at(0)), None);
        flows.stale = true;
        assert_eq!(flows.due(at(0)), Some(at(0)));
        (flows.stale, flows.since) = (false, Some(at(0)));
        flows.stale = true;
        assert_eq!(flows.due(at(100)), None, "one at a time");
        flows.done(at(500));
        assert_eq!(flows.due(at(600)), Some(at(10_500)));
        assert_eq!(flows.due(at(20_000)), Some(at(20_000)));
        flows.since = Some(at(20_000));
        flows.done(at(80_000));
        assert_eq!(flows.due(at(80_000)), Some(at(110_000)), "no later than that");
    }
}
