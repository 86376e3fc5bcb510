//! Long pure work on another thread than that of requests and links, such as parsing and comparing a large object. One
//! piece at a time, with clients taking turns, even if they have disconnected. The memory of the work is freed there
//! too.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::steps::{Step, Steps};
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::aside::REQUESTS;
use apimachinery::flow::Flow;

/// The order of the work beside the thread. Each piece may need much memory, also until its result is used, so clients
/// without limits wait as well: for the one piece that has its turn, and not for those that wait.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    turns: Arc<Steps>,
    one: Arc<Mutex<()>>,
}

/// A turn. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _one: OwnedMutexGuard<()>,
    _step: Step,
}

impl Apart {
    /// Waits for the turn of this flow.
    pub(crate) async fn turn(&self, flow: &Flow) -> Turn {
        let step = self.turns.next(flow).await;
        Turn { _one: Arc::clone(&self.one).lock_owned().await, _step: step }
    }
}

impl Turn {
    /// Executes the work, and returns the turn with the result. If the caller is dropped, the turn ends with the work.
    ///
    /// # Errors
    /// 500 if it panics.
    pub(crate) async fn work<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> ApiResult<(T, Self)> {
        REQUESTS.result(move || (work(), self)).await.map_err(ApiError::internal)
    }

    /// Ends the turn when `spent` has been dropped: the next piece of work begins without what this one has left.
    pub(crate) fn end<T: Send + 'static>(self, spent: T) {
        REQUESTS.later(move || {
            drop(spent);
            drop(self);
        });
    }
}

/// Does it as the turn of `flow` comes.
///
/// # Errors
/// 500 when it panics.
pub(crate) async fn run<T: Send + 'static>(
    apart: &Apart,
    flow: &Flow,
    work: impl FnOnce() -> T + Send + 'static,
) -> ApiResult<T> {
    let (done, turn) = apart.turn(flow).await.work(work).await?;
    turn.end(());
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use futures::FutureExt;

    use super::*;
    use apimachinery::user::UserInfo;

    #[tokio::test]
    async fn work_is_done_one_at_a_time_though_its_client_has_gone() {
        one_at_a_time(Flow::of(&UserInfo::new("eve", ["people"]))).await;
        one_at_a_time(Flow::unlimited()).await;
    }

    async fn one_at_a_time(flow: Flow) {
        let apart = Apart::default();
        let told = Arc::new(Mutex::new(Vec::new()));
        let ((go, wait), (begin, begins)) = (mpsc::channel::<()>(), mpsc::channel());
        let tell = |what| {
            let told = Arc::clone(&told);
            move || told.lock().unwrap().push(what)
        };
        let (first, second) = (tell("first"), tell("second"));
        let mut begun = Box::pin(run(&apart, &flow, move || {
            begin.send(()).unwrap();
            let _ = wait.recv();
            first();
        }));
        while begins.try_recv().is_err() {
            assert!(begun.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(begun);
        let mut next = Box::pin(run(&apart, &flow, second));
        assert!(next.as_mut().now_or_never().is_none());
        drop(go);
        next.await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["first", "second"]);
    }

    #[tokio::test]
    async fn client_without_limits_waits_for_one_piece_and_no_more() {
        let apart = Apart::default();
        let [eve, bob] = ["eve", "bob"].map(|name| Flow::of(&UserInfo::new(name, ["people"])));
        let unlimited = Flow::unlimited();
        let first = apart.turn(&eve).await;
        let mut other = Box::pin(apart.turn(&bob));
        assert!(other.as_mut().now_or_never().is_none());
        let mut system = Box::pin(apart.turn(&unlimited));
        assert!(system.as_mut().now_or_never().is_none(), "two results would be in memory at once");
        drop(first);
        let system = system.await;
        assert!(other.as_mut().now_or_never().is_none());
        drop(system);
        drop(other.await);
    }

    #[tokio::test]
    async fn turn_ends_when_what_is_spent_has_gone() {
        struct Told(Arc<Mutex<Vec<&'static str>>>);
        impl Drop for Told {
            fn drop(&mut self) {
                self.0.lock().unwrap().push("dropped");
            }
        }
        let (apart, flow) = (Apart::default(), Flow::of(&UserInfo::new("eve", ["people"])));
        let told = Arc::new(Mutex::new(Vec::new()));
        let (spent, turn) = apart.turn(&flow).await.work(|| 1).await.unwrap();
        assert_eq!(spent, 1);
        turn.end(Told(Arc::clone(&told)));
        drop(apart.turn(&flow).await);
        assert_eq!(*told.lock().unwrap(), ["dropped"]);
    }

    #[tokio::test]
    async fn panic_is_an_error_and_no_turn_is_lost() {
        let (apart, flow) = (Apart::default(), Flow::of(&UserInfo::new("eve", ["people"])));
        assert_eq!(run(&apart, &flow, || panic!("a fault")).await.map(|(): ()| ()).unwrap_err().code, 500);
        assert_eq!(run(&apart, &flow, || 1).await, Ok(1));
    }
}
