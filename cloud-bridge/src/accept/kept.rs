//! One proven connection with requests and answers: closed when it has been idle for too long, or when another
//! connection needs its place.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::room::Seat;

#[derive(Debug)]
pub struct Kept {
    /// One seat for the address, and one for the user.
    seats: Vec<Seat>,
    idle: Duration,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    busy: usize,
    since: Instant,
}

impl Kept {
    pub(super) fn new(seats: Vec<Seat>, idle: Duration) -> Arc<Self> {
        let state = Mutex::new(State { busy: 0, since: Instant::now() });
        Arc::new(Self { seats, idle, state, changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spare(&self, spare: bool) {
        self.seats.iter().for_each(|seat| seat.spare(spare));
    }

    /// Returns when a seat is lost.
    async fn lost(&self) {
        let lost: Vec<_> = self.seats.iter().map(Seat::lost).collect();
        let mut any: FuturesUnordered<_> = lost.iter().map(|lost| lost.notified()).collect();
        // A connection without seats cannot lose one.
        if any.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    /// Marks a request as under way until this is dropped, with its answer's last byte.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.state().busy += 1;
        self.spare(false);
        self.changed.notify_one();
        Busy(Arc::clone(self))
    }

    /// Returns when the connection must be closed. Call it from one task only.
    pub async fn over(&self) {
        let mut lost = pin!(self.lost());
        loop {
            let until = {
                let state = self.state();
                (state.busy == 0).then(|| state.since + self.idle)
            };
            let idle = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = &mut lost => return,
                () = idle => return,
            }
        }
    }
}

/// See [`Kept::busy`].
#[derive(Debug)]
pub struct Busy(Arc<Kept>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        state.since = Instant::now();
        if state.busy == 0 {
            self.0.spare(true);
        }
        drop(state);
        self.0.changed.notify_one();
    }
}
