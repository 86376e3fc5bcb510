//! Memory for messages: a small part for each connection, so that small requests never wait for others, and a part that
//! all connections share.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::message::MAX_MESSAGE;

/// Bytes of requests that one connection may always hold: a report of a property has some hundred.
pub(super) const OWN: usize = 8 << 10;

/// What all connections share: bytes of requests, and of answers that wait to be read. The longest message fits just so.
pub(crate) struct Rooms {
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { requests: Arc::new(Semaphore::new(MAX_MESSAGE)), answers: Arc::new(Semaphore::new(MAX_MESSAGE)) }
    }
}

impl Rooms {
    /// Waits for its turn. None is for more than the longest message.
    pub(super) async fn request(&self, bytes: usize) -> Option<Room> {
        let bytes = u32::try_from(bytes).ok().filter(|_| bytes <= MAX_MESSAGE)?;
        let permit = Arc::clone(&self.requests).acquire_many_owned(bytes).await.ok()?;
        Some(Room { _own: None, _shared: Some(permit) })
    }

    /// Does not wait: the answer is there already, and would hold what it waits for.
    pub(crate) fn answer(&self, bytes: usize) -> Option<Room> {
        let permit = Arc::clone(&self.answers).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()?;
        Some(Room { _own: None, _shared: Some(permit) })
    }
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    _own: Option<Share>,
    _shared: Option<OwnedSemaphorePermit>,
}

/// Memory that one connection holds.
#[derive(Debug)]
pub(super) struct Own(Rc<Cell<usize>>);

impl Own {
    pub(super) fn new() -> Self {
        Self(Rc::new(Cell::new(OWN)))
    }

    pub(super) fn take(&self, bytes: usize) -> Option<Room> {
        self.0.set(self.0.get().checked_sub(bytes)?);
        Some(Room { _own: Some(Share { left: Rc::clone(&self.0), bytes }), _shared: None })
    }
}

#[derive(Debug)]
struct Share {
    left: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.left.set(self.left.get() + self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back() {
        let own = Own::new();
        let first = own.take(OWN - 1);
        assert!(first.is_some() && own.take(2).is_none());
        drop(first);
        assert!(own.take(OWN).is_some());
        let rooms = Rooms::default();
        let first = rooms.answer(MAX_MESSAGE);
        assert!(first.is_some() && rooms.answer(1).is_none() && rooms.answer(0).is_some());
        drop(first);
        assert!(rooms.answer(MAX_MESSAGE).is_some() && rooms.answer(MAX_MESSAGE + 1).is_none());
    }
}
