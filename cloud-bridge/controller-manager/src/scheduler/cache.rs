//! Results of a search for a node that hold for the next pod of the same kind too: replicas of a controller come one after
//! the other, and little changes in between. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::affinity::{Namespaces, State};
use super::asleep::same;
use super::pod::Pod;

/// Kinds of pods in the cache. Namespaces take turns in the queue, so pods of several kinds alternate.
const KINDS: usize = 8;

/// Numbers of nodes by the reason for which they refuse a pod.
pub(super) type Refused = BTreeMap<&'static str, usize>;

/// Verdict of all nodes on the spec of a pod, whichever pods are on them.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Names of the nodes that do not refuse it.
    pub(super) nodes: BTreeSet<String>,
    pub(super) refused: Refused,
}

/// Whether the cache of verdicts is worth its memory: it is if most nodes refuse.
#[derive(Debug, Default)]
pub(super) enum Screen {
    #[default]
    NotNeeded,
    /// A search met more nodes that refuse than that do not; the next one is to ask all of them.
    Wanted,
    Made(Arc<Passed>),
}

/// Cached results for one kind of pods.
#[derive(Debug)]
pub(super) struct Known {
    like: Arc<Pod>,
    /// `None`: the next search has to count.
    pub(super) near: Option<State>,
    pub(super) screen: Screen,
}

impl Known {
    fn is_of(&self, pod: &Pod) -> bool {
        self.like.key.0 == pod.key.0 && same(&self.like, pod)
    }
}

/// The kinds of the last searches, the latest first.
#[derive(Debug, Default)]
pub(super) struct Cache(VecDeque<Known>);

impl Cache {
    /// Takes the cached results for pods like this one.
    pub(super) fn take(&mut self, pod: &Arc<Pod>) -> Known {
        let at = self.0.iter().position(|kind| kind.is_of(pod));
        let known = at.and_then(|at| self.0.remove(at));
        known.unwrap_or_else(|| Known { like: Arc::clone(pod), near: None, screen: Screen::default() })
    }

    pub(super) fn put(&mut self, kind: Known) {
        self.0.push_front(kind);
        self.0.truncate(KINDS);
    }

    /// A pod is on a node with these labels (`by` is 1), or no longer (-1).
    pub(super) fn count(&mut self, other: &Pod, node: &Value, by: i64, namespaces: &Namespaces) {
        for Known { like, near, .. } in &mut self.0 {
            if let Some(near) = near {
                near.count_theirs(like, other, node, by, namespaces);
                near.count_own(like, other, node, by, namespaces);
            }
        }
    }

    /// Pods may count elsewhere: labels of their node or of their namespace have changed.
    pub(super) fn forget_counts(&mut self) {
        self.0.iter_mut().for_each(|kind| kind.near = None);
    }

    /// Nodes may refuse other pods than before.
    pub(super) fn forget_screens(&mut self) {
        for screen in self.0.iter_mut().map(|kind| &mut kind.screen) {
            if matches!(screen, Screen::Made(_)) {
                *screen = Screen::Wanted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(namespace: &str, name: &str, app: &str) -> Arc<Pod> {
        let key = (namespace.to_owned(), name.to_owned());
        Arc::new(Pod { key, labels: json!({"app": app}), ..Pod::default() })
    }

    #[test]
    fn kind_is_found_by_what_decides_and_the_oldest_is_dropped() {
        let mut cache = Cache::default();
        let known = |cache: &mut Cache, pod: &Arc<Pod>| {
            let mut kind = cache.take(pod);
            let known = kind.near.is_some();
            kind.near = Some(State::default());
            cache.put(kind);
            known
        };
        assert!(!known(&mut cache, &pod("ns", "a", "web")));
        assert!(known(&mut cache, &pod("ns", "b", "web")), "another replica");
        assert!(!known(&mut cache, &pod("ns", "b", "db")));
        assert!(!known(&mut cache, &pod("other", "b", "web")));
        for at in 0..KINDS - 1 {
            known(&mut cache, &pod("ns", "c", &at.to_string()));
        }
        assert!(known(&mut cache, &pod("other", "b", "web")));
        assert!(!known(&mut cache, &pod("ns", "a", "web")));
        cache.forget_counts();
        assert!(!known(&mut cache, &pod("other", "b", "web")));
    }

    #[test]
    fn changed_node_asks_for_a_new_screen_where_there_was_one() {
        let mut cache = Cache::default();
        let (web, db) = (pod("ns", "a", "web"), pod("ns", "a", "db"));
        for (pod, screen) in [(&web, Screen::Made(Arc::default())), (&db, Screen::NotNeeded)] {
            let kind = cache.take(pod);
            cache.put(Known { screen, ..kind });
        }
        cache.forget_screens();
        assert!(matches!(cache.take(&web).screen, Screen::Wanted));
        assert!(matches!(cache.take(&db).screen, Screen::NotNeeded));
    }
}
