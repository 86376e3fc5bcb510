//! Work queue of keys: each at most once, in order of arrival; others after a delay. Pure: the caller passes the
//! monotonic time. After client-go's util/workqueue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What failed is tried again after this, then after twice as long each time (K8s `DefaultTypedControllerRateLimiter`).
pub(crate) const RETRY: Duration = Duration::from_millis(5);
const RETRY_MAX: Duration = Duration::from_secs(1000);
/// Number of paused keys above which expired pauses are removed.
const HELD: usize = 1000;

#[derive(Debug)]
pub(crate) struct Queue<K> {
    order: VecDeque<K>,
    waiting: BTreeSet<K>,
    due: BTreeSet<(Duration, K)>,
    /// Due times by key: of two times the earlier one counts.
    times: BTreeMap<K, Duration>,
    failures: BTreeMap<K, u32>,
    /// Keys that are paused until this time, whatever enqueues them.
    held: BTreeMap<K, Duration>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            waiting: BTreeSet::new(),
            due: BTreeSet::new(),
            times: BTreeMap::new(),
            failures: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    pub(crate) fn add(&mut self, key: K) {
        if self.waiting.insert(key.clone()) {
            self.order.push_back(key);
        }
    }

    pub(crate) fn add_at(&mut self, at: Duration, key: K) {
        if let Some(before) = self.times.get(&key) {
            if *before <= at {
                return;
            }
            self.due.remove(&(*before, key.clone()));
        }
        self.times.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    /// The next key, if one is due.
    pub(crate) fn next(&mut self, now: Duration) -> Option<K> {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.due.pop_first() {
                self.times.remove(&key);
                self.add(key);
            }
        }
        loop {
            let key = self.order.pop_front()?;
            self.waiting.remove(&key);
            match self.held.get(&key).copied() {
                Some(until) if until > now => self.add_at(until, key),
                _ => {
                    self.held.remove(&key);
                    return Some(key);
                }
            }
        }
    }

    /// When the next key is due: zero if one is now.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.order.is_empty() { self.due.first().map(|(at, _)| *at) } else { Some(Duration::ZERO) }
    }

    /// It went well: its next failure is its first.
    pub(crate) fn succeeded(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// It is due again: first after `retry`, the later the more often it failed in a row.
    pub(crate) fn failed(&mut self, now: Duration, key: K, retry: Duration) {
        let wait = self.wait(&key, retry);
        self.add_at(now + wait, key);
    }

    /// Pauses a key until this time, whatever enqueues it.
    pub(crate) fn rest(&mut self, now: Duration, key: K, until: Duration) {
        // Keys that were not enqueued again.
        if self.held.len() >= HELD {
            self.held.retain(|_, until| *until > now);
        }
        self.held.insert(key, until);
    }

    /// The key is due again, after a pause that grows with each repetition. Its own writes request further evaluations,
    /// which also wait for the end of the pause.
    pub(crate) fn more(&mut self, now: Duration, key: K, longest: Duration) {
        let wait = self.wait(&key, RETRY).min(longest);
        self.held.insert(key.clone(), now + wait);
        self.add_at(now + wait, key);
    }

    fn wait(&mut self, key: &K, retry: Duration) -> Duration {
        let failures = self.failures.entry(key.clone()).or_default();
        let wait = retry.saturating_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(RETRY_MAX);
        *failures = failures.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn each_key_comes_once_in_its_turn_and_the_earlier_of_two_times_counts() {
        let mut queue = Queue::default();
        for key in ["b", "a", "b"] {
            queue.add(key);
        }
        assert_eq!(queue.deadline(), Some(ms(0)));
        assert_eq!((queue.next(ms(0)), queue.next(ms(0)), queue.next(ms(0))), (Some("b"), Some("a"), None));
        queue.add_at(ms(50), "a");
        queue.add_at(ms(20), "a");
        queue.add_at(ms(30), "a");
        assert_eq!(queue.deadline(), Some(ms(20)));
        assert_eq!((queue.next(ms(19)), queue.next(ms(20)), queue.next(ms(60))), (None, Some("a"), None));
        assert_eq!(queue.deadline(), None);
    }

    #[test]
    fn what_fails_waits_twice_as_long_each_time_up_to_a_bound() {
        let mut queue = Queue::default();
        let mut now = ms(0);
        for wait in [5, 10, 20, 40] {
            queue.failed(now, "a", RETRY);
            assert_eq!(queue.deadline(), Some(now + ms(wait)));
            now += ms(wait);
            assert_eq!(queue.next(now), Some("a"));
        }
        for _ in 0..100 {
            queue.failed(now, "a", RETRY);
            now = queue.deadline().unwrap();
            queue.next(now);
        }
        queue.failed(now, "a", RETRY);
        assert_eq!(queue.deadline(), Some(now + RETRY_MAX));
        queue.next(now + RETRY_MAX);
        queue.succeeded(&"a");
        queue.failed(now, "a", RETRY);
        assert_eq!(queue.deadline(), Some(now + RETRY));
    }

    #[test]
    fn what_rests_waits_whoever_asks_and_others_do_not() {
        let mut queue = Queue::default();
        queue.rest(ms(0), "a", ms(20));
        for key in ["a", "b", "a"] {
            queue.add(key);
        }
        assert_eq!((queue.next(ms(1)), queue.next(ms(1)), queue.deadline()), (Some("b"), None, Some(ms(20))));
        assert_eq!((queue.next(ms(20)), queue.next(ms(30))), (Some("a"), None));
        let mut many = Queue::default();
        (0..HELD + 1).for_each(|key| many.rest(ms(key as u64), key, ms(key as u64 + 5)));
        assert_eq!(many.held.len(), 5, "those that have rested are forgotten");
    }

    #[test]
    fn what_has_more_to_do_pauses_though_its_own_writes_ask_for_it() {
        let mut queue = Queue::default();
        queue.add("b");
        queue.add("a");
        queue.more(ms(0), "a", ms(20));
        assert_eq!((queue.next(ms(0)), queue.next(ms(0))), (Some("b"), None));
        queue.add("a");
        assert_eq!((queue.next(ms(4)), queue.next(ms(5)), queue.next(ms(9))), (None, Some("a"), None));
        for wait in [10, 20, 20] {
            queue.more(ms(100), "a", ms(20));
            assert_eq!(queue.deadline(), Some(ms(100 + wait)));
            assert_eq!(queue.next(ms(100 + wait)), Some("a"));
        }
        queue.succeeded(&"a");
        queue.more(ms(200), "a", ms(20));
        assert_eq!(queue.deadline(), Some(ms(205)));
    }
}
