//! Pods without a node: the order in which they are tried, those that wait for a change, and those in back-off (K8s
//! pkg/scheduler/backend/queue). Pure; times are of a monotonic clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use super::asleep::{self, Asleep, Hint, Sleep, Wishes};
use super::pod::{Pod, PodKey};

/// First pause of a pod, after its first attempt; it doubles each time (K8s `podInitialBackoffSeconds`,
/// `podMaxBackoffSeconds`).
const BACK_OFF: Duration = Duration::from_secs(1);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// Maximum back-off while attempts fail for the same reasons, unless a change is likely to help.
const BACK_OFF_SAME_MAX: Duration = Duration::from_secs(120);
/// A pod is tried again after this, whatever happens (K8s `podMaxInUnschedulablePodsDuration`).
const FLUSH: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) pod: Arc<Pod>,
    /// The last reported reason why it has no node.
    pub(super) told: Option<String>,
    /// Time since which its object has the condition that it has no node.
    pub(super) since: Option<String>,
    /// See [`Wishes`].
    kept_off_by_pods: bool,
    /// The node for which it is nominated; empty without one.
    nominated: String,
    /// Its place among pods that are as old.
    arrival: u64,
    tries: u32,
    /// The ends of its back-off, if a change is likely to help and if it may help.
    until: Duration,
    until_perhaps: Duration,
    /// When it is tried again.
    at: Duration,
}

impl Waiting {
    pub(super) fn nominated(&self) -> &str {
        &self.nominated
    }

    fn wishes(&self) -> Wishes {
        Wishes { pod: Arc::clone(&self.pod), kept_off_by_pods: self.kept_off_by_pods }
    }

    /// Which changes bring its next try nearer.
    fn sleep(&self) -> Option<Sleep> {
        if self.until_perhaps < self.at { Some(Sleep::Light) } else { (self.until < self.at).then_some(Sleep::Deep) }
    }

    fn age(&self) -> Age {
        (self.pod.created.clone(), self.arrival, self.pod.key.1.clone())
    }
}

/// The older first.
type Age = (String, u64, String);

/// Pods of one priority that can be tried now. Namespaces take turns: thousands of pods in one do not delay the others.
#[derive(Debug, Default)]
struct Turns {
    namespaces: BTreeMap<String, BTreeSet<Age>>,
    /// The namespace that had the last turn.
    last: String,
}

