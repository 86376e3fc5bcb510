//! Pods' connections at once: all, from one address, and of one pod. A pod that has gone is disconnected. A connection
//! without a known token gives way where all places are taken: a pod without a token cannot hold them. No I/O.

use std::net::IpAddr;
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
}

impl Guests {
    /// Admits a connection, if need be in place of one without a known token from an address that has more of them.
    /// Returns its number; `None` if there are too many. `now`: time since the start.
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
            self.dismiss(same)?;
        }
        *self.new.get_or_default(from) += 1;
        self.newest += 1;
        self.all.insert(self.newest, Guest { from, task: None, pod: None });
        Some(self.newest)
    }

    /// The task that serves a connection.
    pub(crate) fn runs(&mut self, number: u64, task: AbortHandle) {
        if let Some(guest) = self.all.get_mut(&number) {
            guest.task = Some(task);
        }
    }

    /// Ends the oldest connection without a known token of the address that has most of them. `None`: none has two more
    /// than the address that wants a place has connections.
    fn dismiss(&mut self, wanting: usize) -> Option<()> {
        let unknown = || self.all.iter().filter(|(_, guest)| guest.pod.is_none());
        let held = |from: IpAddr| unknown().filter(|(_, guest)| guest.from == from).count();
        let mut most = (wanting + 1, None);
        for (number, guest) in unknown() {
            let held = held(guest.from);
            if held > most.0 {
                most = (held, Some(*number));
            }
        }
        let guest = self.all.remove(&most.1?)?;
        if let Some(task) = guest.task {
            task.abort();
        }
        Some(())
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
