//! Invariants of changes that are about to be committed.

use std::collections::{HashMap, HashSet};

use edge_protocol::edge::Change;
use edge_protocol::message::ObjectKey;
use edge_runtime::store::Store;

use crate::api::Api;
use crate::trace::trace;
use crate::twins::VERSION;

pub(super) fn show(change: &Change) {
    trace(|| match change {
        Change::Put { object, seq, sync } => {
            let name = format!("{} {}", object.digest.key.name, object.digest.uid);
            let poison = object.body["spec"]["containers"].is_string();
            let generation = &object.body["metadata"]["generation"];
            format!("device: put {seq}, sync {sync}, {name}, generation {generation}, poison {poison}")
        }
        other => format!("device: {other:?}"),
    });
}

/// The newest version of an object that the device has committed, by kind and uid: a Service and its endpoints share one.
pub(super) type Newest = HashMap<String, i64>;

pub(super) fn check(changes: &[Change], store: &Store, api: &Api, newest: &mut Newest, removed: &HashSet<String>) {
    let mut held: HashMap<ObjectKey, String> =
        store.held().expect("reads").into_iter().map(|o| (o.key, o.uid)).collect();
    let delete = |key: &ObjectKey, uid: &String, held: &mut HashMap<ObjectKey, String>| {
        // G12: only the API deletes pods. A ConfigMap may be removed for a moment, between the pods that name it.
        assert!(key.kind != "Pod" || api.deleted.contains(uid), "{key:?} {uid} is deleted by no one");
        if held.get(key) == Some(uid) {
            held.remove(key);
        }
    };
    for change in changes {
        show(change);
        match change {
            Change::Put { object, .. } => {
                let (key, uid) = (&object.digest.key, &object.digest.uid);
                // G3: for one uid nothing older is committed after something newer, whichever bridge sent it.
                let generation = object.body["metadata"]["generation"].as_i64();
                let annotation = &object.body["metadata"]["annotations"][VERSION];
                let version = object.body["data"]["version"].as_str().or(annotation.as_str());
                let version = version.and_then(|text| text.parse().ok());
                let version = generation.or(version).expect("every body has one");
                let known = newest.entry(format!("{} {uid}", key.kind)).or_default();
                assert!(version >= *known, "{key:?} {uid}: {version} after {known}");
                *known = version;
                assert!(!removed.contains(uid), "{key:?} {uid}: a deleted pod comes back");
                if let Some(old) = held.get(key) {
                    assert_eq!(old, uid, "{key:?}: replaced without a delete");
                }
                held.insert(key.clone(), uid.clone());
            }
            Change::Delete { key, uid, .. } => delete(key, uid, &mut held),
            Change::SyncComplete { absent, .. } => absent.iter().for_each(|o| delete(&o.key, &o.uid, &mut held)),
        }
    }
}
