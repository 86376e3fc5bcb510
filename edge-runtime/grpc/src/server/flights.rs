//! Calls of one connection that are handed over and not answered. Each holds its place and its message's memory until it is
//! answered, even if its client has gone: otherwise clients that go at once could fill the queue before them with messages.
//! Where calls end with their client, the code that answers drops them at once.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

use super::room::Room;
use crate::{Code, Status};

pub(super) type Answer = Result<Vec<u8>, Status>;

#[derive(Debug)]
pub(super) struct Flights {
    calls: Vec<Flight>,
    /// A call without an answer by then is given up.
    life: Duration,
    /// Whether a call ends with its client.
    cancels: bool,
}

#[derive(Debug)]
struct Flight {
    stream: i32,
    reply: oneshot::Receiver<Answer>,
    until: Instant,
    _place: OwnedSemaphorePermit,
    _room: Room,
}

impl Flights {
    pub(super) const fn new(life: Duration, cancels: bool) -> Self {
        Self { calls: Vec::new(), life, cancels }
    }

    pub(super) fn add(
        &mut self,
        now: Instant,
        stream: i32,
        place: OwnedSemaphorePermit,
        room: Room,
    ) -> oneshot::Sender<Answer> {
        let (reply, receiver) = oneshot::channel();
        let until = now + self.life;
        self.calls.push(Flight { stream, reply: receiver, until, _place: place, _room: room });
        reply
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Gives those up that take too long.
    pub(super) fn tick(&mut self, now: Instant) {
        self.calls.retain(|flight| flight.until > now);
    }

    /// Drops cancelled calls, where calls end with their client.
    pub(super) fn keep_asked(&mut self, mut is_asked: impl FnMut(i32) -> bool) {
        if self.cancels {
            self.calls.retain(|flight| is_asked(flight.stream));
        }
    }

    pub(super) fn wake(&self) -> Option<Instant> {
        self.calls.iter().map(|flight| flight.until).min()
    }

    /// The next answer, and for which stream; never, if none is waited for.
    pub(super) async fn next(&mut self) -> (i32, Answer) {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Same without waiting: the next answer, if there is one now.
    pub(super) fn landed(&mut self) -> Option<(i32, Answer)> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(landed) => Some(landed),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(i32, Answer)> {
        for at in 0..self.calls.len() {
            let Some(flight) = self.calls.get_mut(at) else { continue };
            if let Poll::Ready(answer) = Pin::new(&mut flight.reply).poll(context) {
                let stream = self.calls.swap_remove(at).stream;
                let unanswered = |_| Err(Status::new(Code::Internal, "nobody answers this call"));
                return Poll::Ready((stream, answer.unwrap_or_else(unanswered)));
            }
        }
        Poll::Pending
    }

    /// Waits until all calls are answered, unless they end with their client, which has gone.
    pub(super) async fn land(mut self) {
        if self.cancels {
            return;
        }
        let life = self.life;
        let landed = async {
            while !self.is_empty() {
                // No client waits for the answer.
                let _ = self.next().await;
            }
        };
        // Calls that still run then are abandoned.
        let _ = timeout(life, landed).await;
    }
}
