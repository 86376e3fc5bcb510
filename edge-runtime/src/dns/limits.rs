//! Rate limits for each client, so that a flood of one does not affect others. Pure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::sys::vec_map::VecMap;

/// Limits of one client: `ALL` for its queries, `OF_OTHERS` for those that other servers must answer.
const ALL: Rate = Rate { a_second: 2_000, burst: 2_000 };
const OF_OTHERS: Rate = Rate { a_second: 100, burst: 300 };
/// Maximum number of clients with state: more than a node has pods.
const MOST: usize = 1_024;

#[derive(Clone, Copy, Debug)]
struct Rate {
    a_second: u64,
    burst: u64,
}

#[derive(Debug, Default)]
pub struct Limits {
    askers: BTreeMap<IpAddr, Asker>,
}

#[derive(Debug, Default)]
struct Asker {
    all: Owed,
    of_others: Owed,
}

/// State of one limit: until when the queries so far use up the rate, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Owed(u64);

impl Owed {
    fn take(&mut self, rate: Rate, now: u64) -> bool {
        let each = 1_000_000 / rate.a_second;
        let owed = self.0.max(now);
        let free = owed - now < rate.burst * each;
        self.0 = if free { owed + each } else { owed };
        free
    }
}

impl Limits {
    /// Whether the client's query is within its limit. `now`: time since any fixed moment.
    pub fn may_ask(&mut self, asker: IpAddr, now: Duration) -> bool {
        let now = micros(now);
        self.asker(asker, now).all.take(ALL, now)
    }

    /// Whether a query may be forwarded for the client.
    pub fn may_ask_others(&mut self, asker: IpAddr, now: Duration) -> bool {
        let now = micros(now);
        self.asker(asker, now).of_others.take(OF_OTHERS, now)
    }

    fn asker(&mut self, asker: IpAddr, now: u64) -> &mut Asker {
        if self.askers.len() >= MOST && !self.askers.contains_key(&asker) {
            self.askers.retain(|_, asker| asker.all.0 > now || asker.of_others.0 > now);
            if self.askers.len() >= MOST {
                self.askers.pop_first();
            }
        }
        self.askers.entry(asker).or_default()
    }
}

/// Semaphore with a limit in all and one for each client.
#[derive(Debug)]
pub struct Places {
    most: usize,
    most_of_one: usize,
    taken: RefCell<VecMap<IpAddr, usize>>,
}

/// A permit of [`Places`]; dropping it releases it.
pub struct Place(Rc<Places>, IpAddr);

impl Places {
    pub fn new(most: usize, most_of_one: usize) -> Rc<Self> {
        Rc::new(Self { most, most_of_one, taken: RefCell::default() })
    }

    pub fn enter(self: &Rc<Self>, asker: IpAddr) -> Option<Place> {
        let mut taken = self.taken.borrow_mut();
        let (all, of_one) = (taken.values().sum::<usize>(), taken.get(&asker).copied().unwrap_or_default());
        (all < self.most && of_one < self.most_of_one).then(|| {
            *taken.get_or_default(asker) += 1;
            Place(Rc::clone(self), asker)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.0.taken.borrow_mut();
        if let Some(count) = taken.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.1);
            }
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn s14_flood_of_one_client_does_not_limit_another() {
        let mut limits = Limits::default();
        let mut flood = |at: u64| (0..20_000).filter(|_| limits.may_ask(ip(1), Duration::from_secs(at))).count();
        assert_eq!((flood(10), flood(10), flood(11)), (2_000, 0, 2_000));
        assert!(limits.may_ask(ip(2), Duration::from_secs(11)));
        let others = (0..1_000).filter(|_| limits.may_ask_others(ip(1), Duration::from_secs(11))).count();
        assert_eq!(others, 300);
        assert!(limits.may_ask_others(ip(1), Duration::from_millis(11_010)));
    }

    #[test]
    fn one_client_cannot_take_all_places() {
        let places = Places::new(4, 3);
        let of_one: Vec<Place> = (0..10).filter_map(|_| places.enter(ip(1))).collect();
        assert_eq!(of_one.len(), 3);
        let other = places.enter(ip(2)).unwrap();
        assert!(places.enter(ip(3)).is_none());
        drop((of_one, other));
        assert!(places.enter(ip(3)).is_some() && places.taken.borrow().is_empty());
    }

    #[test]
    fn number_of_clients_is_bounded() {
        let mut limits = Limits::default();
        for number in 0..100_000 {
            assert!(limits.may_ask(ip(number), Duration::from_micros(u64::from(number))));
        }
        assert!(limits.askers.len() <= MOST);
    }
}
