//! The order of requests. All requests share one thread; each client gets its turn there, however many requests of
//! another wait (the API server's fair queuing, apiserver pkg/util/flowcontrol/fairqueuing, with one queue for each
//! flow).

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apimachinery::flow::Flow;
use apimachinery::pace::counted;
use apimachinery::turns::Turns;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

/// Maximum wait until a turn is taken. The stream of an answer takes it only when its client has room for more, which a
/// hostile client can prevent.
const PATIENCE: Duration = Duration::from_millis(100);

/// Requests that wait for a step of the thread. The callers bound them: each holds a place.
#[derive(Debug, Default)]
pub(crate) struct Steps(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    turns: Turns<Arc<str>, oneshot::Sender<Given>>,
    /// A task gives out steps.
    given: bool,
}

/// A turn. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Step {
    _end: Option<oneshot::Sender<()>>,
}

/// A turn that waits to be taken.
#[derive(Debug)]
struct Given {
    step: Step,
    taken: oneshot::Sender<()>,
}

impl Steps {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of this flow. A flow without limits has it at once.
    pub(crate) async fn next(self: &Arc<Self>, flow: &Flow) -> Step {
        let Some(name) = flow.name() else { return Step { _end: None } };
        let (turn, step) = oneshot::channel();
        let idle = {
            let mut waiting = self.waiting();
            waiting.turns.add(Arc::clone(name), turn);
            !std::mem::replace(&mut waiting.given, true)
        };
        if idle {
            tokio::spawn(Arc::clone(self).give());
        }
        let Ok(Given { step, taken }) = step.await else { return Step { _end: None } };
        let _taken = taken.send(());
        step
    }

    /// Grants one step after another until no request waits. Requests that arrive between two steps enter its queue
    /// first, which makes the flows take turns.
    async fn give(self: Arc<Self>) {
        loop {
            yield_now().await;
            let next = {
                let mut waiting = self.waiting();
                let next = std::iter::from_fn(|| waiting.turns.take()).find(|(_, turn)| !turn.is_closed());
                waiting.given = next.is_some();
                next
            };
            let Some((_, turn)) = next else { return };
            let ((end, ended), (taken, is_taken)) = (oneshot::channel(), oneshot::channel());
            let given = Given { step: Step { _end: Some(end) }, taken };
            // A turn that is taken later is not waited for.
            if turn.send(given).is_ok() && timeout(PATIENCE, is_taken).await.is_ok() {
                let _ended = ended.await;
            }
        }
    }
}

impl Step {
    /// Does what `work` can do before it waits for something in this step, and the rest without.
    pub(crate) fn begin<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        let mut step = Some(self);
        counted(async move {
            let mut work = pin!(work);
            std::future::poll_fn(|cx| {
                let polled = work.as_mut().poll(cx);
                drop(step.take());
                polled
            })
            .await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apimachinery::user::UserInfo;
    use futures::FutureExt;

    fn flow(name: &str) -> Flow {
        Flow::of(&UserInfo::new(name, ["system:authenticated"]))
    }

    /// Begins work that notes its name when its turn comes.
    fn work(
        steps: &Arc<Steps>,
        name: &'static str,
        told: &Arc<Mutex<Vec<&'static str>>>,
    ) -> tokio::task::JoinHandle<()> {
        let (steps, told) = (Arc::clone(steps), Arc::clone(told));
        tokio::spawn(async move {
            let step = steps.next(&flow(name)).await;
            step.begin(async move { told.lock().unwrap().push(name) }).await;
        })
    }

    #[tokio::test]
    async fn a_client_with_many_requests_does_not_stand_before_others() {
        let (steps, told) = (Arc::<Steps>::default(), Arc::default());
        let mut tasks: Vec<_> = (0..5).map(|_| work(&steps, "eve", &told)).collect();
        tasks.push(work(&steps, "bob", &told));
        futures::future::join_all(tasks).await;
        assert_eq!(*told.lock().unwrap(), ["eve", "bob", "eve", "eve", "eve", "eve"]);
        while steps.waiting().given {
            yield_now().await;
        }
        assert!(steps.waiting().turns.is_empty());
    }

    #[tokio::test]
    async fn work_that_waits_or_ends_early_stands_in_no_way() {
        let steps = Arc::<Steps>::default();
        let (waits, holds) = (steps.next(&flow("eve")).await, steps.next(&Flow::unlimited()).await);
        let mut waits = pin!(waits.begin(std::future::pending::<()>()));
        assert!(waits.as_mut().now_or_never().is_none());
        let gone = steps.next(&flow("eve")).boxed().now_or_never();
        assert!(gone.is_none(), "it gets its turn later");
        drop(steps.next(&flow("bob")).await);
        drop((holds, steps.next(&flow("eve")).await));
    }

    #[tokio::test]
    async fn client_that_does_not_take_its_turn_holds_up_no_other() {
        let steps = Arc::<Steps>::default();
        let eve = flow("eve");
        let mut full = steps.next(&eve).boxed();
        assert!(full.as_mut().now_or_never().is_none());
        let bob = timeout(Duration::from_secs(20), steps.next(&flow("bob"))).await;
        drop(bob.expect("a turn"));
        drop(full.await);
        drop(steps.next(&flow("bob")).await);
    }
}
