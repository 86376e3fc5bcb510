//! Limits how often a node's refusals are reported in the API: each once, with a limited rate, and again after a while.
//! So a node that refuses the same object with every list, or that only wants to cause load, creates few events. Pure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Time after which the same refusal of the same object is reported again.
const AGAIN: Duration = Duration::from_secs(600);
/// Maximum number of events at once, and interval after which each becomes available again (the kubelet's: 25, and one
/// in five minutes; here one upgrade may make many objects of a node unreadable, and there are few connections).
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(20);
/// Maximum number of remembered objects; for further ones only the burst is limited.
const REMEMBERED: usize = 512;

/// Refusals of one connection. Times are of a monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    /// Hashes of uids, and of the reasons that were reported last: texts of a node are not stored. The hash is seeded
    /// for the process, so a node cannot predict it; a collision costs one line.
    told: HashMap<u64, (u64, Duration)>,
    hasher: RandomState,
    spent: u32,
    since: Duration,
    /// Refusals since the last report.
    quiet: u64,
}

impl Rejections {
    /// Whether to report this refusal. Returns the number of unreported ones since the last reported one.
    pub(super) fn tell(&mut self, uid: &str, reason: &str, now: Duration) -> Option<u64> {
        let refilled = now.saturating_sub(self.since).as_secs() / REFILL.as_secs();
        if refilled > 0 {
            self.spent = self.spent.saturating_sub(u32::try_from(refilled).unwrap_or(u32::MAX));
            self.since = now;
        }
        let (uid, reason) = (self.hasher.hash_one(uid), self.hasher.hash_one(reason));
        let known = self.told.get(&uid).is_some_and(|(told, at)| *told == reason && now.saturating_sub(*at) < AGAIN);
        if known || self.spent >= BURST {
            self.quiet += 1;
            return None;
        }
        self.spent += 1;
        if self.told.len() >= REMEMBERED && !self.told.contains_key(&uid) {
            self.told.retain(|_, (_, at)| now.saturating_sub(*at) < AGAIN);
        }
        if self.told.len() < REMEMBERED || self.told.contains_key(&uid) {
            self.told.insert(uid, (reason, now));
        }
        Some(std::mem::take(&mut self.quiet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn g09_the_same_refusal_is_told_once_in_a_while() {
        let mut rejections = Rejections::default();
        assert_eq!(rejections.tell("u", "why", S), Some(0));
        assert_eq!(rejections.tell("u", "why", 2 * S), None);
        assert_eq!(rejections.tell("u", "another reason", 3 * S), Some(1));
        assert_eq!(rejections.tell("u", "another reason", 700 * S), Some(0));
    }

    #[test]
    fn g09_a_flood_of_refusals_is_not_a_flood_of_events() {
        let mut rejections = Rejections::default();
        let told = (0..10_000).filter(|n| rejections.tell(&format!("u{n}"), "why", S).is_some()).count();
        assert_eq!(told, BURST as usize);
        assert!(rejections.told.len() <= REMEMBERED);
        assert_eq!(rejections.tell("later", "why", 100 * S), Some(10_000 - u64::from(BURST)), "the rest is counted");
    }
}
