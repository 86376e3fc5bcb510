//! Pods' connections at once: all, from one address, and of one pod. A pod that has gone is disconnected. If all
//! places are taken, a new connection replaces one without a known token, then one without a request. No I/O.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use sampan_sys::vec_map::VecMap;
use tokio::task::AbortHandle;

const MAX_CONNECTIONS: usize = 64;
/// kubectl 1.20 opens twenty at once to find out what an API has.
const MAX_FROM_ONE: usize = 24;
/// New connections of one address in a window: handshakes take time of the node, and not of the pod.
const MAX_NEW: u32 = 100;
const WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Guests {
    all: VecMap<u64, Guest>,
    newest: u64,
    /// New connections of each address in this window, and its begin.
    new: VecMap<IpAddr, u32>,
    window: Duration,
}

#[derive(Debug)]
struct Guest {
    from: IpAddr,
    task: Option<AbortHandle>,
    /// Uid of the pod whose token came last.
    pod: Option<String>,
    /// It waits for another request. The task of the connection sets this.
    is_idle: Rc<Cell<bool>>,
}

impl Guest {
    /// Whether it is of the same as another one: the address before a token is known, and then the pod.
    fn is_beside(&self, other: &Self) -> bool {
        self.pod == other.pod && (self.pod.is_some() || self.from == other.from)
    }
}

impl Guests {
    /// Admits a connection, if need be in place of another one that can be missed. Returns its number; `None` if there
    /// are too many. `now`: time since the start.
    pub(crate) fn admit(&mut self, from: IpAddr, now: Duration) -> Option<u64> {
        let from = from.to_canonical();
        if now.saturating_sub(self.window) >= WINDOW {
            self.new.clear();
            self.window = now;
        }
        if self.new.get(&from).is_some_and(|new| *new >= MAX_NEW) {
            return None;
        }
        let same = self.all.values().filter(|guest| guest.from == from).count();
        if same >= MAX_FROM_ONE {
            return None;
        }
        if self.all.len() >= MAX_CONNECTIONS {
            // A client that loses a connection without a request opens another one.
            let without_token = self.of_most(same + 2, |guest| guest.pod.is_none());
            let missed = without_token.or_else(|| self.of_most(same + 1, |guest| guest.is_idle.get()))?;
            let guest = self.all.remove(&missed)?;
            if let Some(task) = guest.task {
                task.abort();
            }
        }
        *self.new.get_or_default(from) += 1;
        self.newest += 1;
        self.all.insert(self.newest, Guest { from, task: None, pod: None, is_idle: Rc::default() });
        Some(self.newest)
    }

    /// For the one that drives a connection: whether it waits for another request.
    pub(crate) fn idle_flag(&self, number: u64) -> Rc<Cell<bool>> {
        self.all.get(&number).map(|guest| Rc::clone(&guest.is_idle)).unwrap_or_default()
    }

    /// The task that serves a connection.
    pub(crate) fn runs(&mut self, number: u64, task: AbortHandle) {
        if let Some(guest) = self.all.get_mut(&number) {
            guest.task = Some(task);
        }
    }

    /// The oldest of these connections of the address or pod that has most connections; `None` if none has `least`.
    fn of_most(&self, least: usize, can_go: impl Fn(&Guest) -> bool) -> Option<u64> {
        let mut most = (least.saturating_sub(1), None);
        for (number, guest) in self.all.iter().filter(|(_, guest)| can_go(guest)) {
            let held = self.all.values().filter(|other| other.is_beside(guest)).count();
            if held > most.0 {
                most = (held, Some(*number));
            }
        }
        most.1
    }

    /// A token of this pod has come. Returns `false` if the pod has too many connections already.
    pub(crate) fn is_pod(&mut self, number: u64, uid: &str) -> bool {
        let is_of_pod = |guest: &Guest| guest.pod.as_deref() == Some(uid);
        if self.all.get(&number).is_some_and(is_of_pod) {
            return true;
        }
        if self.all.values().filter(|guest| is_of_pod(guest)).count() >= MAX_FROM_ONE {
            return false;
        }
        if let Some(guest) = self.all.get_mut(&number) {
            guest.pod = Some(uid.to_owned());
        }
        true
    }

    /// A connection has ended.
    pub(crate) fn left(&mut self, number: u64) {
        self.all.remove(&number);
    }