impl Turns {
    fn remove(&mut self, namespace: &str, age: &Age) {
        if let Some(pods) = self.namespaces.get_mut(namespace) {
            pods.remove(age);
            if pods.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
    }

    fn pop(&mut self) -> Option<PodKey> {
        let behind = (Bound::Excluded(self.last.as_str()), Bound::Unbounded);
        let next = self.namespaces.range::<str, _>(behind).next().or_else(|| self.namespaces.first_key_value());
        let (namespace, pods) = next?;
        let (namespace, age) = (namespace.clone(), pods.first()?.clone());
        self.remove(&namespace, &age);
        self.last.clone_from(&namespace);
        Some((namespace, age.2))
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pods: BTreeMap<PodKey, Waiting>,
    /// Those that can be tried now, the more important first.
    ready: BTreeMap<Reverse<i64>, Turns>,
    /// Those that are tried again later.
    due: BTreeSet<(Duration, PodKey)>,
    /// Those of them that may be tried sooner if something changes.
    asleep: Asleep,
    /// Nominated pods.
    nominated: BTreeSet<PodKey>,
    arrivals: u64,
}

impl Queue {
    /// Adds or changes a pod. A known one keeps its position unless its requirements changed.
    pub(super) fn put(&mut self, pod: Arc<Pod>) {
        let key = pod.key.clone();
        if let Some(known) = self.pods.get(&key).filter(|known| known.pod.uid == pod.uid) {
            let before = Arc::clone(&known.pod);
            let was_ready = self.take_from_ready(&key);
            let at = self.take_from_due(&key);
            let nominated = pod.nominated.clone();
            if let Some(known) = self.pods.get_mut(&key) {
                if pod.unscheduled_since.is_some() {
                    known.since.clone_from(&pod.unscheduled_since);
                }
                known.pod = Arc::clone(&pod);
            }
            self.nominate(&key, &nominated);
            if was_ready || !asleep::same(&before, &pod) {
                self.get_ready(&key);
            } else if let Some(at) = at {
                self.schedule(&key, at);
            }
            return;
        }
        self.remove(&key);
        self.arrivals += 1;
        let (since, nominated) = (pod.unscheduled_since.clone(), pod.nominated.clone());
        let waiting = Waiting {
            told: None,
            since,
            kept_off_by_pods: false,
            nominated: String::new(),
            arrival: self.arrivals,
            tries: 0,
            until: Duration::ZERO,
            until_perhaps: Duration::ZERO,
            at: Duration::ZERO,
            pod,
        };
        self.pods.insert(key.clone(), waiting);
        self.nominate(&key, &nominated);
        self.get_ready(&key);
    }

    pub(super) fn remove(&mut self, key: &PodKey) -> Option<Waiting> {
        self.take_from_ready(key);
        self.take_from_due(key);
        self.nominated.remove(key);
        self.pods.remove(key)
    }

    /// When the pod was to be tried again, if that was later.
    fn take_from_due(&mut self, key: &PodKey) -> Option<Duration> {
        let waiting = self.pods.get(key)?;
        if !self.due.remove(&(waiting.at, key.clone())) {
            return None;
        }
        self.asleep.remove(&waiting.wishes(), key);
        Some(waiting.at)
    }

    /// True if the pod was among those that can be tried now.
    fn take_from_ready(&mut self, key: &PodKey) -> bool {
        let Some(waiting) = self.pods.get(key) else { return false };
        let (rank, age) = (Reverse(waiting.pod.priority), waiting.age());
        let Some(turns) = self.ready.get_mut(&rank) else { return false };
        let was_ready = turns.namespaces.get(&key.0).is_some_and(|pods| pods.contains(&age));
        turns.remove(&key.0, &age);
        if turns.namespaces.is_empty() {
            self.ready.remove(&rank);
        }
        was_ready
    }

    /// Nominates a pod for a node; empty: for none.
    pub(super) fn nominate(&mut self, key: &PodKey, node: &str) {
        let Some(waiting) = self.pods.get_mut(key) else { return };
        node.clone_into(&mut waiting.nominated);
        if node.is_empty() {
            self.nominated.remove(key);
        } else if !self.nominated.contains(key) {
            self.nominated.insert(key.clone());
        }
    }

    /// The nominated pods.
    pub(super) fn nominated(&self) -> impl Iterator<Item = &Waiting> {
        self.nominated.iter().filter_map(|key| self.pods.get(key))
    }

    /// Makes it ready now, regardless of its back-off.
    pub(super) fn get_ready(&mut self, key: &PodKey) {
        self.take_from_due(key);
        let Some(waiting) = self.pods.get(key) else { return };
        let turns = self.ready.entry(Reverse(waiting.pod.priority)).or_default();
        turns.namespaces.entry(key.0.clone()).or_default().insert(waiting.age());
    }

    /// Something changed that may give a node to pods: they are looked at as soon as their back-off is over.
    pub(super) fn wake(&mut self, hint: impl Fn(&Wishes) -> Hint) {
        for (key, hint) in self.asleep.woken(hint) {
            self.wake_one(&key, hint);
        }
    }

    /// Same as [`Self::wake`], for one pod.
    pub(super) fn wake_one(&mut self, key: &PodKey, hint: Hint) {
        let Some(waiting) = self.pods.get(key) else { return };
        let to = match hint {
            Hint::No => return,
            Hint::Perhaps => waiting.until_perhaps,
            Hint::Likely => waiting.until,
        };
        if to < waiting.at && self.take_from_due(key).is_some() {
            self.schedule(key, to);
        }
    }

    /// A pod has no node after all, and is tried again in any case, for no change may come.
    pub(super) fn try_again(&mut self, waiting: Waiting, now: Duration) {
        let (key, nominated) = (waiting.pod.key.clone(), waiting.nominated.clone());
        self.remove(&key);
        self.pods.insert(key.clone(), waiting);
        self.nominate(&key, &nominated);
        if let Some(until) = self.failed(&key, now, false).map(|waiting| waiting.until) {
            self.schedule(&key, until);
        }
    }

    /// Records that no node fits now. `same`: for the same reasons as before.
    pub(super) fn failed(&mut self, key: &PodKey, now: Duration, same: bool) -> Option<&mut Waiting> {
        self.take_from_due(key);
        let waiting = self.pods.get_mut(key)?;
        let wait = BACK_OFF.saturating_mul(1_u32.checked_shl(waiting.tries).unwrap_or(u32::MAX));
        waiting.tries = waiting.tries.saturating_add(1);
        waiting.until = now.saturating_add(wait.min(BACK_OFF_MAX));
        waiting.until_perhaps = now.saturating_add(wait.min(if same { BACK_OFF_SAME_MAX } else { BACK_OFF_MAX }));
        self.schedule(key, now.saturating_add(FLUSH));
        self.pods.get_mut(key)
    }

    /// Notes whether only other pods excluded it from all nodes.
    pub(super) fn note_kept_off(&mut self, key: &PodKey, by_pods: bool) {
        let at = self.take_from_due(key);
        if let Some(waiting) = self.pods.get_mut(key) {
            waiting.kept_off_by_pods = by_pods;
        }
        if let Some(at) = at {
            self.schedule(key, at);
        }
    }

    /// Lets it wait for an event that is certain to occur.
    pub(super) fn wait(&mut self, key: &PodKey, now: Duration) {
        self.take_from_due(key);
        if let Some(waiting) = self.pods.get_mut(key) {
            (waiting.until, waiting.until_perhaps) = (now, now);
            self.schedule(key, now.saturating_add(FLUSH));
        }
    }

    fn schedule(&mut self, key: &PodKey, at: Duration) {
        self.take_from_due(key);
        if let Some(waiting) = self.pods.get_mut(key) {
            waiting.at = at;
            if let Some(sleep) = waiting.sleep() {
                self.asleep.insert(waiting.wishes(), key.clone(), sleep);
            }
            self.due.insert((at, key.clone()));
        }
    }

    /// The next one to be looked at.
    pub(super) fn pop(&mut self, now: Duration) -> Option<PodKey> {
        while let Some((_, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            self.get_ready(&key);
        }
        let mut first = self.ready.first_entry()?;
        let next = first.get_mut().pop();
        if first.get().namespaces.is_empty() {
            first.remove();
        }
        next
    }

    /// Due time of the next pod: zero if one is ready now.
    pub(super) fn deadline(&self) -> Option<Duration> {
        if self.ready.is_empty() { self.due.first().map(|(at, _)| *at) } else { Some(Duration::ZERO) }
    }

    pub(super) fn get(&self, key: &PodKey) -> Option<&Waiting> {
        self.pods.get(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }
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
        let key = ("default".to_owned(), "old".to_owned());
        queue.put(Arc::new(Pod { key, created: "2020-01-01T00:00:00Z".to_owned(), ..Pod::default() }));
        let order: Vec<String> = std::iter::from_fn(|| pop(&mut queue, 0)).collect();
        assert_eq!(order, ["high", "b", "a", "old", "low"]);
    }

    #[test]
    fn namespaces_take_turns() {
        let mut queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.put(Arc::new(Pod { key: ("many".to_owned(), name.to_owned()), ..Pod::default() }));
        }
        for namespace in ["few", "other"] {
            queue.put(Arc::new(Pod { key: (namespace.to_owned(), "x".to_owned()), ..Pod::default() }));
        }
        let order: Vec<PodKey> = std::iter::from_fn(|| queue.pop(Duration::ZERO)).collect();
        let order: Vec<String> = order.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        assert_eq!(order, ["few/x", "many/a", "other/x", "many/b", "many/c"]);
    }

    #[test]
    fn a_pod_without_a_node_waits_for_a_change_and_for_its_back_off() {
        let mut queue = Queue::default();
        queue.put(pod("a", 0));
        let key = ("default".to_owned(), "a".to_owned());
        let mut now = 0;
        for wait in [1, 2, 4, 8, 10, 10] {
            assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
            queue.failed(&key, Duration::from_secs(now), false);
            let flush = Some(Duration::from_secs(now) + FLUSH);
            assert_eq!(queue.deadline(), flush, "nothing has changed");
            // An update of the same pod, such as its new condition, is not a change.
            queue.put(pod("a", 0));
            queue.wake(|_| Hint::No);
            assert_eq!(queue.deadline(), flush);
            queue.wake(|_| Hint::Perhaps);
            queue.wake(|_| Hint::Likely);
            assert_eq!(pop(&mut queue, now + wait - 1), None);
            assert_eq!(queue.deadline(), Some(Duration::from_secs(now + wait)));
            now += wait;
        }
        queue.remove(&key);
        assert_eq!((queue.deadline(), pop(&mut queue, 1000)), (None, None));
    }

    #[test]
    fn back_off_for_the_same_reasons_grows_to_minutes() {
        let mut queue = Queue::default();
        queue.put(pod("a", 0));
        let key = ("default".to_owned(), "a".to_owned());
        let mut now = Duration::ZERO;
        for (perhaps, likely) in [(1, 1), (2, 2), (4, 4), (8, 8), (16, 10), (32, 10), (64, 10), (120, 10), (120, 10)] {
            queue.get_ready(&key);
            assert_eq!(queue.pop(now), Some(key.clone()));
            queue.failed(&key, now, true);
            queue.wake(|_| Hint::Perhaps);
            assert_eq!(queue.deadline(), Some(now + Duration::from_secs(perhaps)));
            queue.wake(|_| Hint::Likely);
            assert_eq!(queue.deadline(), Some(now + Duration::from_secs(likely)), "room for it does not wait");
            now += Duration::from_secs(1000);
        }
    }

    #[test]
    fn replaced_pod_starts_over_and_smaller_request_is_retried() {
        let mut queue = Queue::default();
        queue.put(pod("a", 0));
        pop(&mut queue, 0);
        let key = ("default".to_owned(), "a".to_owned());
        queue.failed(&key, Duration::ZERO, false);
        let other = |uid: &str| Pod { key: key.clone(), uid: uid.to_owned(), ..Pod::default() };
        let spec = serde_json::json!({"nodeSelector": {"a": "b"}});
        queue.put(Arc::new(Pod { spec, ..other("a") }));
        assert_eq!(pop(&mut queue, 0).as_deref(), Some("a"));
        queue.failed(&key, Duration::ZERO, false);
        queue.put(Arc::new(other("b")));
        assert_eq!(pop(&mut queue, 0).as_deref(), Some("a"));
        assert_eq!(queue.get(&key).map(|one| one.tries), Some(0));
    }
}
