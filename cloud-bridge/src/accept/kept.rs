//! One connection that has been proven and goes on by request and answer: ended when it has been idle for long, or when
//! another needs its place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::room::Seat;

#[derive(Debug)]
pub struct Kept {
    seat: Seat,
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
    pub(super) fn new(seat: Seat, idle: Duration) -> Arc<Self> {
        let state = Mutex::new(State { busy: 0, since: Instant::now() });
        Arc::new(Self { seat, idle, state, changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is under way until this is dropped, with its answer's last byte.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.state().busy += 1;
        self.seat.spare(false);
        self.changed.notify_one();
        Busy(Arc::clone(self))
    }

    /// Returns when the connection is to be ended. To be asked by one task.
    pub async fn over(&self) {
        let lost = self.seat.lost();
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
                () = lost.notified() => return,
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
            self.0.seat.spare(true);
        }
        drop(state);
        self.0.changed.notify_one();
    }
}
