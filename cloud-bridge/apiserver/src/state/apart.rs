//! Work beside the thread that has all requests and all links: what is pure and long, as reading and comparing a large object.
//! One at a time, in turns of the clients, however many of them have gone meanwhile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::steps::Steps;
use crate::resource::status::{ApiError, ApiResult};
use apimachinery::flow::Flow;

/// Of so many bytes of JSON the shortest values, 3,000 of them, take some 10 ms; a usual object is smaller.
const LARGE: usize = 16 << 10;

/// Between two times that memory is given back: it is a walk over the heap.
const GIVE_BACK: Duration = Duration::from_secs(1);

/// Whether the work on so many bytes is done beside the thread.
pub(crate) fn is_large(bytes: usize) -> bool {
    bytes >= LARGE
}

/// Does it as the turn of `flow` comes.
///
/// # Errors
/// 500 when it panics.
pub(crate) async fn run<T: Send + 'static>(
    turns: &Arc<Steps>,
    flow: &Flow,
    work: impl FnOnce() -> T + Send + 'static,
) -> ApiResult<T> {
    let turn = turns.next(flow).await;
    let work = move || {
        let done = work();
        give_back();
        // Nobody waits for it any more, maybe: the turn is its own.
        drop(turn);
        done
    };
    tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)
}

/// What a large object needed on the way may be fifty times its size, and lies in a heap of this thread.
fn give_back() {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.is_none_or(|last| last.elapsed() >= GIVE_BACK) {
        sampan_memory::trim_heap();
        *last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt;

    use super::*;
    use apimachinery::user::UserInfo;

    #[tokio::test]
    async fn work_is_done_one_at_a_time_though_its_client_has_gone() {
        let (turns, flow) = (Arc::<Steps>::default(), Flow::of(&UserInfo::new("eve", ["people"])));
        let told = Arc::new(Mutex::new(Vec::new()));
        let ((go, wait), (begin, begins)) = (mpsc::channel::<()>(), mpsc::channel());
        let tell = |what| {
            let told = Arc::clone(&told);
            move || told.lock().unwrap().push(what)
        };
        let (first, second) = (tell("first"), tell("second"));
        let mut begun = Box::pin(run(&turns, &flow, move || {
            begin.send(()).unwrap();
            let _ = wait.recv();
            first();
        }));
        while begins.try_recv().is_err() {
            assert!(begun.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(begun);
        let mut next = Box::pin(run(&turns, &flow, second));
        assert!(next.as_mut().now_or_never().is_none());
        drop(go);
        next.await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["first", "second"]);
    }

    #[tokio::test]
    async fn panic_is_an_error_and_no_turn_is_lost() {
        let (turns, flow) = (Arc::<Steps>::default(), Flow::of(&UserInfo::new("eve", ["people"])));
        assert_eq!(run(&turns, &flow, || panic!("a fault")).await.map(|(): ()| ()).unwrap_err().code, 500);
        assert_eq!(run(&turns, &flow, || 1).await, Ok(1));
    }
}
