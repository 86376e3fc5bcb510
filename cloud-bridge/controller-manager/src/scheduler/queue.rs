//! Pods that wait for a node: who is next, who waits for a change, and who may not be looked at again yet (K8s
//! pkg/scheduler/backend/queue). Pure; times are of a monotonic clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::pod::{Pod, PodKey};

/// After its first try a pod waits for so long, then twice as long each time (K8s `podInitialBackoffSeconds`,
/// `podMaxBackoffSeconds`).
const BACK_OFF: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);

/// The more important first, then the older.
type Rank = (Reverse<i64>, String, u64);

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) pod: Arc<Pod>,
    /// What was last said about why it has no node.
    pub(super) told: Option<String>,
    /// Since when it is said that it has none.
    pub(super) since: Option<String>,
    /// Where others make room for it.
    pub(super) nominated: String,
    rank: Rank,
    tries: u32,
    until: Duration,
    /// Nothing has changed since it was looked at.
    parked: bool,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pods: BTreeMap<PodKey, Waiting>,
    ready: BTreeSet<(Rank, PodKey)>,
    /// Those that are to be looked at again, but not yet.
    due: BTreeSet<(Duration, PodKey)>,
    /// So many wait for a change.
    parked: usize,
    arrivals: u64,
}

impl Queue {
    /// A pod came or changed. One that is known stays where it is unless what it asks for is another.
    pub(super) fn put(&mut self, pod: Arc<Pod>) {
        let key = pod.key.clone();
        if let Some(known) = self.pods.get_mut(&key).filter(|known| known.pod.uid == pod.uid) {
            let same = same_wishes(&known.pod, &pod);
            known.nominated.clone_from(&pod.nominated);
            if pod.unscheduled_since.is_some() {
                known.since.clone_from(&pod.unscheduled_since);
            }
            known.pod = pod;
            if !same {
                self.get_ready(&key);
            }
            return;
        }
        self.remove(&key);
        self.arrivals += 1;
        let rank = (Reverse(pod.priority), pod.created.clone(), self.arrivals);
        let (since, nominated) = (pod.unscheduled_since.clone(), pod.nominated.clone());
        let waiting =
            Waiting { told: None, since, nominated, rank, tries: 0, until: Duration::ZERO, parked: false, pod };
        self.pods.insert(key.clone(), waiting);
        self.get_ready(&key);
    }

    pub(super) fn remove(&mut self, key: &PodKey) -> Option<Waiting> {
        let waiting = self.pods.remove(key)?;
        self.ready.remove(&(waiting.rank.clone(), key.clone()));
        self.due.remove(&(waiting.until, key.clone()));
        self.parked -= usize::from(waiting.parked);
        Some(waiting)
    }

    /// It is to be looked at now, whatever happened before.
    pub(super) fn get_ready(&mut self, key: &PodKey) {
        let Some(waiting) = self.pods.get_mut(key) else { return };
        self.due.remove(&(waiting.until, key.clone()));
        self.parked -= usize::from(std::mem::take(&mut waiting.parked));
        self.ready.insert((waiting.rank.clone(), key.clone()));
    }

    /// Something changed that may give a node to these: they are looked at as soon as their back-off is over.
    pub(super) fn wake(&mut self, concerns: impl Fn(&Pod) -> bool) {
        // Most of the time nobody does.
        if self.parked == 0 {
            return;
        }
        for (key, waiting) in &mut self.pods {
            if waiting.parked && concerns(&waiting.pod) {
                waiting.parked = false;
                self.parked -= 1;
                self.due.insert((waiting.until, key.clone()));
            }
        }
    }

    /// A pod has no node after all, and is tried again in any case, for no change may come.
    pub(super) fn try_again(&mut self, waiting: Waiting, now: Duration) {
        let key = waiting.pod.key.clone();
        self.remove(&key);
        self.pods.insert(key.clone(), waiting);
        if let Some(waiting) = self.failed(&key, now) {
            waiting.parked = false;
            let until = waiting.until;
            self.parked -= 1;
            self.due.insert((until, key));
        }
    }

    /// There is no node for it now.
    pub(super) fn failed(&mut self, key: &PodKey, now: Duration) -> Option<&mut Waiting> {
        let waiting = self.pods.get_mut(key)?;
        let wait = BACK_OFF.saturating_mul(1_u32.checked_shl(waiting.tries).unwrap_or(u32::MAX)).min(BACK_OFF_MAX);
        waiting.tries = waiting.tries.saturating_add(1);
        waiting.until = now.saturating_add(wait);
        self.parked += usize::from(!std::mem::replace(&mut waiting.parked, true));
        Some(waiting)
    }

