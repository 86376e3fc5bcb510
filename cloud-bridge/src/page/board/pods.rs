//! The pods of each node, and the number of ready ones. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A pod as the watch delivers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) struct PodSeen<'a> {
    pub(in crate::page) uid: &'a str,
    pub(in crate::page) node: &'a str,
    pub(in crate::page) ended: bool,
    pub(in crate::page) ready: bool,
    pub(in crate::page) restarts: u64,
}

/// Pods of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Number of pods that have not ended.
    pub(super) wanted: u32,
    pub(super) ready: u32,
    pub(super) restarts: u64,
}

#[derive(Debug)]
struct Pod {
    node: Arc<str>,
    wanted: bool,
    ready: bool,
    restarts: u64,
    /// Number of the list that showed it last.
    list: u64,
}

/// All pods that are bound to any node: which nodes are bridged may only be known later.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pods: BTreeMap<Box<str>, Pod>,
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

    /// A pod was added or changed.
    pub(super) fn seen(&mut self, seen: PodSeen<'_>) -> Option<Touched> {
        if seen.node.is_empty() {
            return None;
        }
        let (wanted, ready) = (!seen.ended, seen.ready && !seen.ended);
        let known = self.pods.get_mut(seen.uid);
        let Some(pod) = known else {
            let node =
                self.counts.get_key_value(seen.node).map_or_else(|| seen.node.into(), |(node, _)| Arc::clone(node));
            let pod = Pod { node: Arc::clone(&node), wanted, ready, restarts: seen.restarts, list: self.list };
            self.counts.entry(Arc::clone(&node)).or_default().add(&pod);
            self.pods.insert(seen.uid.into(), pod);
            return Some((node, 0));
        };
        pod.list = self.list;
        if (pod.wanted, pod.ready, pod.restarts) == (wanted, ready, seen.restarts) {
            return None;
        }
        let more = seen.restarts.saturating_sub(pod.restarts);
        let counts = self.counts.entry(Arc::clone(&pod.node)).or_default();
        counts.take(pod);
        (pod.wanted, pod.ready, pod.restarts) = (wanted, ready, seen.restarts);
        counts.add(pod);
        Some((Arc::clone(&pod.node), more))
    }

    pub(super) fn gone(&mut self, uid: &str) -> Option<Touched> {
        let pod = self.pods.remove(uid)?;
        if let Some(counts) = self.counts.get_mut(&pod.node) {
            counts.take(&pod);
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
        let lost = self.pods.iter().filter(|(_, pod)| pod.list < self.list).map(|(uid, _)| uid.clone());
        let lost: Vec<Box<str>> = lost.collect();
        lost.iter().filter_map(|uid| self.gone(uid)).collect()
    }
}

impl Counts {
    fn add(&mut self, pod: &Pod) {
        self.wanted += u32::from(pod.wanted);
        self.ready += u32::from(pod.ready);
        self.restarts = self.restarts.saturating_add(pod.restarts);
    }

    fn take(&mut self, pod: &Pod) {
        self.wanted = self.wanted.saturating_sub(u32::from(pod.wanted));
        self.ready = self.ready.saturating_sub(u32::from(pod.ready));
        self.restarts = self.restarts.saturating_sub(pod.restarts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod<'a>(uid: &'a str, ended: bool, ready: bool, restarts: u64) -> PodSeen<'a> {
        PodSeen { uid, node: "a", ended, ready, restarts }
    }

    #[test]
    fn pods_are_counted_where_they_are() {
        let mut pods = Pods::default();
        assert_eq!(pods.seen(pod("1", false, true, 2)).unwrap().1, 0, "restarts from before are no news");
        assert!(pods.seen(pod("2", false, false, 0)).is_some());
        assert_eq!(pods.seen(pod("2", false, false, 0)), None, "nothing new");
        assert_eq!(pods.of("a"), Counts { wanted: 2, ready: 1, restarts: 2 });
        assert_eq!(pods.seen(pod("2", false, true, 3)).unwrap().1, 3);
        assert!(pods.seen(pod("1", true, true, 2)).is_some());
        assert_eq!(pods.of("a"), Counts { wanted: 1, ready: 1, restarts: 5 });
        assert_eq!(pods.seen(PodSeen { node: "", ..pod("3", false, true, 0) }), None, "bound to no node");
    }

    #[test]
    fn what_a_new_list_does_not_show_is_gone() {
        let mut pods = Pods::default();
        pods.seen(pod("1", false, true, 0));
        pods.seen(pod("2", false, true, 0));
        pods.list();
        pods.seen(pod("2", false, true, 0));
        assert_eq!(pods.listed(), [("a".into(), 0)]);
        assert_eq!(pods.of("a").wanted, 1);
        assert!(pods.gone("2").is_some() && pods.gone("2").is_none());
        assert!(pods.counts.is_empty() && pods.pods.is_empty());
    }
}
