//! A limited number of places that waiters get in turns, by source: a source with many waiters does not delay others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::turns::Turns;
use tokio::sync::oneshot;

/// A fixed number of places. The callers limit the number of waiters: each has a connection.
#[derive(Debug)]
pub(super) struct Places<K: Clone + Ord>(Arc<Mutex<State<K>>>);

#[derive(Debug)]
struct State<K: Clone + Ord> {
    free: usize,
    waiting: Turns<K, oneshot::Sender<Place<K>>>,
}

/// A place, passed on when dropped.
#[derive(Debug)]
pub(super) struct Place<K: Clone + Ord>(Arc<Mutex<State<K>>>);

impl<K: Clone + Ord> Places<K> {
    pub(super) fn new(free: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free, waiting: Turns::default() })))
    }

    /// Waits for a place.
    pub(super) async fn take(&self, source: K) -> Place<K> {
        let given = {
            let mut state = lock(&self.0);
            if state.free > 0 {
                state.free -= 1;
                return Place(Arc::clone(&self.0));
            }
            let (give, given) = oneshot::channel();
            state.waiting.add(source, give);
            given
        };
        // Waiters are notified before it is dropped.
        given.await.unwrap_or_else(|_| Place(Arc::clone(&self.0)))
    }
}

impl<K: Clone + Ord> Drop for Place<K> {
    fn drop(&mut self) {
        let next = {
            let mut state = lock(&self.0);
            let next = std::iter::from_fn(|| state.waiting.take()).find(|(_, give)| !give.is_closed());
            state.free += usize::from(next.is_none());
            next
        };
        if let Some((_, give)) = next {
            // If the waiter is gone, it is dropped here, and thus passed on.
            drop(give.send(Self(Arc::clone(&self.0))));
        }
    }
}

fn lock<K: Clone + Ord>(state: &Mutex<State<K>>) -> MutexGuard<'_, State<K>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_source_with_many_does_not_stand_before_others() {
        let places = Places::new(1);
        let first = places.take("eve").await;
        let mut eve: Vec<_> = (0..5).map(|_| Box::pin(places.take("eve"))).collect();
        assert!(eve.iter_mut().all(|wait| wait.now_or_never().is_none()));
        let mut bob = Box::pin(places.take("bob"));
        assert!(bob.as_mut().now_or_never().is_none());
        drop(first);
        let second = eve[0].as_mut().now_or_never().unwrap();
        drop(second);
        let third = bob.as_mut().now_or_never().unwrap();
        assert!(eve[1].as_mut().now_or_never().is_none());
        // Those that no longer wait, and one that was given the place but did not take it.
        drop(eve.split_off(2));
        drop(third);
        drop(eve.remove(1));
        assert!(places.take("eve").now_or_never().is_some());
        assert_eq!(lock(&places.0).free, 1);
    }
}
