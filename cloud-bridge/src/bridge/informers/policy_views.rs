//! The NetworkPolicies of a namespace, or of all, as nodes see them. The bridge reads them in its own name, since nodes
//! may not read policies or other nodes' pods. There is one watch of policies for all nodes and, while a policy selects
//! pods by labels, the one of all [`Peers`].

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::pace::{Pace, in_slices};
use apimachinery::well_known::PAGE;
use edge_protocol::message::{ObjectDigest, ObjectKey};
use futures::{Stream, StreamExt};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::{Instant, sleep_until};

use super::kept_policies::{Kept, PolicyPeers, more, more_key};
use super::news::{Subscription, What, watch_failure};
use super::peers::{Change, Following, Known, Peers};
use crate::bridge::name::Name;
use crate::bridge::policy_view::{PeerSelector, peer_views, policy_view};
use crate::bridge::told::kinds::Kind;
use crate::bridge::world::{Group, Told};

/// Minimum interval between updates to nodes: changes in between are sent together.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause after computing an update, as a multiple of its time: many policies take at most this share of the CPU.
const SHARE: u32 = 20;
/// Longest pause, however long an update took.
const REST_MAX: Duration = Duration::from_secs(60);
/// Interval at which all policies are read again because some had no room.
const AGAIN: Duration = Duration::from_secs(30);
/// Maximum number of peers in a namespace's policies that a pod may belong to. Nodes ignore further ones.
const PEERS_OF_A_POD: usize = 32;

type Seen = Result<Event<DynamicObject>, watcher::Error>;

fn read(api: &Api<DynamicObject>) -> Pin<Box<dyn Stream<Item = Seen> + Send>> {
    in_slices(watcher(api.clone(), watcher::Config::default().page_size(PAGE)).default_backoff()).boxed()
}

/// Follows until aborted.
pub(super) async fn watch_policy_views(client: kube::Client, peers: Peers, to: Subscription) {
    let key = &to.key;
    let resource = ApiResource::erase::<NetworkPolicy>(&());
    let api: Api<DynamicObject> = match key.namespace.as_str() {
        "" => Api::all_with(client, &resource),
        namespace => Api::namespaced_with(client, namespace, &resource),
    };
    let mut policies = read(&api);
    let mut again = Instant::now() + AGAIN;
    let mut group = Views::new(&key.namespace);
    let mut following: Option<Following> = None;
    let mut next = Instant::now();
    loop {
        let due = group.is_due() && following.as_ref().is_none_or(Following::is_ready);
        let change = async {
            match &mut following {
                Some(following) => following.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(event) = policies.next() => {
                if let Some(error) = group.take(event) {
                    log::warn!("watching the NetworkPolicies of namespace {:?}: {error}", key.namespace);
                    // Nodes keep what they received. Without the right to read policies they get none.
                    let what = match watch_failure(&error) {
                        What::Refused if group.first => {
                            log::error!("nodes hold to no NetworkPolicy: the bridge may not read any (see deploy/rbac.yaml)");
                            What::Group(Group::new())
                        }
                        What::Refused => continue,
                        other => other,
                    };
                    if to.tell(what).await.is_none() {
                        return;
                    }
                }
                continue;
            }
            change = change => {
                group.note(change);
                continue;
            }
            () = sleep_until(again), if group.wants_reading => {
                group.wants_reading = false;
                policies = read(&api);
                again = Instant::now() + AGAIN;
                continue;
            }
            () = sleep_until(next), if due => {}
        }
        let begun = Instant::now();
        let mut pace = Pace::default();
        while know(following.as_ref(), |known| group.step(known)) {
            pace.look().await;
        }
        let told = know(following.as_ref(), |known| group.told(known));
        let took = begun.elapsed();
        if group.means_pods() && following.is_none() {
            // Answered when they are known; the first time at once, because pods wait for it.
            following = Some(peers.follow());
            group.note(Change::All);
            next = Instant::now() + rest(took, group.first).min(REST_MAX);
            continue;
        }
        next = Instant::now() + rest(took, false).min(REST_MAX);
        if !group.means_pods() {
            following = None;
        }
        if to.tell(What::Group(told)).await.is_none() {
            return;
        }
        group.first = false;
    }
}

/// Pause after an update that took this time, or after what is computed before the first one.
fn rest(took: Duration, before_first: bool) -> Duration {
    let share = took * SHARE;
    if before_first { share } else { share.max(PAUSE) }
}

/// Reads the present state of pods and namespaces.
fn know<T>(following: Option<&Following>, look: impl FnOnce(&Known) -> T) -> T {
    match following {
        Some(following) => following.with(look),
        None => look(&Known::default()),
    }
}

/// The views of a namespace, or of all.
struct Views {
    namespace: String,
    kept: Kept,
    listing: Option<Kept>,
    read: bool,
    /// Whether some policies had no room, and there may be some now.
    wants_reading: bool,
    changed_policies: BTreeSet<Name>,
    changed_peers: bool,
    changed_pods: BTreeSet<Name>,
    peers: BTreeMap<Arc<str>, Peer>,
    /// The peers that each pod belongs to; without pods that belong to none.
    matched: BTreeMap<Name, Vec<Arc<str>>>,
    said: Group,
    /// Whether nothing was sent yet: an empty group must be sent too.
    first: bool,
}

struct Peer {
    selector: Arc<PeerSelector>,
    /// The namespace whose policies use this peer; the first of several.
    namespace: String,
}

impl Views {
    fn new(namespace: &str) -> Self {
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
    fn take(&mut self, event: Seen) -> Option<watcher::Error> {
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

    fn note(&mut self, change: Change) {
        match change {
            Change::Pod(name) => drop(self.changed_pods.insert(name)),
            Change::All => {
                self.changed_policies.extend(self.kept.meaning_pods().cloned());
                self.changed_peers = true;
            }
        }
    }

    fn is_due(&self) -> bool {
        let changed = self.changed_peers || !self.changed_policies.is_empty() || !self.changed_pods.is_empty();
        self.read && (self.first || changed)
    }

    fn means_pods(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Computes a small part of the group; false when it is complete.
    fn step(&mut self, known: &Known) -> bool {
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
    fn told(&mut self, known: &Known) -> Group {
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
