//! Queue of one client, in order: answers first, then messages, of which a limited number is unacknowledged. Limited by
//! count and bytes: beyond that a message with QoS 0 is dropped, and one with QoS 1 disconnects the client as too slow.

use std::collections::VecDeque;
use std::rc::Rc;

use super::super::packet;
use super::message::Body;

/// Messages and bytes that wait. All retained ones find room in one half, and with more than that nothing is read of the client.
const MESSAGES: usize = 1_024;
const BYTES: usize = 512 << 10;
/// Bytes of answers that wait before nothing more is read of the client.
const ANSWERS: usize = 4_096;
/// Maximum number of unacknowledged messages. The outbox does not keep them, and a busy client must answer that many at
/// once.
const WINDOW: usize = 128;
/// Places that are kept for the next burst.
const KEPT: usize = 16;

#[derive(Debug)]
struct Waiting {
    body: Rc<Body>,
    /// QoS 1.
    sure: bool,
    retained: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Put {
    Taken,
    Dropped,
    /// It has to be delivered, and cannot.
    TooSlow,
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    answers: Vec<u8>,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Ids without an acknowledgement.
    window: Vec<u16>,
    last: u16,
}

impl Outbox {
    pub(super) fn answer(&mut self, packet: &[u8]) {
        self.answers.extend_from_slice(packet);
    }

    pub(super) fn put(&mut self, body: &Rc<Body>, sure: bool, retained: bool) -> Put {
        if !self.fits(body) && sure {
            self.drop_unsure();
        }
        match (self.fits(body), sure) {
            (false, false) => return Put::Dropped,
            (false, true) => return Put::TooSlow,
            (true, _) => {}
        }
        self.bytes += body.weight();
        self.waiting.push_back(Waiting { body: Rc::clone(body), sure, retained });
        Put::Taken
    }

    fn fits(&self, body: &Body) -> bool {
        self.waiting.len() < MESSAGES && self.bytes + body.weight() <= BYTES
    }

    /// Forgets messages of QoS 0. How many.
    pub(super) fn drop_unsure(&mut self) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|one| one.sure);
        self.bytes = self.waiting.iter().map(|one| one.body.weight()).sum();
        before - self.waiting.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Bytes of the messages that wait.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that find room now.
    pub(super) fn room(&self) -> usize {
        if self.bytes < BYTES / 2 { MESSAGES - self.waiting.len() } else { 0 }
    }

    /// Whether the listener must stop reading from the client until the client reads. If only acknowledgements are
    /// missing, the listener must read.
    pub(super) fn is_full(&self) -> bool {
        let much = self.answers.len() >= ANSWERS || self.waiting.len() >= MESSAGES / 2 || self.bytes >= BYTES / 2;
        much && self.has_news()
    }

    /// Removes an acknowledged message [MQTT-4.3.2-1]. An unrequested acknowledgement is harmless.
    pub(super) fn acked(&mut self, id: u16) {
        if let Some(at) = self.window.iter().position(|one| *one == id) {
            self.window.swap_remove(at);
        }
    }

    /// Whether something could be written now.
    pub(super) fn has_news(&self) -> bool {
        let next = self.waiting.front();
        !self.answers.is_empty() || next.is_some_and(|next| !next.sure || self.window.len() < WINDOW)
    }

    /// Adds packets up to about `about` bytes.
    pub(super) fn write(&mut self, to: &mut Vec<u8>, about: usize) {
        to.append(&mut self.answers);
        while to.len() < about && self.has_news() {
            let Some(Waiting { body, sure, retained }) = self.waiting.pop_front() else { break };
            self.bytes -= body.weight();
            let id = sure.then(|| self.id());
            packet::message(to, &body.topic, &body.payload, id, retained);
        }
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT {
            // A burst leaves no memory behind.
            self.waiting = VecDeque::new();
        }
    }

    /// An id that is not in use [MQTT-2.3.1-2]: there are many more than the window has places.
    fn id(&mut self) -> u16 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.window.contains(&self.last) {
                self.window.push(self.last);
                return self.last;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Held;
    use super::*;

    fn body(size: usize) -> Rc<Body> {
        Body::new("t", &vec![b'x'; size], &Held::default())
    }

    #[test]
    fn window_of_messages_is_sent_and_moves_with_acknowledgements() {
        let mut outbox = Outbox::default();
        for _ in 0..WINDOW + 4 {
            assert_eq!(outbox.put(&body(1), true, false), Put::Taken);
        }
        outbox.put(&body(2), false, false);
        let mut out = Vec::new();
        outbox.write(&mut out, usize::MAX);
        assert_eq!(out.len(), WINDOW * 8);
        assert_eq!(out[..8], *b"\x32\x06\x00\x01t\x00\x01x");
        assert!(!outbox.has_news());
        outbox.acked(3);
        outbox.acked(3);
        outbox.acked(4_000);
        out.clear();
        outbox.write(&mut out, usize::MAX);
        assert_eq!(out, b"\x32\x06\x00\x01t\x00\x81x");
        (1..=200).for_each(|id| outbox.acked(id));
        out.clear();
        outbox.write(&mut out, usize::MAX);
        assert!(out.ends_with(b"\x30\x05\x00\x01txx"), "QoS 0 waits for its turn");
        assert_eq!(outbox.bytes(), 0);
    }

    #[test]
    fn a_client_that_owes_acknowledgements_is_read() {
        let mut outbox = Outbox::default();
        for _ in 0..MESSAGES {
            outbox.put(&body(1), true, false);
        }
        assert!(outbox.is_full(), "it may read");
        let mut out = Vec::new();
        outbox.write(&mut out, usize::MAX);
        assert!(!outbox.is_full(), "nothing more is to be read before it has acknowledged");
        outbox.acked(1);
        assert!(outbox.is_full());
        outbox.clear();
        outbox.answer(&[0; ANSWERS]);
        assert!(outbox.is_full());
    }

    #[test]
    fn an_id_in_use_is_not_used_again() {
        let mut outbox = Outbox::default();
        let mut out = Vec::new();
        for turn in 0..70_000_u32 {
            outbox.put(&body(0), true, false);
            out.clear();
            outbox.write(&mut out, 1);
            let id = u16::from_be_bytes([out[5], out[6]]);
            assert!(id != 0 && (id != 1 || turn == 0), "{id} in turn {turn}");
            if id != 1 {
                outbox.acked(id);
            }
        }
    }

    #[test]
    fn message_beyond_the_limit_is_dropped_or_ends_the_client() {
        let mut outbox = Outbox::default();
        for _ in 0..MESSAGES {
            assert_eq!(outbox.put(&body(1), false, false), Put::Taken);
        }
        assert_eq!(outbox.put(&body(1), false, false), Put::Dropped);
        assert_eq!(outbox.put(&body(1), true, false), Put::Taken, "QoS 0 makes room for it");
        for _ in 1..MESSAGES {
            assert_eq!(outbox.put(&body(1), true, false), Put::Taken);
        }
        assert_eq!(outbox.put(&body(1), false, false), Put::Dropped);
        assert_eq!(outbox.put(&body(1), true, false), Put::TooSlow);
        outbox.clear();
        let taken = (0..100).filter(|_| outbox.put(&body(60_000), true, false) == Put::Taken).count();
        assert_eq!(taken, BYTES / 60_097);
    }
}
