//! The group of NetworkPolicies that nodes receive, from the policies and what is known of pods. Pure, in small steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edge_protocol::message::{ObjectDigest, ObjectKey};
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};

use crate::bridge::informers::kept_policies::{Kept, PolicyPeers, more, more_key};
use crate::bridge::informers::peers::{Change, Known};
use crate::bridge::name::Name;
use crate::bridge::policy_view::{PeerSelector, peer_views, policy_view};
use crate::bridge::told::kinds::Kind;
use crate::bridge::world::{Group, Told};

/// Maximum number of peers in a namespace's policies that a pod may belong to. Nodes ignore further ones.
const PEERS_OF_A_POD: usize = 32;

/// An event of the watch of policies.
pub(super) type Seen = Result<Event<DynamicObject>, watcher::Error>;

/// The views of a namespace, or of all.
pub(super) struct Views {
    namespace: String,
    kept: Kept,
    listing: Option<Kept>,
    read: bool,
    /// Whether some policies had no room, and there may be some now.
    pub(super) wants_reading: bool,
    changed_policies: BTreeSet<Name>,
    changed_peers: bool,
    changed_pods: BTreeSet<Name>,
    peers: BTreeMap<Arc<str>, Peer>,
    /// The peers that each pod belongs to; without pods that belong to none.
    matched: BTreeMap<Name, Vec<Arc<str>>>,
    said: Group,
    /// Whether nothing was sent yet: an empty group must be sent too.
    pub(super) first: bool,
}

struct Peer {
    selector: Arc<PeerSelector>,
    /// The namespace whose policies use this peer; the first of several.
    namespace: String,
}

impl Views {
    pub(super) fn new(namespace: &str) -> Self {
        let (kept, changed_policies, changed_pods, peers, matched, said) = Default::default();
        Self {
            namespace: namespace.to_owned(),
            kept,
            listing: None,
            read: false,
            wants_reading: false,
            changed_policies,
            changed_peers: false,
            changed_pods,
            peers,
            matched,
            said,
            first: true,
        }
    }

    /// Takes an event; returns its error, if it is one.
    pub(super) fn take(&mut self, event: Seen) -> Option<watcher::Error> {
        let changed = match event {
            Ok(Event::Init) => {
                self.listing = Some(Kept::default());
                return None;
            }
            Ok(Event::InitApply(policy)) => {
                self.listing.get_or_insert_default().put(policy);
                return None;
            }
            Ok(Event::InitDone) => {
                let old = std::mem::replace(&mut self.kept, self.listing.take().unwrap_or_default());
                self.changed_policies.extend(old.names().chain(self.kept.names()));
                self.read = true;
                return None;
            }
            Ok(Event::Apply(policy)) => self.kept.put(policy),
            Ok(Event::Delete(policy)) => self.kept.forget(&policy),
            Err(error) => return Some(error),
        };
        self.wants_reading |= self.kept.is_over(&changed.0);
        self.changed_policies.insert(changed);
        None
    }

    pub(super) fn note(&mut self, change: Change) {
        match change {
            Change::Pod(name) => drop(self.changed_pods.insert(name)),
            Change::All => {
                self.changed_policies.extend(self.kept.meaning_pods().cloned());
                self.changed_peers = true;
            }
        }
    }

    pub(super) fn is_due(&self) -> bool {
        let changed = self.changed_peers || !self.changed_policies.is_empty() || !self.changed_pods.is_empty();
        self.read && (self.first || changed)
    }

    pub(super) fn means_pods(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Computes a small part of the group; false when it is complete.
    pub(super) fn step(&mut self, known: &Known) -> bool {
        if let Some(name) = self.changed_policies.pop_first() {
            self.view_policy(&name, known);
            self.changed_peers = true;
        } else if std::mem::take(&mut self.changed_peers) {
            self.gather_peers();
            self.matched.clear();
            self.changed_pods = known.pods.keys().cloned().collect();
        } else if let Some(name) = self.changed_pods.pop_first() {
            self.match_pod(&name, known);
        } else {
            return false;
        }
        true
    }

    fn view_policy(&mut self, name: &Name, known: &Known) {
        let text = self.kept.read(name).map(|policy| policy_view(&policy, &known.namespaces)).unwrap_or_default();
        let peers: PolicyPeers = text.peers.into_iter().map(|(id, peer)| (id.into(), Arc::new(peer))).collect();
        let view = text.view.map(Told::new);
        let size = view.as_ref().map(|view| view.text().text().len());
        match view.filter(|_| self.kept.viewed(name, size.unwrap_or_default(), peers)) {
            Some(view) => tell(&mut self.said, view),
            None => {
                self.said.remove(&Kind::PolicyView.key(&name.0, &name.1));
            }
        }
        if self.kept.is_over(&name.0) {
            tell(&mut self.said, Told::new(more(&name.0)));
        } else {
            self.said.remove(&more_key(&name.0));
        }
    }

    fn gather_peers(&mut self) {
        self.peers.clear();
        for (namespace, id, selector) in self.kept.peers() {
            let new = || Peer { selector: Arc::clone(selector), namespace: namespace.to_owned() };
            let peer = self.peers.entry(Arc::clone(id)).or_insert_with(new);
            if selector.named {
                peer.selector = Arc::clone(selector);
            }
        }
    }

    fn match_pod(&mut self, name: &Name, known: &Known) {
        let Some(pod) = known.pods.get(name) else { return drop(self.matched.remove(name)) };
        let mut of_namespaces: BTreeMap<&str, usize> = BTreeMap::new();
        let mut is = Vec::new();
        for (id, peer) in self.peers.iter().filter(|(_, peer)| peer.selector.is(pod)) {
            let count = of_namespaces.entry(&peer.namespace).or_default();
            *count += 1;
            if *count <= PEERS_OF_A_POD {
                is.push(Arc::clone(id));
            }
        }
        if is.is_empty() {
            self.matched.remove(name);
        } else {
            self.matched.insert(name.clone(), is);
        }
    }

    /// Returns everything to send to nodes.
    pub(super) fn told(&mut self, known: &Known) -> Group {
        let found = self.matched.iter().filter_map(|(name, ids)| Some((known.pods.get(name)?, ids.as_slice())));
        let found: Vec<_> = found.collect();
        let named = |id: &str| self.peers.get(id).is_some_and(|peer| peer.selector.named);
        let mut gone: BTreeSet<ObjectKey> = self.said.keys().filter(|key| Kind::PolicyPeers.is(key)).cloned().collect();
        for view in peer_views(&self.namespace, found.into_iter(), named) {
            gone.remove(&view.digest.key);
            if is_news(&self.said, &view.digest) {
                tell(&mut self.said, Told::new(view));
            }
        }
        gone.iter().for_each(|key| drop(self.said.remove(key)));
        self.said.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }
}

fn is_news(said: &Group, view: &ObjectDigest) -> bool {
    said.get(&view.key).is_none_or(|said| said.digest != *view)
}

/// An unchanged view stays the same object.
fn tell(said: &mut Group, view: Arc<Told>) {
    if is_news(said, &view.digest) {
        said.insert(view.digest.key.clone(), view);
    }
}

#[cfg(test)]
mod tests;
