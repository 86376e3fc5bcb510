//! Namespaces that the helper has the daemon ask about: whose pods may make it ask, and how often. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Names that nothing is known of: in all, and on behalf of one asker, so that one that makes up names leaves the others
/// theirs.
const MOST: usize = 64;
const MOST_OF_ONE: usize = 8;
/// For so long one counts.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The same one is asked about again after so long: the daemon may have been away.
const AGAIN: Duration = Duration::from_secs(5);
/// That a known one is in use is told once in so long.
const USED: Duration = Duration::from_secs(6 * 3_600);

#[derive(Debug, Default)]
pub struct Asks {
    unknown: BTreeMap<String, Ask>,
    /// Those that others have asked for before, and when it was told last that they are in use.
    used: BTreeMap<String, Duration>,
}

#[derive(Debug)]
struct Ask {
    by: IpAddr,
    since: Duration,
    told: Duration,
}

/// What to do about a namespace that nothing is known of.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Tell the daemon, and wait.
    Tell,
    /// It is told already.
    Wait,
    Refuse,
}

impl Asks {
    /// Somebody asks about a namespace that nothing is known of; `now` is the time since any fixed moment.
    pub fn unknown(&mut self, namespace: &str, by: IpAddr, now: Duration) -> Verdict {
        self.unknown.retain(|_, ask| now.saturating_sub(ask.since) < REMEMBERED);
        if let Some(ask) = self.unknown.get_mut(namespace) {
            if now.saturating_sub(ask.told) < AGAIN {
                return Verdict::Wait;
            }
            ask.told = now;
            return Verdict::Tell;
        }
        let of_one = self.unknown.values().filter(|ask| ask.by == by).count();
        if self.unknown.len() >= MOST || of_one >= MOST_OF_ONE {
            return Verdict::Refuse;
        }
        self.unknown.insert(namespace.to_owned(), Ask { by, since: now, told: now });
        Verdict::Tell
    }

    /// Somebody asks about one that is known because it was asked for: whether to tell that it still is.
    pub fn used(&mut self, namespace: &str, now: Duration) -> bool {
        match self.used.get_mut(namespace) {
            Some(told) if now.saturating_sub(*told) < USED => false,
            Some(told) => {
                *told = now;
                true
            }
            None => {
                // The daemon's list is bounded, and it changes.
                if self.used.len() >= 2 * MOST {
                    self.used.clear();
                }
                self.used.insert(namespace.to_owned(), now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_daemon_is_told_once_and_again_if_nothing_comes_of_it() {
        let mut asks = Asks::default();
        let mut ask = |at| asks.unknown("shop", ip(1), seconds(at));
        assert_eq!([ask(0), ask(1), ask(5), ask(6)], [Verdict::Tell, Verdict::Wait, Verdict::Tell, Verdict::Wait]);
    }

    #[test]
    fn s14_who_makes_up_names_is_refused_and_others_are_not() {
        let mut asks = Asks::default();
        let all: Vec<Verdict> = (0..1000).map(|n| asks.unknown(&format!("n{n}"), ip(1), seconds(0))).collect();
        assert_eq!(all.iter().filter(|verdict| **verdict == Verdict::Tell).count(), MOST_OF_ONE);
        assert_eq!(asks.unknown("shop", ip(2), seconds(0)), Verdict::Tell);
        for by in 3..50 {
            let told = (0..100).filter(|n| asks.unknown(&format!("m{by}-{n}"), ip(by), seconds(0)) == Verdict::Tell);
            assert!(told.count() <= MOST_OF_ONE);
        }
        assert_eq!((asks.unknown.len(), asks.unknown("new", ip(60), seconds(1))), (MOST, Verdict::Refuse));
        assert_eq!(asks.unknown("new", ip(60), REMEMBERED), Verdict::Tell);
    }

    #[test]
    fn what_is_in_use_is_told_now_and_then() {
        let mut asks = Asks::default();
        let mut used = |at| asks.used("shop", seconds(at));
        assert_eq!([used(0), used(60), used(6 * 3_600), used(6 * 3_600 + 1)], [true, false, true, false]);
        (0..1000).for_each(|n| {
            let _ = asks.used(&n.to_string(), seconds(0));
        });
        assert!(asks.used.len() <= 2 * MOST);
    }
}
