//! Limits the share of the bridge's only thread that one node's frames may take: a kilobyte can inflate to a megabyte
//! of JSON, at no cost for the sender. From a node beyond its share the bridge reads more slowly, which TCP signals to
//! it. Pure.

use std::time::Duration;

/// A node may use this fraction of the time.
const SHARE: u32 = 4;
/// Time that may be used at once: a node that reconnects has many reports.
const BURST: Duration = Duration::from_secs(2);
/// Time after which a session yields to others.
pub(super) const TURN: Duration = Duration::from_millis(1);

/// Budget of one connection. Times are of its clock.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Time at which all used time has been earned.
    paid: Duration,
}

impl Budget {
    /// Records the processing time of a frame. Returns whether to yield to others first.
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
        // A node with few frames is never delayed.
        let mut honest = Budget::default();
        for second in 0..1000 {
            let now = ms(second * 1000);
            assert!(honest.not_before() <= now);
            assert!(!honest.spend(now, now + Duration::from_micros(300)));
        }
    }
}
