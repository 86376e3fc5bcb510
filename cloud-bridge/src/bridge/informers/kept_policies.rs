//! The NetworkPolicies of a watch, kept as text, limited in size for each namespace. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edge_protocol::message::{Object, ObjectKey};
use kube::api::{DynamicObject, ObjectMeta};
use serde_json::json;

use crate::bridge::name::{Name, name_of};
use crate::bridge::policy_view::PeerSelector;
use crate::bridge::slim::made_object;
use crate::bridge::told::kinds::Kind;

/// Limit in bytes for the policies of one namespace with their views and peers. A node accepts 500 policies of them.
const ROOM: usize = 8 << 20;
/// Memory of a policy in addition to its texts, in bytes.
const ENTRY: usize = 1 << 10;
/// Name of the view that stands for all policies beyond the limit; no policy can have it.
const MORE: &str = "_more";

/// Peers by their ids.
pub(super) type PolicyPeers = BTreeMap<Arc<str>, Arc<PeerSelector>>;

/// Policies by namespace and name.
#[derive(Default)]
pub(super) struct Kept {
    policies: BTreeMap<Name, Policy>,
    /// Bytes in use by namespace.
    used: BTreeMap<String, usize>,
    /// Namespaces with policies beyond the limit.
    over: BTreeSet<String>,
}

struct Policy {
    /// Text, because a parsed list of addresses takes thirty times as much.
    text: Box<str>,
    peers: PolicyPeers,
    /// Size in bytes.
    size: usize,
}

impl Kept {
    /// Stores the new state of a policy, if there is room.
    pub(super) fn put(&mut self, mut policy: DynamicObject) -> Name {
        let ObjectMeta { name, namespace, uid, .. } = policy.metadata;
        let key = (namespace.clone().unwrap_or_default(), name.clone().unwrap_or_default());
        policy.metadata = ObjectMeta { name, namespace, uid, ..ObjectMeta::default() };
        self.remove(&key);
        match serde_json::to_string(&policy) {
            Ok(text) => {
                let size = text.len() + ENTRY;
                self.keep(&key, Policy { text: text.into(), peers: PolicyPeers::new(), size });
            }
            Err(_) => self.refuse(&key.0),
        }
        key
    }

    /// Adds the peers of a policy whose view has `view` bytes. False if they exceed the limit.
    pub(super) fn viewed(&mut self, name: &Name, view: usize, peers: PolicyPeers) -> bool {
        let Some(mut policy) = self.remove(name) else { return false };
        policy.size = policy.text.len() + ENTRY + view + peers.values().map(|peer| peer.size).sum::<usize>();
        policy.peers = peers;
        self.keep(name, policy)
    }

    fn keep(&mut self, name: &Name, policy: Policy) -> bool {
        let used = self.used.get(&name.0).copied().unwrap_or_default() + policy.size;
        if used > ROOM {
            self.refuse(&name.0);
            return false;
        }
        self.used.insert(name.0.clone(), used);
        self.policies.insert(name.clone(), policy);
        true
    }

    fn refuse(&mut self, namespace: &str) {
        if self.over.insert(namespace.to_owned()) {
            log::warn!("NetworkPolicies of namespace {namespace} take more than {ROOM} bytes: nodes isolate its pods");
        }
    }

    /// Removes a policy.
    pub(super) fn forget(&mut self, policy: &DynamicObject) -> Name {
        let name = name_of(&policy.metadata);
        self.remove(&name);
        name
    }

    fn remove(&mut self, name: &Name) -> Option<Policy> {
        let policy = self.policies.remove(name)?;
        if let Some(used) = self.used.get_mut(&name.0) {
            *used = used.saturating_sub(policy.size);
            if *used == 0 {
                self.used.remove(&name.0);
            }
        }
        Some(policy)
    }

    /// The policy, parsed.
    pub(super) fn read(&self, name: &Name) -> Option<DynamicObject> {
        serde_json::from_str(&self.policies.get(name)?.text).ok()
    }

    /// The peers of all policies, each with the namespace of the policy.
    pub(super) fn peers(&self) -> impl Iterator<Item = (&str, &Arc<str>, &Arc<PeerSelector>)> {
        self.policies.iter().flat_map(|(name, policy)| policy.peers.iter().map(move |(id, peer)| (&*name.0, id, peer)))
    }

    /// Names of policies that depend on labels of pods and namespaces.
    pub(super) fn meaning_pods(&self) -> impl Iterator<Item = &Name> {
        self.policies.iter().filter(|(_, policy)| !policy.peers.is_empty()).map(|(name, _)| name)
    }

    /// Names of all policies, and a name without a policy for each namespace beyond its limit.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.policies.keys().cloned().chain(self.over.iter().map(|namespace| (namespace.clone(), String::new())))
    }

    /// Whether the namespace has policies beyond its limit. They stay unknown until all are read again.
    pub(super) fn is_over(&self, namespace: &str) -> bool {
        self.over.contains(namespace)
    }
}

/// The view for a namespace beyond its limit: a policy that isolates all of its pods.
pub(super) fn more(namespace: &str) -> Object {
    let key = more_key(namespace);
    let spec = json!({ "unreadable": "the policies of the namespace are larger than the bridge takes" });
    made_object(key, format!("policies-{namespace}"), json!({ "kind": Kind::PolicyView.name(), "spec": spec }))
}

pub(super) fn more_key(namespace: &str) -> ObjectKey {
    Kind::PolicyView.key(namespace, MORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(namespace: &str, name: &str, bytes: usize) -> DynamicObject {
        let annotations = json!({"a": "x".repeat(9000)});
        let metadata = json!({"name": name, "namespace": namespace, "uid": "u", "annotations": annotations});
        let spec = json!({"podSelector": {"matchLabels": {"a": "x".repeat(bytes)}}});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn policies_of_a_namespace_have_a_bounded_room() {
        let mut kept = Kept::default();
        for number in 0..100 {
            kept.put(policy("shop", &number.to_string(), 1 << 20));
        }
        kept.put(policy("bank", "p", 1 << 20));
        assert_eq!((kept.policies.len(), kept.used["shop"] <= ROOM), (8, true), "seven and that of the other");
        assert!(kept.is_over("shop") && !kept.is_over("bank"));
        kept.put(policy("shop", "0", 9));
        assert!(kept.used["shop"] < 7 << 20, "a smaller one gives its room back");
        assert!(kept.read(&("shop".into(), "0".into())).is_some_and(|policy| policy.metadata.annotations.is_none()));
        for name in kept.policies.keys().cloned().collect::<Vec<_>>() {
            kept.remove(&name);
        }
        assert!(kept.used.is_empty());
    }

    #[test]
    fn view_and_peers_take_room_too() {
        let mut kept = Kept::default();
        let name = kept.put(policy("shop", "p", 1000));
        assert!(kept.viewed(&name, 1 << 20, PolicyPeers::new()) && kept.used["shop"] > 1 << 20);
        assert!(kept.viewed(&name, 1000, PolicyPeers::new()) && kept.used["shop"] < 1 << 20);
        assert!(!kept.viewed(&name, ROOM, PolicyPeers::new()) && kept.read(&name).is_none() && kept.is_over("shop"));
        assert_eq!(kept.names().collect::<Vec<_>>(), [("shop".to_owned(), String::new())]);
    }
}
