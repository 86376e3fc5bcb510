//! Who is next: each of those who wait in turn, however much one of them asks for.

use std::collections::{BTreeMap, VecDeque};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures::{Stream, stream};

/// What is made of the items of a stream in one step of the thread takes about this long at the most.
const SLICE: Duration = Duration::from_millis(3);

/// The items of a stream, in time slices: one that has many at hand, as a watch has the page of a list, holds up nobody else for
/// longer. Not item by item: among a thousand links that are busy, each with a step of its own, it would fall behind for good.
pub fn in_slices<S: Stream>(items: S) -> impl Stream<Item = S::Item> {
    slices_of(SLICE, items)
}

fn slices_of<S: Stream>(slice: Duration, items: S) -> impl Stream<Item = S::Item> {
    let (mut items, mut since) = (Box::pin(items), None::<Instant>);
    stream::poll_fn(move |context| {
        if since.is_some_and(|since| since.elapsed() >= slice) {
            since = None;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = items.as_mut().poll_next(context);
        since = polled.is_ready().then(|| since.unwrap_or_else(Instant::now));
        polled
    })
}

/// What waits, by who it is of.
#[derive(Debug)]
pub struct Turns<K, T> {
    waiting: BTreeMap<K, VecDeque<T>>,
    order: VecDeque<K>,
}

impl<K, T> Default for Turns<K, T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Ord, T> Turns<K, T> {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn add(&mut self, who: K, what: T) {
        let waiting = self.waiting.entry(who.clone()).or_default();
        if waiting.is_empty() {
            self.order.push_back(who);
        }
        waiting.push_back(what);
    }

    pub fn take(&mut self) -> Option<(K, T)> {
        let who = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&who)?;
        let what = waiting.pop_front()?;
        if waiting.is_empty() {
            self.waiting.remove(&who);
        } else {
            self.order.push_back(who.clone());
        }
        Some((who, what))
    }

    /// Drops what nobody needs any more.
    pub fn retain(&mut self, mut needed: impl FnMut(&T) -> bool) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(&mut needed);
            !waiting.is_empty()
        });
        self.order.retain(|who| self.waiting.contains_key(who));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use futures::StreamExt as _;
    use tokio::task::yield_now;

    use super::*;

    /// What is told of a stream in such slices, and of another task that is ready all the time.
    async fn told(slice: Duration) -> Vec<&'static str> {
        let told = RefCell::new(Vec::new());
        let items = slices_of(slice, stream::iter(["0", "1", "2"])).for_each(|item| {
            told.borrow_mut().push(item);
            ready(())
        });
        let other = async {
            for _ in 0..2 {
                yield_now().await;
                told.borrow_mut().push("other");
            }
        };
        futures::join!(items, other);
        told.into_inner()
    }

    #[tokio::test]
    async fn others_have_their_turn_when_a_slice_is_over_and_not_before() {
        assert_eq!(told(Duration::ZERO).await, ["0", "1", "other", "2", "other"]);
        assert_eq!(told(Duration::MAX).await, ["0", "1", "2", "other", "other"]);
    }

    #[test]
    fn each_has_its_turn() {
        let mut turns = Turns::default();
        for (who, what) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6), ("d", 7)] {
            turns.add(who, what);
        }
        let order: Vec<i32> = std::iter::from_fn(|| turns.take()).map(|(_, what)| what).collect();
        assert_eq!(order, [1, 4, 5, 7, 2, 6, 3]);
        assert!(turns.is_empty());
    }

    #[test]
    fn what_nobody_needs_is_dropped() {
        let mut turns = Turns::default();
        for (who, what) in [("a", 1), ("a", 2), ("b", 3), ("c", 4)] {
            turns.add(who, what);
        }
        turns.retain(|what| matches!(what, 2 | 4));
        turns.add("b", 5);
        let order: Vec<i32> = std::iter::from_fn(|| turns.take()).map(|(_, what)| what).collect();
        assert_eq!(order, [2, 4, 5]);
        turns.add("a", 6);
        turns.retain(|_| false);
        assert!(turns.is_empty());
    }
}
