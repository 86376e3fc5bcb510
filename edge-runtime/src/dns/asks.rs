//! Decides when the helper asks the daemon about a namespace, with limits for each client. Pure.

use std::net::IpAddr;
use std::time::Duration;

use crate::sys::vec_map::VecMap;

/// Maximum number of unknown namespaces: of all clients, and of one client. A client that invents names cannot use up
/// the limit of others.
const MOST: usize = 64;
const MOST_OF_ONE: usize = 8;
/// An unknown namespace counts for this time.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The helper asks again after this time: the daemon may have been down.
const AGAIN: Duration = Duration::from_secs(5);
/// Minimum time between two reports that a followed namespace is in use.
const USED: Duration = Duration::from_secs(6 * 3_600);

#[derive(Debug, Default)]
pub struct Asks {
    unknown: VecMap<String, Ask>,
    /// Followed namespaces that pods use, and the time of the last report.
    used: VecMap<String, Duration>,
}

#[derive(Debug)]
struct Ask {
    by: IpAddr,
    since: Duration,
    told: Duration,
}

/// What to do about an unknown namespace.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ask the daemon, and wait.
    Tell,
    /// Wait: the daemon has been asked.
    Wait,
    Refuse,
}

impl Asks {
    /// Records a query for an unknown namespace. `now`: time since any fixed moment.
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

    /// Records a query for a namespace that is followed because of earlier queries. Returns whether to report the use.
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
    fn daemon_is_asked_once_and_again_after_a_pause() {
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
    fn use_of_a_namespace_is_reported_every_six_hours() {
        let mut asks = Asks::default();
        let mut used = |at| asks.used("shop", seconds(at));
        assert_eq!([used(0), used(60), used(6 * 3_600), used(6 * 3_600 + 1)], [true, false, true, false]);
        (0..1000).for_each(|n| {
            let _ = asks.used(&n.to_string(), seconds(0));
        });
        assert!(asks.used.len() <= 2 * MOST);
    }
}
