//! Lines that wait for a caller, bounded in number and in bytes: one that does not read must not fill the memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Bytes that wait for a caller before it gets no more. Has room for what a daemon is told at its start: 16 Ki devices of
/// plugins with the longest names are 12 MB, and all twins of `edge-devices` as rows less.
const MAX_WAITING: usize = 16 << 20;
/// Timeout for writing one line.
const PATIENCE: Duration = Duration::from_secs(30);

/// Puts lines into the queue of a caller.
#[derive(Debug)]
pub struct Teller {
    lines: mpsc::Sender<Vec<u8>>,
    /// Bytes of a line without its end.
    longest: usize,
    waiting: Arc<AtomicUsize>,
}

/// The other end of the queue.
#[derive(Debug)]
pub struct Waiting {
    lines: mpsc::Receiver<Vec<u8>>,
    waiting: Arc<AtomicUsize>,
}

/// A queue for `most` lines of up to `longest` bytes.
#[must_use]
pub fn queue(most: usize, longest: usize) -> (Teller, Waiting) {
    let (sender, receiver) = mpsc::channel(most);
    let waiting = Arc::new(AtomicUsize::new(0));
    (Teller { lines: sender, longest, waiting: Arc::clone(&waiting) }, Waiting { lines: receiver, waiting })
}

impl Teller {
    /// Adds a message as one line of JSON. Returns false if the queue is full: the caller does not read, or has gone.
    #[must_use]
    pub fn tell(&self, message: &impl Serialize) -> bool {
        serde_json::to_vec(message).is_ok_and(|line| self.tell_line(line))
    }

    fn tell_line(&self, mut line: Vec<u8>) -> bool {
        if line.len() > self.longest {
            // The caller would end the connection, and again every one after it.
            log::error!("a line of {} bytes is too long to send: dropped", line.len());
            return true;
        }
        line.push(b'\n');
        let length = line.len();
        if self.waiting.load(Ordering::Relaxed) >= MAX_WAITING {
            return false;
        }
        self.waiting.fetch_add(length, Ordering::Relaxed);
        let is_taken = self.lines.try_send(line).is_ok();
        if !is_taken {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
        }
        is_taken
    }

    /// Whether at most a quarter of the bytes and half of the lines wait. News that can be told later wait for that.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let bytes = self.waiting.load(Ordering::Relaxed);
        bytes <= MAX_WAITING / 4 && self.lines.capacity() >= self.lines.max_capacity() / 2
    }
}

impl Waiting {
    /// Writes the lines until the [`Teller`] is gone.
    ///
    /// # Errors
    /// The caller has gone, or does not read.
    pub async fn write(mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while let Some(line) = self.lines.recv().await {
            let written = timeout(PATIENCE, to.write_all(&line)).await;
            self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            written??;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
    }

    #[test]
    fn lines_are_json_in_their_order() {
        block_on(async {
            let (teller, waiting) = queue(2, 5);
            assert!(teller.tell(&"a") && teller.tell(&[1, 2]));
            assert!(!teller.tell(&"b"), "two lines wait");
            assert!(teller.tell(&"longest"), "it is dropped");
            drop(teller);
            let mut written = Vec::new();
            waiting.write(&mut written).await.expect("it takes all");
            assert_eq!(written, b"\"a\"\n[1,2]\n");
        });
    }

    #[test]
    fn caller_that_does_not_read_holds_16_mib() {
        block_on(async {
            let (teller, waiting) = queue(1_000, 1 << 20);
            // With quotation marks and a line feed it is a MiB and one byte.
            let line = "x".repeat((1 << 20) - 2);
            let told = (0..1_000).take_while(|_| teller.tell(&line)).count();
            assert_eq!(told, 16, "lines of a MiB");
            assert!(!teller.tell(&1), "it has no room for a short one");
            let (mut ours, theirs) = tokio::io::duplex(4_096);
            let writing = tokio::spawn(async move { waiting.write(&mut ours).await });
            let mut theirs = crate::Lines::new(theirs, 1 << 20);
            for rest in (0..16).rev() {
                theirs.next().await.expect("a line");
                tokio::task::yield_now().await;
                assert_eq!(teller.has_room(), rest < 4, "{rest} lines wait");
            }
            assert!(teller.tell(&1));
            drop(teller);
            assert_eq!(theirs.next().await.expect("the last one"), b"1");
            writing.await.expect("it ends").expect("all is written");
        });
    }

    #[test]
    fn few_free_lines_are_no_room() {
        let (teller, waiting) = queue(4, 100);
        for is_room in [true, true, false] {
            assert!(teller.tell(&1));
            assert_eq!(teller.has_room(), is_room);
        }
        drop(waiting);
        assert!(!teller.tell(&1), "the caller has gone");
    }
}
