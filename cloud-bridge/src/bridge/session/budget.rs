//! How much of the bridge's only thread one node's frames may take: a kilobyte can inflate to a megabyte of JSON, and
//! costs its sender nothing. Who has used more than its share is read from more slowly, and TCP tells it so. Pure.

use std::time::Duration;

/// A node may use one part in this many of the time.
const SHARE: u32 = 4;
/// What may be used at once: an honest node that comes back has a lot to say.
const BURST: Duration = Duration::from_secs(2);
/// Time after which waiting sessions get their turn.
pub(super) const TURN: Duration = Duration::from_millis(1);

/// Budget of one connection. Times are of its clock.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Until when everything that was used has been earned, if nothing else is.
    paid: Duration,
}

impl Budget {
    /// Records that a frame was processed between these times. Returns whether others should get a turn first.
    pub(super) fn spend(&mut self, started: Duration, ended: Duration) -> bool {
        let used = ended.saturating_sub(started);
        self.paid = self.paid.max(started).saturating_add(used.saturating_mul(SHARE));
        used >= TURN
    }

    /// When the next frame may be read.
    pub(super) fn not_before(&self) -> Duration {
        self.paid.saturating_sub(BURST * SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g17_a_node_that_floods_gets_a_share_of_the_thread() {
        let ms = Duration::from_millis;
        let mut budget = Budget::default();
        let (mut now, mut used) = (ms(0), ms(0));
        while now < ms(60_000) {
            now = now.max(budget.not_before());
            assert!(budget.spend(now, now + ms(10)), "others have a turn");
            (now, used) = (now + ms(10), used + ms(10));
        }
        assert!(used < ms(17_500) && used > ms(15_000), "{used:?}");
        // One that says little is never held up.
        let mut honest = Budget::default();
        for second in 0..1000 {
            let now = ms(second * 1000);
            assert!(honest.not_before() <= now);
            assert!(!honest.spend(now, now + Duration::from_micros(300)));
        }
    }
}
