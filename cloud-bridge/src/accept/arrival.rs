//! One connection until it is proven: its permits, and the time that its peer has made the bridge wait.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::coop;
use tokio::time::Instant;

use super::room::Seat;
use super::{Gate, Patience, Source, TURNS, Turns};

/// A connection that arrives, shared by the task that moves its bytes and the one that answers its requests.
#[derive(Debug)]
pub struct Arrival {
    gate: Arc<Gate>,
    source: Source,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// Place of the connection until it is proven.
    seat: Option<Seat>,
    turn: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>,
    slow: Option<Seat>,
    /// Number of its requests in progress. At 0 the connection waits for the peer.
    work: usize,
    since: Instant,
    /// Time of waiting for the peer before that.
    waited: Duration,
}

impl State {
    fn waited(&self) -> Duration {
        let now = if self.work == 0 { self.since.elapsed() } else { Duration::ZERO };
        self.waited + now
    }
}

/// How to wait for a slow peer.
enum Wait {
    /// Not at all.
    None,
    Until(Instant, Option<Arc<Notify>>),
    Over(&'static str),
}

impl Arrival {
    pub(super) fn new(gate: Arc<Gate>, source: Source, seat: Seat) -> Arc<Self> {
        gate.sources().entry(source).or_insert_with(|| Turns::new(TURNS.1)).arrivals += 1;
        let state =
            State { seat: Some(seat), turn: None, slow: None, work: 0, since: Instant::now(), waited: Duration::ZERO };
        Arc::new(Self { gate, source, state: Mutex::new(state), changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit for expensive work: their number is limited, and they are given in order of arrival. The
    /// permit is released when the peer makes the bridge wait, and when the connection is proven.
    pub async fn turn(&self) {
        let work = self.work();
        let own = self.gate.sources().get(&self.source).map(|source| Arc::clone(&source.turns));
        let Some(own) = own else { return };
        // Both semaphores are never closed.
        if let (Ok(own), Ok(all)) = (own.acquire_owned().await, Arc::clone(&self.gate.turns).acquire_owned().await) {
            self.state().turn = Some((own, all));
        }
        drop(work);
    }

    /// Marks the bridge as working until this is dropped: the peer need not send anything.
    pub fn work(&self) -> Work<'_> {
        let mut state = self.state();
        if state.work == 0 {
            state.waited = state.waited();
            state.slow = None;
        }
        state.work += 1;
        drop(state);
        self.changed.notify_one();
        Work(self)
    }

    /// The connection is proven: it is no longer watched, and releases its place.
    pub fn proven(&self) {
        let mut state = self.state();
        (state.seat, state.slow, state.turn) = (None, None, None);
        drop(state);
        self.changed.notify_one();
    }

    /// Releases the permit for expensive work; the connection still counts as arriving.
    pub fn rest(&self) {
        self.state().turn = None;
    }

    /// Executes `work` as long as the peer does not make the bridge wait for too long. Call it from one task only.
    ///
    /// # Errors
    /// Those of `work`; `TimedOut` if the peer is too slow.
    pub async fn within<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            // The timer is checked even if work uses up each step of the task.
            why = coop::unconstrained(self.overdue()) => Err(io::Error::new(io::ErrorKind::TimedOut, why)),
        }
    }

    async fn overdue(&self) -> &'static str {
        loop {
            let (until, lost) = match self.look() {
                Wait::Over(why) => return why,
                Wait::None => {
                    self.changed.notified().await;
                    continue;
                }
                Wait::Until(until, lost) => (until, lost),
            };
            let lost = async {
                match lost {
                    Some(lost) => lost.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.changed.notified() => {}
                () = lost => return "others from there wait, too, and have done so for less long",
            }
        }
    }

    fn look(&self) -> Wait {
        let mut state = self.state();
        if state.seat.is_none() || state.work > 0 {
            return Wait::None;
        }
        let (waited, Patience { grace, arrival, .. }) = (state.waited(), self.gate.patience);
        if waited >= arrival {
            return Wait::Over("it took too long");
        }
        if waited >= grace && state.slow.is_none() {
            state.turn = None;
            match self.gate.slow.enter(self.source) {
                Some(seat) => {
                    seat.spare(true);
                    state.slow = Some(seat);
                }
                None => return Wait::Over("too many are slow"),
            }
        }
        let next = if state.slow.is_some() { arrival } else { grace };
        Wait::Until(Instant::now() + (next - waited), state.slow.as_ref().map(Seat::lost))
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut sources = self.gate.sources();
        if let Some(source) = sources.get_mut(&self.source) {
            source.arrivals -= 1;
            if source.arrivals == 0 {
                sources.remove(&self.source);
            }
        }
    }
}

/// See [`Arrival::work`].
#[derive(Debug)]
pub struct Work<'a>(&'a Arrival);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.work -= 1;
        if state.work == 0 {
            state.since = Instant::now();
        }
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Turns {
    fn new(turns: usize) -> Self {
        Self { arrivals: 0, turns: Arc::new(Semaphore::new(turns)) }
    }
}
