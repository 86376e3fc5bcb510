//! What waits to be written on one connection: control frames first, then the slices of a large message.

use crate::body::{Body, Slice};
use crate::frame::{self, Message};
use std::collections::VecDeque;
use std::sync::Arc;

/// Control frames a peer can make us owe it before we call it hostile.
const MAX_CONTROL: usize = 256;

#[derive(Debug)]
pub(crate) struct Outgoing<T> {
    control: VecDeque<T>,
    slices: VecDeque<Piece>,
}

/// One frame.
#[derive(Debug)]
pub(crate) enum Piece {
    Text(String),
    /// Shared by all receivers.
    Shared(Slice),
}

impl Piece {
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Shared(slice) => slice.text(),
        }
    }
}

/// Text of one message.
#[derive(Debug)]
pub(crate) enum Whole {
    Text(String),
    /// A large body, of which there is one text for all, and what stands around it.
    Around {
        head: String,
        body: Arc<Body>,
        tail: &'static str,
    },
}

impl Whole {
    pub(crate) fn around(head: String, body: &Arc<Body>, tail: &'static str) -> Self {
        if body.slices().is_some() {
            return Self::Around { head, body: Arc::clone(body), tail };
        }
        Self::Text(head + body.text() + tail)
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Around { head, body, tail } => head.len() + body.text().len() + tail.len(),
        }
    }
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
    pub(crate) fn next(&mut self) -> Option<Piece> {
        if let Some(message) = self.control.pop_front() {
            // A bridge has thousands of these, and nearly all are empty nearly always.
            if self.control.is_empty() {
                self.control = VecDeque::new();
            }
            return Some(Piece::Text(frame::encode(&message)));
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

    /// Takes a message, returns its first frame and keeps the others. Call it only when `next` returns nothing.
    pub(crate) fn begin(&mut self, message: Whole) -> Option<Piece> {
        debug_assert!(self.slices.is_empty(), "slices of two messages must not mix");
        let part = |more: bool, text: String| Piece::Text(frame::encode(&T::part(more, text)));
        match message {
            Whole::Text(text) => self.slices.extend(frame::split::<T>(text).into_iter().map(Piece::Text)),
            Whole::Around { head, body, tail } => {
                self.slices.push_back(part(true, head));
                self.slices.extend(body.slices().into_iter().flatten().map(Piece::Shared));
                self.slices.push_back(part(false, tail.to_owned()));
            }
        }
        self.next()
    }
}
