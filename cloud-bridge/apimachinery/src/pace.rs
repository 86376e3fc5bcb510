//! Time slices for tasks with much work at once, such as controllers and watches: they share one thread with the links
//! of all nodes.

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::{Stream, stream};
use tokio::task::coop;

/// Size of JSON from which work is moved to another thread. With 3,000 of the shortest values it takes some 10 ms; a
/// usual object is smaller.
pub const LARGE: usize = 16 << 10;

/// Whether the work on this number of bytes is done beside the thread.
pub const fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

/// Waits until this time, without one forever.
pub async fn sleep_until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Length of one slice.
const SLICE: Duration = Duration::from_millis(2);

/// Measures the current slice. The known state of the cluster does not change between two slices of one attempt:
/// changes wait in their watches, as kube-scheduler decides on a snapshot.
#[derive(Debug)]
pub struct Pace {
    slice: Duration,
    since: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self::with_slice(SLICE)
    }
}

impl Pace {
    pub fn with_slice(slice: Duration) -> Self {
        Self { slice, since: Instant::now() }
    }

    /// Whether the slice is over.
    pub fn is_over(&self) -> bool {
        self.since.elapsed() >= self.slice
    }

    /// Marks the end of a small piece of work: one node or one pod was looked at. Gives the thread to others when the slice
    /// is over.
    pub async fn look(&mut self) {
        if self.is_over() {
            tokio::task::yield_now().await;
            self.since = Instant::now();
        }
    }

    /// Collects items in such slices, a hundred thousand names for instance.
    pub async fn collect<T, C: Default + Extend<T>>(&mut self, items: impl IntoIterator<Item = T>) -> C {
        let mut all = C::default();
        for item in items {
            all.extend([item]);
            self.look().await;
        }
        all
    }
}

/// Limits a stream with many available items, such as a watch that has received the page of a list, to slices, so that
/// it does not block other tasks for longer. Not item by item: among a thousand busy links, each with steps of its own,
/// it would fall behind permanently.
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

/// Time of requests within one step; the last of them, and other work of the step, are added to it.
const REQUESTS: Duration = Duration::from_millis(1);
/// Units of tokio's budget for one step of a task (tokio::task::coop), each of which stands for an equal part of that
/// time.
const BUDGET: u32 = 128;

/// Counts the time of `work` against the budget of a task's step. When [`REQUESTS`] is used up, the next work in the
/// same step waits for another step, as behind a busy socket: a hundred requests that need not wait take a hundred
/// steps, even if one task has started all of them.
pub async fn counted<F: Future>(work: F) -> F::Output {
    coop::consume_budget().await;
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        let since = Instant::now();
        let polled = work.as_mut().poll(context);
        spend(context, units(since.elapsed()));
        polled
    })
    .await
}

fn units(took: Duration) -> u128 {
    took.as_nanos() * u128::from(BUDGET) / REQUESTS.as_nanos()
}

fn spend(context: &mut Context<'_>, units: u128) {
    for _ in 0..units.min(BUDGET.into()) {
        if !coop::has_budget_remaining() {
            return;
        }
        if let Poll::Ready(one) = coop::poll_proceed(context) {
            one.made_progress();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::ready;

    use futures::StreamExt as _;
    use tokio::task::yield_now;

    use super::*;

    /// Events of a stream in such slices, and of another task that is always ready.
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
    async fn collection_gives_way_after_each_slice() {
        let mut pace = Pace::with_slice(Duration::ZERO);
        let turns = RefCell::new(0);
        let items = (0..3).map(|_| *turns.borrow());
        let other = async {
            for _ in 0..3 {
                *turns.borrow_mut() += 1;
                yield_now().await;
            }
        };
        let (all, ()): (Vec<i32>, ()) = futures::join!(pace.collect(items), other);
        assert_eq!(all, [0, 1, 2]);
    }

    #[tokio::test]
    async fn requests_that_begin_together_are_several_steps() {
        let done = RefCell::new(Vec::new());
        let request = |units| {
            let done = &done;
            counted(std::future::poll_fn(move |context| {
                spend(context, units);
                done.borrow_mut().push("request");
                Poll::Ready(())
            }))
        };
        let requests = futures::future::join_all((0..5).map(|_| request(63)));
        let other = async {
            for _ in 0..2 {
                done.borrow_mut().push("other");
                yield_now().await;
            }
        };
        futures::join!(requests, other);
        assert_eq!(
            done.into_inner(),
            ["request", "request", "other", "request", "request", "other", "request"],
            "two have room in a step"
        );
    }

    #[test]
    fn budget_is_as_long_as_requests_may_take() {
        assert_eq!([units(REQUESTS), units(REQUESTS / 2), units(REQUESTS / 200)], [128, 64, 0]);
    }

    #[tokio::test]
    async fn others_have_their_turn_when_a_slice_is_over_and_not_before() {
        assert_eq!(told(Duration::ZERO).await, ["0", "1", "other", "2", "other"]);
        assert_eq!(told(Duration::MAX).await, ["0", "1", "2", "other", "other"]);
    }
}
