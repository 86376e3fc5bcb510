//! Bytes of one stream, from the connection of its node to its reader. What waits is one buffer: chunks of a few
//! bytes, one by one in a queue, would take many times the memory of their credit.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use kubelet_api::backend::BackendError;

use super::stream_memory::CREDIT;

/// Maximum bytes that a reader gets at once. The node gets credit for them while the reader still has them.
const PIECE: usize = 16 << 10;

#[derive(Debug, Default)]
struct State {
    /// Limited by the node's credit.
    bytes: Vec<u8>,
    /// `None` while more can come; with an error if the stream failed.
    end: Option<Option<BackendError>>,
    reader: Option<Waker>,
}

impl State {
    /// The next piece, the error, or the end; nothing if the reader has to wait.
    fn next(&mut self) -> Option<Option<Result<Bytes, BackendError>>> {
        if self.bytes.len() > PIECE {
            return Some(Some(Ok(self.bytes.drain(..PIECE).collect::<Vec<u8>>().into())));
        }
        if !self.bytes.is_empty() {
            let mut rest = std::mem::take(&mut self.bytes);
            // Its reader may keep it long, and more comes meanwhile.
            rest.shrink_to_fit();
            return Some(Some(Ok(rest.into())));
        }
        Some(self.end.as_mut()?.take().map(Err))
    }

    /// Adds bytes, with no more room than for what the node has credit for.
    fn add(&mut self, data: Vec<u8>) {
        let (length, capacity) = (self.bytes.len(), self.bytes.capacity());
        if length == 0 {
            self.bytes = data;
            return;
        }
        let needed = length + data.len();
        if needed > capacity {
            self.bytes.reserve_exact(needed.max(CREDIT.min(2 * capacity)) - length);
        }
        self.bytes.extend(data);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection's end. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct ChunkSender(Arc<Mutex<State>>);

impl ChunkSender {
    /// Adds bytes. False if the reader is gone.
    #[must_use]
    pub(super) fn send(&self, data: Vec<u8>) -> bool {
        if Arc::strong_count(&self.0) == 1 {
            return false;
        }
        self.change(|state| state.add(data));
        true
    }

    /// Ends the stream with an error, which comes after the bytes.
    pub(super) fn fail(&self, error: BackendError) {
        self.change(|state| state.end = Some(Some(error)));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0);
        change(&mut state);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for ChunkSender {
    fn drop(&mut self) {
        self.change(|state| {
            state.end.get_or_insert(None);
        });
    }
}

/// The reader's end.
#[derive(Debug)]
pub(super) struct Chunks(Arc<Mutex<State>>);

impl Chunks {
    pub(super) fn new() -> (ChunkSender, Self) {
        let state = Arc::new(Mutex::default());
        (ChunkSender(Arc::clone(&state)), Self(state))
    }

    /// The next bytes; an error, and `None` after it or at the end.
    pub(super) async fn recv(&mut self) -> Option<Result<Bytes, BackendError>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    pub(super) fn poll_recv(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, BackendError>>> {
        let mut state = lock(&self.0);
        match state.next() {
            Some(next) => Poll::Ready(next),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn bytes_that_wait_are_one_buffer() {
        let (sender, mut chunks) = Chunks::new();
        assert!((0..PIECE + 2).all(|_| sender.send(vec![7])));
        sender.fail(BackendError::Internal("broken".into()));
        drop(sender);
        let mut next = || chunks.recv().now_or_never().unwrap();
        assert_eq!(next().unwrap().unwrap().len(), PIECE);
        assert_eq!(next().unwrap().unwrap(), [7_u8, 7][..]);
        assert_eq!(next().unwrap().unwrap_err().to_string(), "broken");
        assert!(next().is_none() && next().is_none());
    }

    #[test]
    fn bytes_take_no_more_memory_than_their_credit() {
        let (sender, mut chunks) = Chunks::new();
        let sent = [vec![1_u8; 40_000], vec![2], vec![3; 25_000]];
        assert!(sent.iter().all(|part| sender.send(part.clone())));
        assert!(lock(&chunks.0).bytes.capacity() <= CREDIT);
        let mut next = || Vec::<u8>::from(chunks.recv().now_or_never().unwrap().unwrap().unwrap());
        let pieces = [next(), next(), next(), next()];
        assert!(pieces.concat() == sent.concat(), "in order");
        assert!(pieces.iter().all(|piece| piece.capacity() <= PIECE), "the last one, too");
    }

    #[tokio::test]
    async fn reader_waits_for_bytes_and_for_the_end() {
        let (sender, mut chunks) = Chunks::new();
        let (first, ()) = tokio::join!(chunks.recv(), async { assert!(sender.send(vec![1])) });
        assert_eq!(first.unwrap().unwrap(), [1_u8][..]);
        let (end, ()) = tokio::join!(chunks.recv(), async { drop(sender) });
        assert!(end.is_none());
    }

    #[test]
    fn sender_sees_that_its_reader_is_gone() {
        let (sender, chunks) = Chunks::new();
        assert!(sender.send(vec![1]));
        drop(chunks);
        assert!(!sender.send(vec![1]));
    }
}