    /// Ends all connections of a pod, and with them its requests.
    pub(crate) fn send_away(&self, uid: &str) {
        let of_pod = self.all.values().filter(|guest| guest.pod.as_deref() == Some(uid));
        // They leave when their tasks are dropped.
        of_pod.filter_map(|guest| guest.task.as_ref()).for_each(AbortHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_a_limit_each_and_all_together() {
        let mut guests = Guests::default();
        let from = |last: u8| IpAddr::from([10, 88, 0, last]);
        let admitted = (0..100).filter(|_| guests.admit(from(1), Duration::ZERO).is_some()).count();
        assert_eq!(admitted, MAX_FROM_ONE);
        for number in 1..=24 {
            assert!(guests.is_pod(number, "u"));
        }
        let mapped: IpAddr = "::ffff:10.88.0.1".parse().expect("an address");
        assert_eq!(guests.admit(mapped, Duration::ZERO), None);
        let others = (2..100).filter(|last| guests.admit(from(*last), Duration::ZERO).is_some()).count();
        assert_eq!(others, MAX_CONNECTIONS - MAX_FROM_ONE);
        guests.left(1);
        assert!(guests.admit(from(1), Duration::ZERO).is_some());
    }

    #[test]
    fn connections_without_a_token_give_way() {
        let mut guests = Guests::default();
        let from = |last: u8| IpAddr::from([10, 88, 0, last]);
        let mut admitted = Vec::new();
        for last in 1..=4 {
            admitted.extend((0..16).filter_map(|_| guests.admit(from(last), Duration::ZERO)));
        }
        assert_eq!(admitted.len(), MAX_CONNECTIONS);
        let new = guests.admit(from(5), Duration::ZERO).expect("an address without a connection has a place");
        assert!(guests.is_pod(new, "u"));
        assert_eq!(guests.all.len(), MAX_CONNECTIONS);
        assert!(!guests.all.contains_key(&1), "the oldest of an address that has most");
        assert!(
            (0..100).all(|_| guests.admit(from(1), Duration::ZERO).is_none()),
            "an address with many takes no place"
        );
        assert!(guests.all.contains_key(&new));
    }

    /// All places are taken by connections with a known token: of pod `n`, `counts[n]`.
    fn full(counts: &[u8]) -> Guests {
        let mut guests = Guests::default();
        for (pod, count) in (1..).zip(counts) {
            for _ in 0..*count {
                let number = guests.admit(IpAddr::from([10, 88, 0, pod]), Duration::ZERO).expect("a place");
                assert!(guests.is_pod(number, &pod.to_string()));
            }
        }
        assert_eq!(guests.all.len(), MAX_CONNECTIONS);
        guests
    }

    #[test]
    fn idle_connections_give_way() {
        let mut guests = full(&[20, 24, 20]);
        let new = |guests: &mut Guests, last: u8| guests.admit(IpAddr::from([10, 88, 0, last]), Duration::ZERO);
        assert_eq!(new(&mut guests, 9), None, "all have a request");
        // Two of the first pod, then two of the second, which has most.
        for number in [3, 5, 22, 30] {
            guests.idle_flag(number).set(true);
        }
        let first = new(&mut guests, 9).expect("a place");
        assert!(!guests.all.contains_key(&22) && guests.all.len() == MAX_CONNECTIONS);
        assert!(guests.is_pod(first, "9"));
        guests.idle_flag(30).set(false);
        let second = new(&mut guests, 9).expect("a place");
        assert!(!guests.all.contains_key(&3), "a request has come on the other one");
        assert!(guests.is_pod(second, "9"));
        guests.idle_flag(5).set(false);
        guests.idle_flag(first).set(true);
        assert_eq!(new(&mut guests, 1), None, "a pod with many takes no place of one with few");
        assert!(new(&mut guests, 8).is_some() && !guests.all.contains_key(&first), "one without any does");
    }

    #[test]
    fn connections_without_a_token_give_way_first() {
        let mut guests = full(&[22, 22, 20]);
        for number in 1..=64 {
            guests.idle_flag(number).set(true);
        }
        for number in [61, 62] {
            guests.left(number);
        }
        let from = |last: u8| IpAddr::from([10, 88, 0, last]);
        let unknown: Vec<_> = (0..2).filter_map(|_| guests.admit(from(7), Duration::ZERO)).collect();
        assert!(guests.admit(from(8), Duration::ZERO).is_some());
        assert!(!guests.all.contains_key(&unknown[0]) && guests.all.contains_key(&1));
    }

    #[test]
    fn pod_with_many_addresses_has_as_many_connections_as_one_with_one() {
        let mut guests = Guests::default();
        let all: Vec<u64> =
            (1..=30).filter_map(|last| guests.admit(IpAddr::from([10, 88, 0, last]), Duration::ZERO)).collect();
        let held = all.iter().filter(|number| guests.is_pod(**number, "u")).count();
        assert_eq!(held, MAX_FROM_ONE);
        assert!(guests.is_pod(all[0], "u"), "it keeps those that it has");
    }

    #[test]
    fn handshakes_of_one_address_have_a_limit() {
        let mut guests = Guests::default();
        let mut admitted = |last: u8, seconds: u64| {
            let from = IpAddr::from([10, 88, 0, last]);
            let one = |_: &u32| {
                let number = guests.admit(from, Duration::from_secs(seconds));
                number.inspect(|number| guests.left(*number)).is_some()
            };
            (0..1_000).filter(one).count()
        };
        assert_eq!((admitted(1, 1), admitted(2, 1), admitted(1, 9)), (100, 100, 0));
        assert_eq!(admitted(1, 10), 100);
    }
}
