//! Work queue of a controller: keys, each at most once, in order of arrival; failed ones return with back-off (K8s
//! client-go util/workqueue). Independent of the storage and of the meaning of a key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// What failed is tried again after this, then after twice as long each time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

struct Items<K> {
    order: VecDeque<K>,
    /// The same keys. Their number is limited by that of the objects, for any number of writes.
    waiting: BTreeSet<K>,
    /// Keys to process later, by due time: any number of quotas wait here, and each change of a counted object asks for
    /// one.
    later: BTreeSet<(Instant, K)>,
    due: BTreeMap<K, Instant>,
    /// How often each has failed in a row.
    failures: BTreeMap<K, u32>,
    closed: bool,
}

impl<K: Ord + Clone> Items<K> {
    fn add(&mut self, key: K) {
        if self.waiting.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    /// Adds it at that time, if nothing adds it before.
    fn add_at(&mut self, due: Instant, key: K) {
        match self.due.get(&key).copied() {
            Some(known) if known <= due => return,
            Some(known) => {
                self.later.remove(&(known, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), due);
        self.later.insert((due, key));
    }

    fn pop(&mut self) -> Option<K> {
        let now = Instant::now();
        while self.later.first().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, key)) = self.later.pop_first() {
                self.due.remove(&key);
                self.add(key);
            }
        }
        let key = self.order.pop_front()?;
        self.waiting.remove(&key);
        Some(key)
    }
}

struct Shared<K> {
    items: Mutex<Items<K>>,
    wake: Notify,
}

/// A queue that all its clones share.
pub(super) struct Queue<K>(Arc<Shared<K>>);

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Queue<K> {
    fn items(&self) -> MutexGuard<'_, Items<K>> {
        self.0.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the queue: all waiting consumers end.
    pub(super) fn close(&self) {
        self.items().closed = true;
        self.0.wake.notify_one();
    }
}

impl<K: Ord + Clone> Queue<K> {
    pub(super) fn new() -> Self {
        let items = Items {
            order: VecDeque::new(),
            waiting: BTreeSet::new(),
            later: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            closed: false,
        };
        Self(Arc::new(Shared { items: Mutex::new(items), wake: Notify::new() }))
    }

    /// Has this looked at.
    pub(super) fn add(&self, key: K) {
        self.items().add(key);
        self.0.wake.notify_one();
    }

    /// Has this looked at after a while, together with all that is added of it until then.
    pub(super) fn add_after(&self, key: K, wait: Duration) {
        let mut items = self.items();
        let known = items.waiting.contains(&key) || items.due.contains_key(&key);
        if let Some(due) = Instant::now().checked_add(wait)
            && !known
        {
            items.add_at(due, key);
        }
        drop(items);
        self.0.wake.notify_one();
    }

    /// The next key, if one is queued.
    pub(super) fn try_next(&self) -> Option<K> {
        self.items().pop()
    }

    /// The next key, as soon as there is one; `None` when none will come.
    pub(super) async fn next(&self) -> Option<K> {
        loop {
            let due = {
                let mut items = self.items();
                if items.closed {
                    return None;
                }
                if let Some(key) = items.pop() {
                    return Some(key);
                }
                items.later.first().map(|(due, _)| *due)
            };
            match due {
                Some(due) => drop(tokio::time::timeout_at(due, self.0.wake.notified()).await),
                None => self.0.wake.notified().await,
            }
        }
    }

    /// This key has been looked at.
    pub(super) fn done(&self, key: &K) {
        self.items().failures.remove(key);
    }

    /// Enqueues a failed key again and returns the delay.
    pub(super) fn failed(&self, key: K) -> Duration {
        let mut items = self.items();
        let count = items.failures.entry(key.clone()).or_default();
        let wait = RETRY_MAX.min(RETRY * (1 << (*count).min(10)));
        *count = count.saturating_add(1);
        items.add_at(Instant::now() + wait.min(RETRY_MAX), key);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_key_waits_once_and_in_its_order() {
        let queue = Queue::new();
        for key in [3, 1, 3, 2, 1] {
            queue.add(key);
        }
        assert_eq!([queue.next().await, queue.next().await], [Some(3), Some(1)]);
        queue.add(3);
        assert_eq!([queue.try_next(), queue.try_next(), queue.try_next()], [Some(2), Some(3), None]);
        queue.close();
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn what_is_gathered_comes_once_and_later() {
        let queue = Queue::new();
        let (start, wait) = (Instant::now(), Duration::from_millis(30));
        for key in ["a", "b", "a"] {
            queue.add_after(key, wait);
        }
        assert_eq!(queue.try_next(), None);
        let mut both = [queue.next().await, queue.next().await];
        both.sort_unstable();
        assert_eq!((both, queue.try_next()), ([Some("a"), Some("b")], None));
        assert!(start.elapsed() >= wait);
        queue.add("a");
        queue.add_after("a", wait);
        assert_eq!(queue.next().await, Some("a"), "it waits already");
        assert!(queue.items().later.is_empty() && queue.items().due.is_empty());
    }

    #[test]
    fn what_waits_twice_comes_once_at_the_earlier_time() {
        let queue = Queue::new();
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut items = queue.items();
        for wait in [3, 2, 4] {
            items.add_at(now + second * wait, "a");
        }
        assert_eq!((items.later.len(), items.due.get("a")), (1, Some(&(now + second * 2))));
    }

    #[tokio::test]
    async fn what_fails_comes_again_later_and_later() {
        let queue = Queue::new();
        let start = Instant::now();
        assert_eq!((queue.failed("a"), queue.try_next()), (RETRY, None));
        queue.add("b");
        assert_eq!(queue.next().await, Some("b"), "others do not wait for it");
        assert_eq!(queue.next().await, Some("a"));
        assert!(start.elapsed() >= RETRY);
        let waits: Vec<u64> = (0..9).map(|_| queue.failed("a").as_secs()).collect();
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300]);
        queue.done(&"a");
        assert_eq!(queue.failed("a"), RETRY);
    }
}
