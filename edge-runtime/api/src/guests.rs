//! Pods' connections at once: all, and from one address. A pod that has gone is disconnected. No I/O.

use std::net::IpAddr;

use sampan_sys::vec_map::VecMap;
use tokio::task::AbortHandle;

const MAX_CONNECTIONS: usize = 64;
const MAX_FROM_ONE: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Guests {
    all: VecMap<u64, Guest>,
    newest: u64,
}

#[derive(Debug)]
struct Guest {
    from: IpAddr,
    task: Option<AbortHandle>,
    /// Uid of the pod whose token came last.
    pod: Option<String>,
}

impl Guests {
    /// Admits a connection. Returns its number; `None` if there are too many.
    pub(crate) fn admit(&mut self, from: IpAddr) -> Option<u64> {
        let from = from.to_canonical();
        let same = self.all.values().filter(|guest| guest.from == from).count();
        if self.all.len() >= MAX_CONNECTIONS || same >= MAX_FROM_ONE {
            return None;
        }
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

    /// A token of this pod has come.
    pub(crate) fn is_pod(&mut self, number: u64, uid: &str) {
        if let Some(guest) = self.all.get_mut(&number)
            && guest.pod.as_deref() != Some(uid)
        {
            guest.pod = Some(uid.to_owned());
        }
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
        let admitted = (0..100).filter(|_| guests.admit(from(1)).is_some()).count();
        assert_eq!(admitted, MAX_FROM_ONE);
        let mapped: IpAddr = "::ffff:10.88.0.1".parse().expect("an address");
        assert_eq!(guests.admit(mapped), None);
        let others = (2..100).filter(|last| guests.admit(from(*last)).is_some()).count();
        assert_eq!(others, MAX_CONNECTIONS - MAX_FROM_ONE);
        guests.left(1);
        assert!(guests.admit(from(1)).is_some());
    }
}
