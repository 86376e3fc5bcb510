//! Pods and namespaces that NetworkPolicies may select, from the events of their watches. Pure.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};

use crate::bridge::followed::News;
use crate::bridge::followed::listing::Listing;
use crate::bridge::name::Name;
use crate::bridge::peer_pod::PeerPod;

/// An event of a watch.
pub(super) type Seen = Result<Event<DynamicObject>, watcher::Error>;

/// Pods and namespaces that are known.
#[derive(Default)]
pub(in crate::bridge::informers) struct Known {
    /// Namespaces with their labels.
    pub(in crate::bridge::informers) namespaces: BTreeMap<String, Value>,
    pub(in crate::bridge::informers) pods: BTreeMap<Name, PeerPod>,
    /// Whether both have been read, or the API refuses them; then peers are missing, and nodes admit less.
    answered: [bool; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::bridge::informers) enum Change {
    Pod(Name),
    /// All namespaces, or more changes than can be listed.
    All,
}

/// The lists that are being read.
#[derive(Default)]
pub(super) struct Lists {
    namespaces: Listing<Value>,
    pods: Listing<PeerPod>,
}

impl Known {
    /// Whether pods and namespaces are as complete as they can be.
    pub(super) fn is_ready(&self) -> bool {
        self.answered == [true; 2]
    }

    /// Takes an event of the watch of namespaces; returns what followers are told.
    pub(super) fn take_namespace(&mut self, event: Seen, lists: &mut Lists) -> Option<Change> {
        let labels = |namespace: &DynamicObject| Some(json!(namespace.metadata.labels));
        let mut change = None;
        let error = lists.namespaces.take(event, labels, |news| change = self.namespaces_changed(news));
        let Some(error) = error else { return change };
        log::warn!("watching the namespaces that policies mean: {error}");
        self.refused(0)
    }

    /// Same for the watch of pods.
    pub(super) fn take_pod(&mut self, event: Seen, lists: &mut Lists) -> Option<Change> {
        let mut change = None;
        let error = lists.pods.take(event, PeerPod::of, |news| change = self.pods_changed(news));
        let Some(error) = error else { return change };
        log::warn!("watching the pods that policies mean: {error}");
        self.refused(1)
    }

    fn namespaces_changed(&mut self, news: News<Value>) -> Option<Change> {
        match news {
            News::All(all) => {
                self.namespaces = all.into_iter().map(|((_, name), labels)| (name, labels)).collect();
                self.answered[0] = true;
            }
            News::One((_, name), labels) if self.namespaces.get(&name) == labels.as_ref() => return None,
            News::One((_, name), Some(labels)) => drop(self.namespaces.insert(name, labels)),
            News::One((_, name), None) => drop(self.namespaces.remove(&name)),
        }
        Some(Change::All)
    }

    fn pods_changed(&mut self, news: News<PeerPod>) -> Option<Change> {
        match news {
            News::All(all) => {
                self.pods = all;
                self.answered[1] = true;
                Some(Change::All)
            }
            News::One(name, pod) if self.pods.get(&name) == pod.as_ref() => None,
            News::One(name, Some(pod)) => {
                self.pods.insert(name.clone(), pod);
                Some(Change::Pod(name))
            }
            News::One(name, None) => {
                self.pods.remove(&name);
                Some(Change::Pod(name))
            }
        }
    }

    /// The API refuses one of the two: it counts as read, which followers are told once.
    fn refused(&mut self, which: usize) -> Option<Change> {
        (!std::mem::replace(&mut self.answered[which], true)).then_some(Change::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, phase: &str) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": "n"},
            "status": {"phase": phase, "podIPs": [{"ip": "10.86.0.2"}]}}))
        .unwrap()
    }

    fn namespace(name: &str, team: &str) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"team": team}}})).unwrap()
    }

    fn refused() -> Seen {
        let status = kube::core::Status::failure("m", "r").with_code(403);
        Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))
    }

    #[test]
    fn changes_of_pods_are_told_one_by_one_and_only_if_peers_see_them() {
        let (mut known, mut lists) = (Known::default(), Lists::default());
        let mut take = |event| known.take_pod(Ok(event), &mut lists);
        let web = || Some(Change::Pod(("shop".into(), "web".into())));
        assert_eq!(take(Event::Init), None);
        assert_eq!(take(Event::InitApply(pod("web", "Running"))), None);
        assert_eq!(take(Event::InitDone), Some(Change::All));
        assert_eq!(take(Event::Apply(pod("web", "Pending"))), None, "its phase does not matter");
        assert_eq!(take(Event::Apply(pod("web", "Failed"))), web(), "it has ended");
        assert_eq!(take(Event::Apply(pod("web", "Failed"))), None);
        assert_eq!(take(Event::Delete(pod("web", "Failed"))), None);
        assert_eq!(take(Event::Apply(pod("web", "Running"))), web());
        assert_eq!(take(Event::Delete(pod("web", "Running"))), web());
        assert!(known.pods.is_empty());
    }

    #[test]
    fn list_that_replaces_another_forgets_what_it_lacks() {
        let (mut known, mut lists) = (Known::default(), Lists::default());
        for event in [Event::Init, Event::InitApply(namespace("a", "x")), Event::Init] {
            assert_eq!(known.take_namespace(Ok(event), &mut lists), None);
        }
        known.take_namespace(Ok(Event::InitApply(namespace("b", "x"))), &mut lists);
        assert_eq!(known.take_namespace(Ok(Event::InitDone), &mut lists), Some(Change::All));
        assert_eq!(known.namespaces.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(known.take_namespace(Ok(Event::Apply(namespace("b", "x"))), &mut lists), None);
        assert_eq!(known.take_namespace(Ok(Event::Apply(namespace("b", "y"))), &mut lists), Some(Change::All));
    }

    #[test]
    fn refused_lists_count_as_read_once() {
        let (mut known, mut lists) = (Known::default(), Lists::default());
        assert_eq!(known.take_pod(refused(), &mut lists), Some(Change::All));
        assert!(!known.is_ready(), "namespaces have not been read");
        assert_eq!(known.take_namespace(refused(), &mut lists), Some(Change::All));
        assert!(known.is_ready());
        assert_eq!((known.take_pod(refused(), &mut lists), known.take_namespace(refused(), &mut lists)), (None, None));
    }
}