    /// It waits for what somebody is about to tell of.
    pub(super) fn wait(&mut self, key: &PodKey, now: Duration) {
        if let Some(waiting) = self.pods.get_mut(key) {
            waiting.until = now;
            self.parked += usize::from(!std::mem::replace(&mut waiting.parked, true));
        }
    }

    /// The next one to be looked at.
    pub(super) fn pop(&mut self, now: Duration) -> Option<PodKey> {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.due.pop_first() {
                self.get_ready(&key);
            }
        }
        self.ready.pop_first().map(|(_, key)| key)
    }

    /// When the next one is to be looked at: zero if that is now.
    pub(super) fn deadline(&self) -> Option<Duration> {
        if self.ready.is_empty() { self.due.first().map(|(at, _)| *at) } else { Some(Duration::ZERO) }
    }

    pub(super) fn get(&self, key: &PodKey) -> Option<&Waiting> {
        self.pods.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &PodKey) -> Option<&mut Waiting> {
        self.pods.get_mut(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.pods.values()
    }
}

/// Whether nothing changed that decides where a pod may be.
fn same_wishes(before: &Pod, after: &Pod) -> bool {
    before.spec == after.spec
        && before.labels == after.labels
        && before.needs == after.needs
        && before.affinity == after.affinity
        && before.spread == after.spread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i64) -> Arc<Pod> {
        let key = ("default".to_owned(), name.to_owned());
        Arc::new(Pod { key, uid: name.to_owned(), priority, ..Pod::default() })
    }

    fn pop(queue: &mut Queue, now: u64) -> Option<String> {
        queue.pop(Duration::from_secs(now)).map(|(_, name)| name)
    }

    #[test]
    fn the_more_important_comes_first_then_the_older() {
        let mut queue = Queue::default();
        for (name, priority) in [("b", 0), ("a", 0), ("high", 10), ("low", -1)] {
            queue.put(pod(name, priority));
        }
        queue.put(Arc::new(Pod { created: "2020-01-01T00:00:00Z".to_owned(), ..Pod::default() }));
        let order: Vec<String> = std::iter::from_fn(|| pop(&mut queue, 0)).collect();
        assert_eq!(order, ["high", "b", "a", "", "low"]);
    }

    #[test]
    fn a_pod_without_a_node_waits_for_a_change_and_for_its_back_off() {
        let mut queue = Queue::default();
        queue.put(pod("a", 0));
        let key = ("default".to_owned(), "a".to_owned());
        let mut now = 0;
        for wait in [1, 2, 4, 8, 10, 10] {
            assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
            queue.failed(&key, Duration::from_secs(now));
            assert_eq!(queue.deadline(), None, "nothing has changed");
            // News of the same pod, as its new condition is, is no change.
            queue.put(pod("a", 0));
            assert_eq!(queue.deadline(), None);
            queue.wake(|_| true);
            queue.wake(|_| true);
            assert_eq!(pop(&mut queue, now + wait - 1), None);
            assert_eq!(queue.deadline(), Some(Duration::from_secs(now + wait)));
            now += wait;
        }
        queue.remove(&key);
        assert_eq!((queue.deadline(), pop(&mut queue, 1000)), (None, None));
    }

    #[test]
    fn another_pod_of_the_name_begins_anew_and_one_that_asks_for_less_is_looked_at() {
        let mut queue = Queue::default();
        queue.put(pod("a", 0));
        pop(&mut queue, 0);
        let key = ("default".to_owned(), "a".to_owned());
        queue.failed(&key, Duration::ZERO);
        let other = |uid: &str| Pod { key: key.clone(), uid: uid.to_owned(), ..Pod::default() };
        let spec = serde_json::json!({"nodeSelector": {"a": "b"}});
        queue.put(Arc::new(Pod { spec, ..other("a") }));
        assert_eq!(pop(&mut queue, 0).as_deref(), Some("a"));
        queue.failed(&key, Duration::ZERO);
        queue.put(Arc::new(other("b")));
        assert_eq!(pop(&mut queue, 0).as_deref(), Some("a"));
        assert_eq!(queue.get(&key).map(|one| one.tries), Some(0));
    }
}
