//! Messages that wait for the broker: few, and not many bytes of them. What finds no room is for the caller to drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::twins::Message;

/// Messages and bytes that wait: answers to what a broker sends at once after it has been silent for a second or two.
const MESSAGES: usize = 2_048;
const BYTES: usize = 1 << 20;
/// Memory of a message beside its texts.
const EACH: usize = 128;

/// Receives a value when the broker has acknowledged a message; if it is dropped, the result is unknown.
pub(super) type Confirm = oneshot::Sender<()>;

/// A message, and who waits for it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) message: Message,
    pub(super) confirm: Option<Confirm>,
}

/// The sending end.
#[derive(Debug)]
pub struct Queue {
    messages: mpsc::Sender<Entry>,
    bytes: Arc<AtomicUsize>,
}

/// The end of the connection.
#[derive(Debug)]
pub struct Waiting {
    messages: mpsc::Receiver<Entry>,
    bytes: Arc<AtomicUsize>,
}

#[must_use]
pub fn queue() -> (Queue, Waiting) {
    let (sender, receiver) = mpsc::channel(MESSAGES);
    let bytes = Arc::new(AtomicUsize::new(0));
    (Queue { messages: sender, bytes: Arc::clone(&bytes) }, Waiting { messages: receiver, bytes })
}

fn weight(message: &Message) -> usize {
    EACH + message.topic.len() + message.payload.len()
}

impl Queue {
    /// Messages that find room now.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.bytes.load(Ordering::Relaxed) < BYTES { self.messages.capacity() } else { 0 }
    }

    /// Whether it found room.
    pub fn put(&self, message: Message) -> bool {
        self.put_entry(message, None)
    }

    /// If it finds room: waits until the broker has acknowledged it; fails when that cannot be known.
    pub fn put_confirmed(&self, message: Message) -> Option<oneshot::Receiver<()>> {
        let (confirm, confirmed) = oneshot::channel();
        self.put_entry(message, Some(confirm)).then_some(confirmed)
    }

    fn put_entry(&self, message: Message, confirm: Option<Confirm>) -> bool {
        if self.room() == 0 {
            return false;
        }
        let weight = weight(&message);
        self.bytes.fetch_add(weight, Ordering::Relaxed);
        let put = self.messages.try_send(Entry { message, confirm }).is_ok();
        if !put {
            self.bytes.fetch_sub(weight, Ordering::Relaxed);
        }
        put
    }
}

impl Waiting {
    /// `None` when the publishers are gone.
    pub(super) async fn next(&mut self) -> Option<Entry> {
        let entry = self.messages.recv().await?;
        self.bytes.fetch_sub(weight(&entry.message), Ordering::Relaxed);
        Some(entry)
    }

    /// What waits already.
    pub(super) fn now(&mut self) -> Option<Entry> {
        let entry = self.messages.try_recv().ok()?;
        self.bytes.fetch_sub(weight(&entry.message), Ordering::Relaxed);
        Some(entry)
    }

    /// Forgets what waits.
    pub(super) fn clear(&mut self) {
        while self.now().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_many_nor_large_messages_fill_the_memory() {
        let message = |size| Message { topic: "t".into(), payload: vec![0; size] };
        let (queue, mut waiting) = queue();
        assert_eq!((0..10_000).filter(|_| queue.put(message(1))).count(), MESSAGES);
        waiting.clear();
        assert_eq!((0..1_000).filter(|_| queue.put(message(BYTES / 4))).count(), 4);
        assert_eq!(queue.room(), 0);
        waiting.clear();
        assert_eq!(queue.room(), MESSAGES);
    }
}
