//! Threads beside the one with all requests and links: they execute long pure work, such as parsing and comparing a
//! large object, one piece at a time. One thread works for requests and one for controllers, which would otherwise wait
//! behind the requests of one user. The memory of such work is in the heap of its thread (malloc(3) gives each its own)
//! and is reused by the next piece. Freed memory is returned to the kernel.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{getpriority_process, setpriority_process};
use tokio::sync::oneshot;

use crate::panics;

/// Minimum pause between two trims of the heap, and the same as a multiple of the last trim's time: a trim walks over
/// the heaps of all threads, which wait meanwhile.
const PAUSE: (Duration, u32) = (Duration::from_millis(100), 30);

/// Maximum number of trees that wait to be dropped. Behind a long piece of work requests would leave more and more of them.
const TREES: usize = 2;

/// How much nicer the threads are than that of all requests and links, which goes first where no core is idle (nice(2);
/// on Linux each thread has its own).
const NICER: i32 = 5;

/// The work has panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("work on a large object has panicked")]
pub struct Panicked;

type Work = Box<dyn FnOnce() + Send>;

/// One of the threads. It begins with the first piece of work.
#[derive(Debug)]
pub struct Aside {
    name: &'static str,
    queue: OnceLock<Sender<Work>>,
    /// Trees that wait to be dropped.
    trees: AtomicUsize,
}

/// Work of requests.
pub static REQUESTS: Aside = Aside::new("requests");
/// Work of controllers.
pub static CONTROLLERS: Aside = Aside::new("controllers");

impl Aside {
    const fn new(name: &'static str) -> Self {
        Self { name, queue: OnceLock::new(), trees: AtomicUsize::new(0) }
    }

    /// Executes the work and returns its result. The work is completed even if its caller is dropped.
    ///
    /// # Errors
    /// It panics.
    pub async fn result<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Panicked> {
        let (tell, told) = oneshot::channel();
        self.later(move || {
            let _gone = tell.send(work());
        });
        told.await.map_err(|_| Panicked)
    }

    /// Executes the work later and ignores its result. A panic is logged with the name of the caller's work.
    pub fn later(&self, work: impl FnOnce() + Send + 'static) {
        let queue = self.queue.get_or_init(|| {
            let (queue, work) = channel();
            // As for other threads of the process: without it the process cannot work.
            thread::Builder::new().name(self.name.to_owned()).spawn(move || run(&work)).expect("a thread");
            queue
        });
        let name = panics::work().unwrap_or_else(|| format!("work of {}", self.name));
        // It never ends.
        let _sent = queue.send(Box::new(move || {
            let _panicked = panics::shield(name, work);
        }));
    }

    /// Drops a large tree on the thread, because freeing its many small blocks takes milliseconds. Drops it at once if
    /// others wait already.
    pub fn discard<T: Send + 'static>(&'static self, tree: T) {
        if self.trees.fetch_add(1, Ordering::Relaxed) >= TREES {
            self.trees.fetch_sub(1, Ordering::Relaxed);
            drop(tree);
            return;
        }
        self.later(move || {
            self.trees.fetch_sub(1, Ordering::Relaxed);
            drop(tree);
        });
    }
}

