//! Messages that the broker has not acknowledged.

use std::cell::{Cell, RefCell};

use sampan_sys::vec_map::VecMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{LESS, SILENCE};
use crate::mqtt::queue::Confirm;

/// Messages without an acknowledgement: two reads' pauses of an answer and a document to each of a thousand reports a
/// second.
pub(super) const WINDOW: usize = 128;

/// Messages that the broker has not acknowledged.
pub(super) struct Window {
    ids: RefCell<VecMap<u16, Option<Confirm>>>,
    room: Notify,
    /// When there last was room, or an acknowledgement.
    moved: Cell<Instant>,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { ids: RefCell::default(), room: Notify::new(), moved: Cell::new(Instant::now()) }
    }

    pub(super) fn acked(&self, id: u16) {
        // An unrequested acknowledgement is harmless.
        if let Some(confirm) = self.ids.borrow_mut().remove(&id) {
            self.moved.set(Instant::now());
            self.room.notify_one();
            // The sender may not wait any more.
            confirm.map(|confirm| confirm.send(()));
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.ids.borrow().len() >= WINDOW && self.moved.get().elapsed() > SILENCE
    }

    pub(super) fn has_room(&self) -> bool {
        self.ids.borrow().len() < WINDOW
    }

    pub(super) async fn room(&self) {
        while !self.has_room() {
            self.room.notified().await;
        }
    }

    /// Returns a free id: there are many more ids than places in the window.
    pub(super) fn take(&self, last: &mut u16, confirm: Option<Confirm>) -> u16 {
        let mut ids = self.ids.borrow_mut();
        loop {
            *last = last.checked_add(1).unwrap_or(LESS + 1);
            if !ids.contains_key(last) {
                ids.insert(*last, confirm);
                self.moved.set(Instant::now());
                return *last;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ids_in_use_are_not_given_again() {
        let (window, mut last) = (Window::new(), u16::MAX - 1);
        assert_eq!([0; 3].map(|_| window.take(&mut last, None)), [u16::MAX, LESS + 1, LESS + 2]);
        last = LESS;
        assert_eq!(window.take(&mut last, None), LESS + 3, "the first two are in use");
        window.acked(LESS + 1);
        window.acked(LESS + 1);
        last = LESS;
        assert_eq!(window.take(&mut last, None), LESS + 1);
    }

    #[tokio::test]
    async fn acknowledgement_makes_room_and_confirms() {
        let (window, mut last) = (Window::new(), LESS);
        let (confirm, confirmed) = tokio::sync::oneshot::channel();
        let first = window.take(&mut last, Some(confirm));
        for _ in 1..WINDOW {
            window.take(&mut last, None);
        }
        assert!(!window.has_room() && !window.is_stuck(), "the broker has time to answer");
        window.acked(first);
        assert!(window.has_room());
        confirmed.await.unwrap();
        window.room().await;
    }
}
