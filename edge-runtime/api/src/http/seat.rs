//! The place of one connection, for as long as it is there.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use tokio::task::AbortHandle;

use crate::shared::Shared;

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) shared: Rc<Shared>,
    /// It waits for another request, and may have to give way.
    pub(super) is_idle: Rc<Cell<bool>>,
    number: u64,
}

impl Seat {
    /// `None`: there are too many connections.
    pub(super) fn take(shared: &Rc<Shared>, from: IpAddr) -> Option<Self> {
        let mut guests = shared.guests.borrow_mut();
        let number = guests.admit(from, shared.now())?;
        let is_idle = guests.idle_flag(number);
        drop(guests);
        Some(Self { shared: Rc::clone(shared), is_idle, number })
    }

    /// Serves it by the task that `start` returns. The task does not run before this is done: all is on one thread.
    pub(super) fn serve(self, start: impl FnOnce(Self) -> AbortHandle) {
        let (shared, number) = (Rc::clone(&self.shared), self.number);
        let task = start(self);
        shared.guests.borrow_mut().runs(number, task);
    }

    /// A token of this pod has come. Returns `false` if the pod has too many connections already.
    pub(super) fn is_pod(&self, uid: &str) -> bool {
        self.shared.guests.borrow_mut().is_pod(self.number, uid)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.guests.borrow_mut().left(self.number);
    }
}
