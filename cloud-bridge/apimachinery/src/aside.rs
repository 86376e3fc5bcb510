//! The thread beside the one that has all requests and all links: it does what is pure and long, as reading and comparing a
//! large object, one piece at a time. There is one, so that all the memory that such work needs lies in one heap (malloc(3)
//! gives each thread its own) and serves the next piece. Freed memory goes back to the kernel.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Between two times that memory is given back: it is a walk over the heap.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of trees that wait to be dropped. Behind a long piece of work requests would leave more and more of them.
const TREES: usize = 2;

/// The work has panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work on a large object has panicked")]
pub struct Panicked;

type Work = Box<dyn FnOnce() + Send>;

/// Does the work and returns its result. It is done though its caller goes away.
///
/// # Errors
/// It panics.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Panicked> {
    let (tell, told) = oneshot::channel();
    later(move || {
        let _gone = tell.send(work());
    });
    told.await.map_err(|_| Panicked)
}

/// Has the work done, whatever its result.
pub fn later(work: impl FnOnce() + Send + 'static) {
    static THREAD: OnceLock<Sender<Work>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| {
        let (queue, work) = channel();
        // As for other threads of the process: without it nothing goes on.
        thread::Builder::new().name("aside".to_owned()).spawn(move || run(&work)).expect("a thread");
        queue
    });
    // It never ends.
    let _sent = thread.send(Box::new(work));
}

/// Drops a large tree beside the thread: it is many small blocks, and freeing them takes milliseconds. Drops it at once
/// if others wait already.
pub fn discard<T: Send + 'static>(tree: T) {
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    if WAITING.fetch_add(1, Ordering::Relaxed) >= TREES {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        drop(tree);
        return;
    }
    later(move || {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        drop(tree);
    });
}

fn run(queue: &Receiver<Work>) {
    let mut memory = Memory::default();
    loop {
        let next = match memory.due(Instant::now()) {
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => queue.recv_timeout(wait),
        };
        match next {
            // The panic is told by the process's hook.
            Ok(work) => {
                let _panicked = catch_unwind(AssertUnwindSafe(work));
                memory.used = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if memory.due(Instant::now()) == Some(Duration::ZERO) {
            sampan_memory::trim_heap();
            memory = Memory { used: false, given: Some(Instant::now()) };
        }
    }
}

/// What the allocator keeps of freed memory.
#[derive(Debug, Default)]
struct Memory {
    /// There was work since it was given back.
    used: bool,
    given: Option<Instant>,
}

impl Memory {
    /// How long until memory is given back, if it is to be.
    fn due(&self, now: Instant) -> Option<Duration> {
        let since = self.given.map_or(PAUSE, |given| now.saturating_duration_since(given));
        self.used.then(|| PAUSE.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn pieces_are_done_one_by_one_on_one_other_thread() {
        let id = || thread::current().id();
        let (first, second) = (aside(id).await.unwrap(), aside(id).await.unwrap());
        assert_eq!(first, second);
        assert_ne!(first, id());
    }

    #[tokio::test]
    async fn panic_ends_one_piece_alone() {
        assert_eq!(aside(|| panic!("a fault")).await.map(|(): ()| ()), Err(Panicked));
        assert_eq!(aside(|| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn caller_that_is_not_polled_holds_up_no_other() {
        let (go, wait) = channel::<()>();
        let mut first = Box::pin(aside(move || wait.recv()));
        let mut second = Box::pin(aside(|| ()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(go);
        assert_eq!(aside(|| 3).await, Ok(3));
    }

    #[tokio::test]
    async fn tree_is_dropped_before_later_work() {
        struct Tree(Arc<Mutex<Vec<&'static str>>>);
        impl Drop for Tree {
            fn drop(&mut self) {
                self.0.lock().unwrap().push("dropped");
            }
        }
        let told = Arc::new(Mutex::new(Vec::new()));
        discard(Tree(Arc::clone(&told)));
        aside(|| ()).await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["dropped"]);
    }

    #[tokio::test]
    async fn few_trees_wait_behind_a_long_piece_of_work() {
        let (go, wait) = channel::<()>();
        let mut long = Box::pin(aside(move || wait.recv()));
        assert!(long.as_mut().now_or_never().is_none());
        let tree = Arc::new(());
        (0..100).for_each(|_| discard(Arc::clone(&tree)));
        assert!(Arc::strong_count(&tree) <= 1 + TREES);
        drop(go);
        assert!(long.await.unwrap().is_err());
        aside(|| ()).await.unwrap();
        assert_eq!(Arc::strong_count(&tree), 1);
    }

    #[test]
    fn memory_is_given_back_after_work_and_once_a_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut memory = Memory::default();
        assert_eq!(memory.due(start), None, "nothing was done");
        memory.used = true;
        assert_eq!(memory.due(start), Some(Duration::ZERO));
        memory = Memory { used: true, given: Some(start) };
        assert_eq!(memory.due(at(400)), Some(Duration::from_millis(600)));
        assert_eq!(memory.due(at(1500)), Some(Duration::ZERO));
        memory.used = false;
        assert_eq!(memory.due(at(9000)), None);
    }
}
