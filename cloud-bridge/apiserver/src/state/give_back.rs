//! Gives freed memory back to the kernel: at the end of work on large objects, and once more after the last of it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two times that memory is given back: it is a walk over the heap.
const PAUSE: Duration = Duration::from_secs(1);

/// When memory was given back last, and whether it will be again without more work.
#[derive(Debug)]
struct Given {
    last: Option<Instant>,
    due: bool,
}

impl Given {
    /// How long to wait with it; `None` if it is due already. Without a wait it counts as done.
    fn next(&mut self, now: Instant) -> Option<Duration> {
        let since = self.last.map_or(PAUSE, |last| now.saturating_duration_since(last));
        let wait = PAUSE.saturating_sub(since);
        if wait.is_zero() {
            *self = Self { last: Some(now), due: false };
            return Some(wait);
        }
        (!std::mem::replace(&mut self.due, true)).then_some(wait)
    }

    /// The wait is over.
    fn waited(&mut self) {
        self.due = false;
    }
}

static GIVEN: Mutex<Given> = Mutex::new(Given { last: None, due: false });

/// Gives back what the allocator keeps of freed memory, of all threads, or has it done a little later. What a large object
/// needed on the way may be thirty times its size, and lies in the heap of the thread that made it.
pub(super) fn give_back() {
    let wait = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now());
    match wait {
        None => {}
        Some(wait) if wait.is_zero() => sampan_memory::trim_heap(),
        Some(wait) => {
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                GIVEN.lock().unwrap_or_else(PoisonError::into_inner).waited();
                tokio::task::spawn_blocking(give_back);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_again_after_the_last_work() {
        let (mut given, start) = (Given { last: None, due: false }, Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        assert_eq!(given.next(at(0)), Some(Duration::ZERO));
        assert_eq!(given.next(at(400)), Some(Duration::from_millis(600)), "the first that comes too early has it done");
        assert_eq!(given.next(at(500)), None);
        given.waited();
        assert_eq!(given.next(at(1000)), Some(Duration::ZERO));
        assert_eq!(given.next(at(1900)), Some(Duration::from_millis(100)));
        assert_eq!(given.next(at(2000)), Some(Duration::ZERO), "work that comes at the time does it");
        given.waited();
        assert_eq!(given.next(at(2001)), Some(Duration::from_millis(999)), "nothing is due for ever");
    }
}
