//! The NetworkPolicies of a namespace, or of all, as nodes see them, read in the bridge's own name: no node may read
//! policies, nor pods of others. One watch of policies however many nodes want to know, and while one of them means pods
//! by their labels, the one of all [`Peers`].

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use edge_protocol::message::ObjectKey;
use futures::StreamExt;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::object::{News, What, watch_failure};
use super::peers::{Change, Following, Known, Name, Peers};
use crate::bridge::pod_references::{POLICY_PEERS, POLICY_VIEW};
use crate::bridge::policy_view::{PeerSelector, peer_views, policy_view};
use crate::bridge::world::{Group, Told};
use apimachinery::pace::in_slices;
use apimachinery::well_known::PAGE;

/// Between two times that nodes are told of changes: what comes meanwhile goes together.
const PAUSE: Duration = Duration::from_millis(200);
/// As many times as long as it took to find out what to tell: many policies take this share of the bridge at most.
const SHARE: u32 = 20;

/// Follows until aborted.
pub(super) async fn watch_policy_views(
    client: kube::Client,
    peers: Peers,
    key: ObjectKey,
    watch: u64,
    news: mpsc::Sender<News>,
) {
    let resource = ApiResource::erase::<NetworkPolicy>(&());
    let api: Api<DynamicObject> = match key.namespace.as_str() {
        "" => Api::all_with(client, &resource),
        namespace => Api::namespaced_with(client, namespace, &resource),
    };
    let mut policies = pin!(in_slices(watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff()));
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
                    // What nodes were told holds on. Without the right to read them nodes have none.
                    let what = match watch_failure(&error) {
                        What::Refused if group.first => {
                            log::error!("nodes hold to no NetworkPolicy: the bridge may not read any (see deploy/rbac.yaml)");
                            What::Group(Group::new())
                        }
                        What::Refused => continue,
                        other => other,
                    };
                    if news.send(News { key: key.clone(), watch, what }).await.is_err() {
                        return;
                    }
                }
                continue;
            }
            change = change => {
                group.note(change);
                continue;
            }
            () = sleep_until(next), if due => {}
        }
        let begun = Instant::now();
        let told = match &following {
            Some(following) => following.with(|known| group.now(known)),
            None => group.now(&Known::default()),
        };
        next = Instant::now() + PAUSE.max(begun.elapsed() * SHARE);
        if group.means_pods() && following.is_none() {
            // Told when they are known.
            following = Some(peers.follow());
            group.note(Change::All);
            continue;
        }
        if !group.means_pods() {
            following = None;
        }
        if news.send(News { key: key.clone(), watch, what: What::Group(told) }).await.is_err() {
            return;
        }
        group.first = false;
    }
}

/// What nodes are told of a namespace, or of all.
struct Views {
    namespace: String,
    policies: BTreeMap<Name, DynamicObject>,
    listing: Option<BTreeMap<Name, DynamicObject>>,
    read: bool,
    /// Policies or namespaces.
    changed: bool,
    changed_pods: BTreeSet<Name>,
    peers: BTreeMap<String, PeerSelector>,
    /// Which peers a pod is; none that are none.
    matched: BTreeMap<Name, Vec<String>>,
    said: Group,
    /// Nothing was told yet: also that there is none is news.
    first: bool,
}

impl Views {
    fn new(namespace: &str) -> Self {
        let (policies, changed_pods, peers, matched, said) = Default::default();
        Self {
            namespace: namespace.to_owned(),
            policies,
            listing: None,
            read: false,
            changed: false,
            changed_pods,
            peers,
            matched,
            said,
            first: true,
        }
    }

    /// An error, if that is what came.
    fn take(&mut self, event: Result<Event<DynamicObject>, watcher::Error>) -> Option<watcher::Error> {
        let name = |object: &DynamicObject| {
            let metadata = &object.metadata;
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
        };
        match event {
            Ok(Event::Init) => self.listing = Some(BTreeMap::new()),
            Ok(Event::InitApply(object)) => {
                self.listing.get_or_insert_default().insert(name(&object), slim(object));
            }
            Ok(Event::InitDone) => {
                self.policies = self.listing.take().unwrap_or_default();
                (self.read, self.changed) = (true, true);
            }
            Ok(Event::Apply(object)) => {
                self.policies.insert(name(&object), slim(object));
                self.changed = true;
            }
            Ok(Event::Delete(object)) => {
                self.policies.remove(&name(&object));
                self.changed = true;
            }
            Err(error) => return Some(error),
        }
        None
    }

    fn note(&mut self, change: Change) {
        match change {
            Change::Pod(name) => drop(self.changed_pods.insert(name)),
            Change::All => self.changed = true,
        }
    }

    fn is_due(&self) -> bool {
        self.read && (self.first || self.changed || !self.changed_pods.is_empty())
    }

    fn means_pods(&self) -> bool {
        !self.peers.is_empty()
    }

    fn now(&mut self, known: &Known) -> Group {
        let pods = std::mem::take(&mut self.changed_pods);
        if std::mem::take(&mut self.changed) {
            self.say_policies(known);
            self.matched.clear();
            known.pods.keys().for_each(|name| self.match_pod(name, known));
        } else {
            pods.iter().for_each(|name| self.match_pod(name, known));
        }
        self.say_peers(known);
        self.said.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }

