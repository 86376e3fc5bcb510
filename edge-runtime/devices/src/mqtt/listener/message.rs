//! One message, however many clients it waits for, and how many bytes all messages have that are still somewhere.

use std::cell::Cell;
use std::rc::Rc;

/// Memory of a message beside its bytes.
const OVERHEAD: usize = 96;

/// Bytes of all messages that are held.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Rc<Cell<usize>>);

impl Held {
    pub(super) fn bytes(&self) -> usize {
        self.0.get()
    }
}

#[derive(Debug)]
pub(super) struct Body {
    pub(super) topic: Box<str>,
    pub(super) payload: Box<[u8]>,
    held: Held,
}

impl Body {
    pub(super) fn new(topic: &str, payload: &[u8], held: &Held) -> Rc<Self> {
        let body = Self { topic: topic.into(), payload: payload.into(), held: held.clone() };
        held.0.set(held.0.get() + body.weight());
        Rc::new(body)
    }

    pub(super) fn weight(&self) -> usize {
        self.topic.len() + self.payload.len() + OVERHEAD
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.held.0.set(self.held.0.get().saturating_sub(self.weight()));
    }
}
