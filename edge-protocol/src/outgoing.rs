//! What waits to be written on one connection: control frames first, then the slices of a large message.

use crate::frame::{self, Message};
use std::collections::VecDeque;

/// Control frames a peer can make us owe it before we call it hostile.
const MAX_CONTROL: usize = 256;

#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    control: VecDeque<T>,
    slices: VecDeque<String>,
}

impl<T: Message> Outgoing<T> {
    pub(crate) fn new() -> Self {
        Self { control: VecDeque::new(), slices: VecDeque::new() }
    }

    /// Queues a small message ahead of everything else. False if the queue is full.
    #[must_use]
    pub(crate) fn control(&mut self, message: T) -> bool {
        let room = self.control.len() < MAX_CONTROL;
        if room {
            self.control.push_back(message);
        }
        room
    }

    /// Next frame that was already decided on. Control frames pass slices, but never overtake each other.
    pub(crate) fn next(&mut self) -> Option<String> {
        if let Some(message) = self.control.pop_front() {
            // A bridge has thousands of these, and nearly all are empty nearly always.
            if self.control.is_empty() {
                self.control = VecDeque::new();
            }
            return Some(frame::encode(&message));
        }
        let slice = self.slices.pop_front();
        if self.slices.is_empty() {
            self.slices = VecDeque::new();
        }
        slice
    }

    /// Whether the rest of a large message waits.
    pub(crate) fn slicing(&self) -> bool {
        !self.slices.is_empty()
    }

    /// Takes a message's text, returns its first frame and keeps the rest. Only when `next` has nothing more.
    pub(crate) fn begin(&mut self, text: String) -> Option<String> {
        debug_assert!(self.slices.is_empty(), "slices of two messages must not mix");
        self.slices.extend(frame::split::<T>(text));
        self.slices.pop_front()
    }
}
