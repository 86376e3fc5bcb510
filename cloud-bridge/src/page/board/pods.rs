//! The pods of all nodes, and the counts of each node. Pure.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::pod::{Counted, Pod, PodSeen};

/// Pods of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Number of pods that have not ended.
    pub(super) wanted: u32,
    pub(super) ready: u32,
    pub(super) restarts: u64,
}

#[derive(Debug)]
struct Known {
    pod: Pod,
    /// Number of the list that showed it last.
    list: u64,
}

/// All pods that are bound to any node: which nodes are bridged may only be known later.
#[derive(Debug, Default)]
pub(super) struct Pods {
    /// Key: `NAMESPACE/NAME`.
    pods: BTreeMap<Box<str>, Known>,
    counts: HashMap<Arc<str>, Counts>,
    /// Number of the newest list.
    list: u64,
}

/// A node whose counts have changed, and the number of new restarts.
pub(super) type Touched = (Arc<str>, u64);

impl Pods {
    pub(super) fn of(&self, node: &str) -> Counts {
        self.counts.get(node).copied().unwrap_or_default()
    }

    /// The pods behind this one, by `NAMESPACE/NAME`.
    pub(super) fn behind<'a>(&'a self, after: Option<&'a str>) -> impl Iterator<Item = (&'a str, &'a Pod)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.pods.range::<str, _>((begin, Bound::Unbounded)).map(|(key, known)| (&**key, &known.pod))
    }

    /// A pod was added or changed.
    pub(super) fn seen(&mut self, seen: PodSeen<'_>) -> Vec<Touched> {
        if seen.node.is_empty() {
            return Vec::new();
        }
        let key = key(seen.namespace, seen.name);
        // A list may show a new pod of the same name before anything says that the old one is gone.
        let moved = self.pods.get(&*key).is_some_and(|known| *known.pod.node != *seen.node);
        let left = if moved { self.remove(&key) } else { None };
        left.into_iter().chain(self.put(key, seen)).collect()
    }

    fn put(&mut self, key: Box<str>, seen: PodSeen<'_>) -> Option<Touched> {
        let Some(known) = self.pods.get_mut(&*key) else {
            let node =
                self.counts.get_key_value(seen.node).map_or_else(|| seen.node.into(), |(node, _)| Arc::clone(node));
            let pod = Pod::new(&seen, Arc::clone(&node));
            self.counts.entry(Arc::clone(&node)).or_default().add(pod.counted);
            self.pods.insert(key, Known { pod, list: self.list });
            return Some((node, 0));
        };
        known.list = self.list;
        let before = known.pod.counted;
        known.pod.update(&seen);
        let (now, node) = (known.pod.counted, &known.pod.node);
        if now == before {
            return None;
        }
        let counts = self.counts.entry(Arc::clone(node)).or_default();
        counts.take(before);
        counts.add(now);
        Some((Arc::clone(node), now.restarts.saturating_sub(before.restarts)))
    }

    pub(super) fn gone(&mut self, namespace: &str, name: &str) -> Option<Touched> {
        self.remove(&key(namespace, name))
    }

    fn remove(&mut self, key: &str) -> Option<Touched> {
        let pod = self.pods.remove(key)?.pod;
        if let Some(counts) = self.counts.get_mut(&pod.node) {
            counts.take(pod.counted);
            if *counts == Counts::default() {
                self.counts.remove(&pod.node);
            }
        }
        Some((pod.node, 0))
    }

    /// A list of all pods begins.
    pub(super) fn list(&mut self) {
        self.list += 1;
    }

    /// The list has ended: pods that were not in it are deleted.
    pub(super) fn listed(&mut self) -> Vec<Touched> {
        let lost = self.pods.iter().filter(|(_, known)| known.list < self.list).map(|(key, _)| key.clone());
        let lost: Vec<Box<str>> = lost.collect();
        lost.iter().filter_map(|key| self.remove(key)).collect()
    }
}

/// Names in the API have no `/` (RFC 1123).
fn key(namespace: &str, name: &str) -> Box<str> {
    format!("{namespace}/{name}").into()
}

impl Counts {
    fn add(&mut self, pod: Counted) {
        self.wanted += u32::from(pod.wanted);
        self.ready += u32::from(pod.ready);
        self.restarts = self.restarts.saturating_add(pod.restarts);
    }

    fn take(&mut self, pod: Counted) {
        self.wanted = self.wanted.saturating_sub(u32::from(pod.wanted));
        self.ready = self.ready.saturating_sub(u32::from(pod.ready));
        self.restarts = self.restarts.saturating_sub(pod.restarts);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pod::Phase;
    use super::super::pod::tests::running;
    use super::*;

    fn touched(node: &str, restarts: u64) -> Vec<Touched> {
        vec![(node.into(), restarts)]
    }

    #[test]
    fn pods_are_counted_where_they_are() {
        let mut pods = Pods::default();
        assert_eq!(pods.seen(running("1", true, 2)), touched("a", 0), "restarts from before are no news");
        assert_eq!(pods.seen(running("2", false, 0)), touched("a", 0));
        assert!(pods.seen(running("2", false, 0)).is_empty(), "nothing new");
        assert_eq!(pods.of("a"), Counts { wanted: 2, ready: 1, restarts: 2 });
        assert_eq!(pods.seen(running("2", true, 3)), touched("a", 3));
        assert_eq!(pods.seen(PodSeen { phase: Phase::Succeeded, ..running("1", true, 2) }), touched("a", 0));
        assert_eq!(pods.of("a"), Counts { wanted: 1, ready: 1, restarts: 5 });
        assert!(pods.seen(PodSeen { node: "", ..running("3", true, 0) }).is_empty(), "bound to no node");
        assert!(pods.seen(PodSeen { reason: "x", ..running("2", true, 3) }).is_empty(), "no count has changed");
        assert_eq!(&*pods.behind(Some("ns/1")).next().unwrap().1.reason, "x");
    }

    #[test]
    fn new_pod_of_the_same_name_may_be_on_another_node() {
        let mut pods = Pods::default();
        pods.seen(running("1", true, 2));
        let moved = pods.seen(PodSeen { node: "b", ..running("1", false, 1) });
        assert_eq!(moved, [("a".into(), 0), ("b".into(), 0)]);
        assert_eq!((pods.of("a"), pods.of("b")), (Counts::default(), Counts { wanted: 1, ready: 0, restarts: 1 }));
    }

    #[test]
    fn what_a_new_list_does_not_show_is_gone() {
        let mut pods = Pods::default();
        pods.seen(running("1", true, 0));
        pods.seen(running("2", true, 0));
        pods.list();
        pods.seen(running("2", true, 0));
        assert_eq!(pods.listed(), touched("a", 0));
        assert_eq!(pods.of("a").wanted, 1);
        assert!(pods.gone("ns", "2").is_some() && pods.gone("ns", "2").is_none());
        assert!(pods.counts.is_empty() && pods.pods.is_empty());
    }
}
