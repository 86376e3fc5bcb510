//! How long a connection may take: for the head of a request, without a request, and for reading an answer. A request
//! that is answered, such as a watch, has no limit here and needs no timer.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

/// For the head of a request, from its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// Without a request.
const IDLE: Duration = Duration::from_secs(90);
/// While the pod reads nothing of its answer.
const STUCK: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Pace {
    phase: Cell<Phase>,
    /// Since when the pod has read nothing of what waits.
    stuck: Cell<Option<Instant>>,
    /// Shows others that the connection waits for another request, and has sent the answer before.
    is_idle: Rc<Cell<bool>>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle(Instant),
    Head(Instant),
    Busy,
}

/// A request on the connection, until its answer has ended.
#[derive(Debug)]
pub(super) struct Busy(Rc<Pace>);

impl Pace {
    /// A connection must begin with a request at once.
    pub(super) fn new(is_idle: Rc<Cell<bool>>) -> Self {
        Self { phase: Cell::new(Phase::Head(Instant::now())), stuck: Cell::new(None), is_idle }
    }

    fn begin(&self, phase: Phase) {
        self.phase.set(phase);
        self.show();
    }

    fn show(&self) {
        self.is_idle.set(matches!(self.phase.get(), Phase::Idle(_)) && self.stuck.get().is_none());
    }

    fn due(&self) -> Option<Instant> {
        let phase = match self.phase.get() {
            Phase::Idle(since) => Some(since + IDLE),
            Phase::Head(since) => Some(since + HEAD),
            Phase::Busy => None,
        };
        [phase, self.stuck.get().map(|since| since + STUCK)].into_iter().flatten().min()
    }

    fn read(&self) {
        if let Phase::Idle(_) = self.phase.get() {
            self.begin(Phase::Head(Instant::now()));
        }
    }

    fn wrote<T>(&self, written: &Poll<T>) {
        if written.is_ready() {
            self.stuck.set(None);
        } else if self.stuck.get().is_none() {
            self.stuck.set(Some(Instant::now()));
        }
        self.show();
    }
}

impl Busy {
    pub(super) fn new(pace: &Rc<Pace>) -> Self {
        pace.begin(Phase::Busy);
        Self(Rc::clone(pace))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.begin(Phase::Idle(Instant::now()));
    }
}

/// Drives a connection until it ends or takes too long.
pub(super) async fn drive(connection: impl Future, pace: &Pace) {
    let mut connection = pin!(connection);
    let mut due_at = pin!(sleep(HEAD));
    poll_fn(|context| {
        if connection.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let Some(due) = pace.due() else { return Poll::Pending };
        if due_at.deadline() != due {
            due_at.as_mut().reset(due);
        }
        due_at.as_mut().poll(context)
    })
    .await;
}

/// A stream whose reads and writes are timed.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    pace: Rc<Pace>,
}

impl<S> Paced<S> {
    pub(super) const fn new(stream: S, pace: Rc<Pace>) -> Self {
        Self { stream, pace }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.pace.read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.pace.wrote(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.pace.wrote(&flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.pace.wrote(&ended);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_with_an_answer_under_way_is_not_idle() {
        let is_idle = Rc::new(Cell::new(false));
        let pace = Rc::new(Pace::new(Rc::clone(&is_idle)));
        let busy = Busy::new(&pace);
        pace.wrote::<()>(&Poll::Pending);
        drop(busy);
        assert!(!is_idle.get(), "its end has not been sent");
        pace.wrote(&Poll::Ready(()));
        assert!(is_idle.get());
    }

    #[test]
    fn each_phase_has_its_time() {
        let is_idle = Rc::new(Cell::new(false));
        let pace = Rc::new(Pace::new(Rc::clone(&is_idle)));
        let left = || pace.due().map(|due| due.duration_since(Instant::now()));
        assert!(left().is_some_and(|left| left <= HEAD));
        let busy = Busy::new(&pace);
        assert_eq!(left(), None, "a watch needs no timer");
        pace.read();
        assert_eq!(left(), None);
        pace.wrote::<()>(&Poll::Pending);
        assert!(left().is_some_and(|left| left <= STUCK && left > HEAD));
        pace.wrote(&Poll::Ready(()));
        assert_eq!(left(), None);
        assert!(!is_idle.get());
        drop(busy);
        assert!(left().is_some_and(|left| left <= IDLE && left > STUCK) && is_idle.get());
        pace.read();
        assert!(left().is_some_and(|left| left <= HEAD) && !is_idle.get());
    }
}
