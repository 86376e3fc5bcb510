//! A node with a store: what is durable, what a crash loses, and what must hold at every commit.

use crate::api::{Api, POISON};
use crate::rng::Rng;
use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::{ObjectDigest, ObjectKey, Position, Report};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) uid: String,
    pub(crate) digest: String,
    pub(crate) version: u64,
}

/// Survives a crash.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) objects: BTreeMap<ObjectKey, Stored>,
    pub(crate) position: Option<Position>,
    cluster: Option<String>,
    pub(crate) outbox: BTreeMap<u64, Report>,
    next_row: u64,
    status: u64,
    /// Newest status per pod uid, for the comparison at the end.
    pub(crate) reported: HashMap<String, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Edge {
    pub(crate) store: Store,
    pub(crate) session: Option<EdgeSession>,
    /// Received, not committed.
    pub(crate) inbox: VecDeque<Change>,
    /// Numbers committed on this connection.
    pub(crate) committed: HashSet<u64>,
    /// Every pod uid this node has removed since it exists.
    removed: HashSet<String>,
    newest: HashMap<String, u64>,
}

impl Edge {
    pub(crate) fn connect(&mut self, now: Duration) {
        let held = self.store.objects.iter().map(|(key, s)| ObjectDigest {
            key: key.clone(),
            uid: s.uid.clone(),
            digest: s.digest.clone(),
        });
        let mut facts = EdgeFacts::new("node", "boot");
        facts.held = held.collect();
        facts.position = self.store.position.clone();
        facts.cluster = self.store.cluster.clone();
        self.session = Some(EdgeSession::new(facts, now));
        self.inbox.clear();
        self.committed.clear();
    }

    pub(crate) fn lose_connection(&mut self) {
        self.session = None;
        self.inbox.clear();
    }

    pub(crate) fn drain(&mut self) {
        let Some(session) = &mut self.session else { return };
        while let Some(event) = session.poll_event() {
            match event {
                EdgeEvent::Welcome(welcome) => {
                    self.store.cluster = Some(welcome.cluster);
                    // Everything not acknowledged goes again.
                    offer(&self.store.outbox, session);
                }
                EdgeEvent::Change(change) => self.inbox.push_back(change),
                EdgeEvent::UpAcked(id) | EdgeEvent::UpRefused(id, _) => {
                    self.store.outbox.remove(&id);
                    offer(&self.store.outbox, session);
                }
                EdgeEvent::Token { .. } | EdgeEvent::Stream(_) => {}
            }
        }
    }

    /// One transaction over some of the inbox; `crash`: it is durable, but nobody hears of it.
    pub(crate) fn commit(&mut self, count: usize, crash: bool, api: &Api) {
        let Some(session) = &mut self.session else { return };
        let stream = session.stream().to_owned();
        let mut last = None;
        let mut refused = Vec::new();
        for change in self.inbox.drain(..count) {
            self.store.position = change.position(&stream);
            last = Some(change.seq());
            self.committed.insert(change.seq());
            match change {
                Change::Put { object, .. } if object.digest.key.name == POISON => {
                    self.store.objects.remove(&object.digest.key);
                    refused.push(object.digest);
                }
                Change::Put { object, .. } => {
                    let ObjectDigest { key, uid, digest } = object.digest;
                    let version = object.body["version"].as_u64().expect("every body has one");
                    let newest = self.newest.entry(uid.clone()).or_default();
                    assert!(version >= *newest, "{key:?} {uid}: version {version} after {newest}");
                    *newest = version;
                    assert!(!self.removed.contains(&uid), "{key:?} {uid}: a deleted pod has come back");
                    if let Some(old) = self.store.objects.get(&key) {
                        assert_eq!(old.uid, uid, "{key:?}: replaced without a delete");
                    }
                    self.store.objects.insert(key, Stored { uid, digest, version });
                }
                Change::Delete { key, uid, .. } => delete(&mut self.store, &mut self.removed, api, &key, &uid),
                Change::SyncComplete { absent, .. } => {
                    absent.iter().for_each(|o| delete(&mut self.store, &mut self.removed, api, &o.key, &o.uid));
                }
            }
        }
        if crash {
            return;
        }
        for object in refused {
            session.nack(&object.key, &object.uid, "poison");
        }
        if let Some(seq) = last {
            session.committed(seq);
        }
    }

    /// A pod's status changes; the newest replaces what was not sent.
    pub(crate) fn report(&mut self, rng: &mut Rng) {
        let pods: Vec<_> = self.store.objects.iter().filter(|(key, _)| key.kind == "Pod").collect();
        if pods.is_empty() {
            return;
        }
        let (key, pod) = pods[rng.below(pods.len())];
        let (key, uid) = (key.clone(), pod.uid.clone());
        self.store.status += 1;
        let same = |r: &Report| matches!(r, Report::PodStatus { uid: u, .. } if *u == uid);
        self.store.outbox.retain(|_, r| !same(r));
        self.store.next_row += 1;
        let status = serde_json::json!({ "version": self.store.status });
        self.store.reported.insert(uid.clone(), self.store.status);
        let report = Report::PodStatus { namespace: key.namespace, name: key.name, uid, status };
        self.store.outbox.insert(self.store.next_row, report);
        if let Some(session) = &mut self.session {
            offer(&self.store.outbox, session);
        }
    }
}

fn offer(outbox: &BTreeMap<u64, Report>, session: &mut EdgeSession) {
    if !session.is_welcome() {
        return;
    }
    for (id, report) in outbox {
        if session.up(*id, report.clone()).is_err() {
            break;
        }
    }
}

fn delete(store: &mut Store, removed: &mut HashSet<String>, api: &Api, key: &ObjectKey, uid: &str) {
    // Deletion safety: whatever happened on the way, only the API deletes.
    let allowed = api.deleted.contains(uid) || api.withdrawn.contains(uid);
    assert!(allowed, "{key:?} {uid} was deleted by no one");
    if key.kind == "Pod" {
        removed.insert(uid.to_owned());
    }
    if store.objects.get(key).is_some_and(|s| s.uid == uid) {
        store.objects.remove(key);
    }
}