fn run(queue: &Receiver<Work>) {
    // Where it is refused, others wait longer.
    let _ = getpriority_process(None).and_then(|nice| setpriority_process(None, nice + NICER));
    let mut memory = Memory::default();
    loop {
        let next = match memory.due(Instant::now()) {
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => queue.recv_timeout(wait),
        };
        match next {
            Ok(work) => {
                work();
                memory.used = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if memory.due(Instant::now()) == Some(Duration::ZERO) {
            let start = Instant::now();
            sampan_memory::trim_heap();
            memory = Memory { used: false, given: Some((Instant::now(), start.elapsed())) };
        }
    }
}

/// State of the allocator's freed memory.
#[derive(Debug, Default)]
struct Memory {
    /// There was work since it was given back.
    used: bool,
    /// When it was, and how long that took.
    given: Option<(Instant, Duration)>,
}

impl Memory {
    /// Time until the next trim; `None` if it is not needed.
    fn due(&self, now: Instant) -> Option<Duration> {
        let left = self.given.map_or(Duration::ZERO, |(given, took)| {
            (took * PAUSE.1).max(PAUSE.0).saturating_sub(now.saturating_duration_since(given))
        });
        self.used.then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn pieces_are_done_one_by_one_on_one_other_thread() {
        static ASIDE: Aside = Aside::new("test");
        let id = || thread::current().id();
        let (first, second) = (ASIDE.result(id).await.unwrap(), ASIDE.result(id).await.unwrap());
        assert_eq!(first, second);
        assert_ne!(first, id());
    }

    #[tokio::test]
    async fn thread_gives_way_to_the_others() {
        static ASIDE: Aside = Aside::new("test");
        let here = getpriority_process(None).unwrap();
        let there = ASIDE.result(|| getpriority_process(None).unwrap()).await.unwrap();
        assert_eq!(there, (here + NICER).min(19));
        assert_eq!(getpriority_process(None).unwrap(), here);
    }

    #[tokio::test]
    async fn panic_ends_one_piece_alone() {
        static ASIDE: Aside = Aside::new("test");
        assert_eq!(ASIDE.result(|| panic!("a fault")).await.map(|(): ()| ()), Err(Panicked));
        assert_eq!(ASIDE.result(|| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn panic_is_told_with_whose_work_it_is() {
        static ASIDE: Aside = Aside::new("test");
        let named = panics::isolate("the scheduler", ASIDE.result(panics::work)).await.unwrap();
        assert_eq!(named.unwrap().as_deref(), Some("the scheduler"));
        assert_eq!(ASIDE.result(panics::work).await.unwrap().as_deref(), Some("work of test"));
    }

    #[tokio::test]
    async fn caller_that_is_not_polled_holds_up_no_other() {
        static ASIDE: Aside = Aside::new("test");
        let (go, wait) = channel::<()>();
        let mut first = Box::pin(ASIDE.result(move || wait.recv()));
        let mut second = Box::pin(ASIDE.result(|| ()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(go);
        assert_eq!(ASIDE.result(|| 3).await, Ok(3));
    }

    #[tokio::test]
    async fn tree_is_dropped_before_later_work() {
        static ASIDE: Aside = Aside::new("test");
        struct Tree(Arc<Mutex<Vec<&'static str>>>);
        impl Drop for Tree {
            fn drop(&mut self) {
                self.0.lock().unwrap().push("dropped");
            }
        }
        let told = Arc::new(Mutex::new(Vec::new()));
        ASIDE.discard(Tree(Arc::clone(&told)));
        ASIDE.result(|| ()).await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["dropped"]);
    }

    #[tokio::test]
    async fn few_trees_wait_behind_a_long_piece_of_work() {
        static ASIDE: Aside = Aside::new("test");
        let (go, wait) = channel::<()>();
        let mut long = Box::pin(ASIDE.result(move || wait.recv()));
        assert!(long.as_mut().now_or_never().is_none());
        let tree = Arc::new(());
        (0..100).for_each(|_| ASIDE.discard(Arc::clone(&tree)));
        assert!(Arc::strong_count(&tree) <= 1 + TREES);
        drop(go);
        assert!(long.await.unwrap().is_err());
        ASIDE.result(|| ()).await.unwrap();
        assert_eq!(Arc::strong_count(&tree), 1);
    }

    #[test]
    fn memory_is_given_back_after_work_for_a_part_of_the_time() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut memory = Memory::default();
        assert_eq!(memory.due(start), None, "nothing was done");
        memory.used = true;
        assert_eq!(memory.due(start), Some(Duration::ZERO));
        memory = Memory { used: true, given: Some((start, Duration::from_millis(1))) };
        assert_eq!(memory.due(at(60)), Some(Duration::from_millis(40)));
        assert_eq!(memory.due(at(1500)), Some(Duration::ZERO));
        memory.given = Some((start, Duration::from_millis(30)));
        assert_eq!(memory.due(at(500)), Some(Duration::from_millis(400)));
        memory.used = false;
        assert_eq!(memory.due(at(9000)), None);
    }
}
