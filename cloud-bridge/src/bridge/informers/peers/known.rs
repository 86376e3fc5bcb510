//! Pods and namespaces that NetworkPolicies may select, from the events of their watches. Pure.

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};

use crate::bridge::name::{Name, name_of};
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
    namespaces: Option<BTreeMap<String, Value>>,
    pods: Option<BTreeMap<Name, PeerPod>>,
}

impl Known {
    /// Whether pods and namespaces are as complete as they can be.
    pub(super) fn is_ready(&self) -> bool {
        self.answered == [true; 2]
    }

    /// Takes an event of the watch of namespaces; returns what followers are told.
    pub(super) fn take_namespace(&mut self, event: Seen, lists: &mut Lists) -> Option<Change> {
        let entry =
            |namespace: DynamicObject| (namespace.metadata.name.unwrap_or_default(), json!(namespace.metadata.labels));
        match event {
            Ok(Event::Init) => {
                lists.namespaces = Some(BTreeMap::new());
                return None;
            }
            Ok(Event::InitApply(namespace)) => {
                lists.namespaces.get_or_insert_default().extend([entry(namespace)]);
                return None;
            }
            Ok(Event::InitDone) => {
                self.namespaces = lists.namespaces.take().unwrap_or_default();
                self.answered[0] = true;
            }
            Ok(Event::Apply(namespace)) => {
                let (name, labels) = entry(namespace);
                if self.namespaces.get(&name) == Some(&labels) {
                    return None;
                }
                self.namespaces.insert(name, labels);
            }
            Ok(Event::Delete(namespace)) => drop(self.namespaces.remove(&entry(namespace).0)),
            Err(error) => {
                log::warn!("watching the namespaces that policies mean: {error}");
                if std::mem::replace(&mut self.answered[0], true) {
                    return None;
                }
            }
        }
        Some(Change::All)
    }

    /// Same for the watch of pods.
    pub(super) fn take_pod(&mut self, event: Seen, lists: &mut Lists) -> Option<Change> {
        let name = |pod: &DynamicObject| name_of(&pod.metadata);
        match event {
            Ok(Event::Init) => {
                lists.pods = Some(BTreeMap::new());
                None
            }
            Ok(Event::InitApply(pod)) => {
                lists.pods.get_or_insert_default().extend(PeerPod::of(&pod).map(|peer| (name(&pod), peer)));
                None
            }
            Ok(Event::InitDone) => {
                self.pods = lists.pods.take().unwrap_or_default();
                self.answered[1] = true;
                Some(Change::All)
            }
            Ok(Event::Apply(pod)) => {
                let (name, peer) = (name(&pod), PeerPod::of(&pod));
                if self.pods.get(&name) == peer.as_ref() {
                    return None;
                }
                match peer {
                    Some(peer) => drop(self.pods.insert(name.clone(), peer)),
                    None => drop(self.pods.remove(&name)),
                }
                Some(Change::Pod(name))
            }
            Ok(Event::Delete(pod)) => {
                self.pods.remove(&name(&pod));
                Some(Change::Pod(name(&pod)))
            }
            Err(error) => {
                log::warn!("watching the pods that policies mean: {error}");
                (!std::mem::replace(&mut self.answered[1], true)).then_some(Change::All)
            }
        }
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
        assert_eq!(take(Event::Delete(pod("web", "Failed"))), web());
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