    fn say_policies(&mut self, known: &Known) {
        self.peers.clear();
        let mut views = Vec::new();
        for policy in self.policies.values() {
            let text = policy_view(policy, &known.namespaces);
            views.extend(text.view);
            for (id, peer) in text.peers {
                let named = peer.named;
                self.peers.entry(id).or_insert(peer).named |= named;
            }
        }
        self.say(POLICY_VIEW, views);
    }

    fn match_pod(&mut self, name: &Name, known: &Known) {
        let Some(pod) = known.pods.get(name) else { return drop(self.matched.remove(name)) };
        let is: Vec<String> = self.peers.iter().filter(|(_, peer)| peer.is(pod)).map(|(id, _)| id.clone()).collect();
        if is.is_empty() {
            self.matched.remove(name);
        } else {
            self.matched.insert(name.clone(), is);
        }
    }

    fn say_peers(&mut self, known: &Known) {
        let found = self.matched.iter().filter_map(|(name, ids)| Some((known.pods.get(name)?, ids.as_slice())));
        let found: Vec<_> = found.collect();
        let named = |id: &str| self.peers.get(id).is_some_and(|peer| peer.named);
        let views = peer_views(&self.namespace, found.into_iter(), named);
        self.say(POLICY_PEERS, views);
    }

    /// From now on these are all of the kind.
    fn say(&mut self, kind: &str, views: Vec<edge_protocol::message::Object>) {
        let keys: BTreeSet<ObjectKey> = views.iter().map(|view| view.digest.key.clone()).collect();
        self.said.retain(|key, _| key.kind != kind || keys.contains(key));
        for view in views {
            if self.said.get(&view.digest.key).is_none_or(|said| said.digest != view.digest) {
                self.said.insert(view.digest.key.clone(), Told::new(view));
            }
        }
    }
}

/// Without what nobody here reads.
fn slim(mut object: DynamicObject) -> DynamicObject {
    (object.metadata.managed_fields, object.metadata.annotations) = (None, None);
    object
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::bridge::policy_view::PeerPod;

    fn policy(name: &str, ingress: Value) -> DynamicObject {
        let metadata = json!({"name": name, "namespace": "shop", "uid": format!("u-{name}")});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"podSelector": {}, "ingress": ingress}})).unwrap()
    }

    fn pod(name: &str, app: &str) -> (Name, PeerPod) {
        let pod = json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
            "spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": "10.86.0.2"}]}});
        (("shop".to_owned(), name.to_owned()), PeerPod::of(&serde_json::from_value(pod).unwrap()).unwrap())
    }

    fn kinds(group: &Group) -> Vec<(&str, &str)> {
        group.keys().map(|key| (key.kind.as_str(), key.name.as_str())).collect()
    }

    fn read(policies: Vec<DynamicObject>) -> Views {
        let mut views = Views::new("shop");
        assert!(views.take(Ok(Event::Init)).is_none() && !views.is_due());
        policies.into_iter().for_each(|policy| drop(views.take(Ok(Event::InitApply(policy)))));
        assert!(!views.is_due(), "half a list is none");
        views.take(Ok(Event::InitDone));
        assert!(views.is_due());
        views
    }

    /// Nobody's pods are watched for policies that mean none.
    #[test]
    fn s11_pods_are_asked_for_while_a_policy_means_some() {
        let mut views = read(Vec::new());
        assert!(views.now(&Known::default()).is_empty() && !views.means_pods());
        views.take(Ok(Event::Apply(policy("deny", json!([])))));
        views.take(Ok(Event::Apply(policy("range", json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])))));
        assert_eq!(kinds(&views.now(&Known::default())).len(), 2);
        assert!(!views.means_pods());
        let peers = policy("peers", json!([{"from": [{"podSelector": {}}]}]));
        views.take(Ok(Event::Apply(peers.clone())));
        views.now(&Known::default());
        assert!(views.means_pods());
        views.take(Ok(Event::Delete(peers)));
        assert_eq!(views.now(&Known::default()).len(), 2);
        assert!(!views.means_pods());
    }

    #[test]
    fn a_pod_that_changes_changes_no_policy() {
        let mut known = Known::default();
        known.pods.extend([pod("a", "db"), pod("b", "web")]);
        let peer = json!([{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]);
        let mut views = read(vec![policy("p", peer)]);
        let first = views.now(&known);
        assert_eq!(kinds(&first), [("PolicyPeers", "0-of-1"), ("PolicyView", "p")]);
        let told = |group: &Group| group.values().next().unwrap().body["pods"].as_array().map(Vec::len);
        assert_eq!(told(&first), Some(1));
        known.pods.extend([pod("b", "db")]);
        views.note(Change::Pod(("shop".into(), "b".into())));
        let second = views.now(&known);
        assert_eq!(told(&second), Some(2));
        let same = |key: &ObjectKey| first[key].digest == second[key].digest;
        assert_eq!(first.keys().map(same).collect::<Vec<_>>(), [false, true]);
        known.pods.clear();
        views.note(Change::All);
        assert_eq!(kinds(&views.now(&known)), [("PolicyView", "p")]);
    }
}
