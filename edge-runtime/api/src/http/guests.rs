//! Connections at once: all, and from one address. A pod that has gone is disconnected.

use std::net::IpAddr;
use std::rc::Rc;

use sampan_sys::vec_map::VecMap;
use tokio::task::AbortHandle;

use crate::shared::Shared;

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

/// One connection's place.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) shared: Rc<Shared>,
    number: u64,
}

impl Guests {
    fn admit(&mut self, from: IpAddr) -> Option<u64> {
        let from = from.to_canonical();
        let same = self.all.values().filter(|guest| guest.from == from).count();
        (self.all.len() < MAX_CONNECTIONS && same < MAX_FROM_ONE).then(|| {
            self.newest += 1;
            self.all.insert(self.newest, Guest { from, task: None, pod: None });
            self.newest
        })
    }

    /// Ends all connections of a pod, and with them its requests.
    pub(crate) fn send_away(&self, uid: &str) {
        let of_pod = self.all.values().filter(|guest| guest.pod.as_deref() == Some(uid));
        // They leave when their tasks are dropped.
        of_pod.filter_map(|guest| guest.task.as_ref()).for_each(AbortHandle::abort);
    }
}

impl Seat {
    pub(super) fn take(shared: &Rc<Shared>, from: IpAddr) -> Option<Self> {
        let number = shared.guests.borrow_mut().admit(from)?;
        Some(Self { shared: Rc::clone(shared), number })
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// A token of this pod has come.
    pub(super) fn is_pod(&self, uid: &str) {
        if let Some(guest) = self.shared.guests.borrow_mut().all.get_mut(&self.number)
            && guest.pod.as_deref() != Some(uid)
        {
            guest.pod = Some(uid.to_owned());
        }
    }

    pub(super) fn runs(shared: &Shared, number: u64, task: AbortHandle) {
        if let Some(guest) = shared.guests.borrow_mut().all.get_mut(&number) {
            guest.task = Some(task);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.guests.borrow_mut().all.remove(&self.number);
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
        guests.all.remove(&1);
        assert!(guests.admit(from(1)).is_some());
    }
}
