//! What an object of the cloud does to the store and to pods.

use edge_protocol::message::{Object, ObjectDigest, ToCloud, ToEdge};
use serde_json::{Value, json};

use super::super::bench::{Bench, pod};
use super::*;
use crate::link::{LinkEvent, LinkHandle};
use crate::net::policy::view::POLICY_VIEW;
use crate::net::services::view::SERVICE_VIEW;
use crate::net::site::view::SITE_VIEW;
use crate::store::Fact;
use crate::volume::csi_kept::{self, KeptVolume};

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey { kind: kind.to_owned(), namespace: "ns".to_owned(), name: name.to_owned() }
}

/// A node that has heard of change 11: the pod `u` of the name `web`, with this body.
fn heard(body: Value) -> (Bench, LinkHandle, Vec<Change>) {
    let mut bench = Bench::new();
    let link = LinkHandle::for_tests(&bench.node.cx.paths, &[]);
    bench.node.cx.link = Some(link.clone());
    let digest = ObjectDigest { key: key("Pod", "web"), uid: "u".to_owned(), digest: "d".to_owned() };
    let changes = link.hears(&ToEdge::Put { seq: 11, sync: false, object: Object { digest, body } });
    link.says();
    (bench, link, changes)
}

fn take(bench: &mut Bench, changes: &[Change]) -> Result<(), StoreError> {
    bench.node.take_link(LinkEvent::Changes { stream: "s".to_owned(), changes: changes.to_vec() })
}

/// The pod with another value in its metadata.
fn with(pod: &Pod, field: &str, value: Value) -> Pod {
    let mut body = serde_json::to_value(pod).unwrap();
    body["metadata"][field] = value;
    serde_json::from_value(body).unwrap()
}

#[test]
fn changes_are_acknowledged_after_a_synced_commit() {
    let (mut bench, link, changes) = heard(serde_json::to_value(pod("u", "web")).unwrap());
    bench.node.cx.store.refuse_writes(true);
    assert!(take(&mut bench, &changes).is_err());
    assert!(link.says().is_empty());
    assert!(bench.node.cx.pods.is_empty(), "nor has it an effect");

    bench.node.cx.store.refuse_writes(false);
    take(&mut bench, &changes).unwrap();
    assert_eq!(link.says(), [ToCloud::Ack { seq: 11 }]);
    assert!(bench.node.cx.store.is_synced(), "a power cut takes nothing back that was acknowledged");
    assert_eq!(bench.node.cx.store.fact(Fact::LastSequence).unwrap().as_deref(), Some("11"));
    assert!(bench.node.cx.pods.contains("u"));
}

#[test]
fn object_that_cannot_be_applied_is_refused_and_passed() {
    let (mut bench, link, changes) = heard(json!({"spec": 7}));
    take(&mut bench, &changes).unwrap();
    let said = link.says();
    let [ToCloud::Nack { object, reason }, ToCloud::Ack { seq: 11 }] = said.as_slice() else { panic!("{said:?}") };
    assert!(object.uid == "u" && reason.contains("not a v1 Pod"), "{reason}");
    assert!(bench.node.cx.pods.is_empty());
}

#[test]
fn successor_of_the_same_name_ends_the_pod_before_it() {
    let mut bench = Bench::new();
    for uid in ["a", "b", "b"] {
        bench.node.pod_wanted(pod(uid, "web"), None).unwrap();
    }
    let gone = ["a", "b"].map(|uid| bench.record(uid).deletion.as_ref().is_some_and(|it| it.object_gone));
    assert_eq!(gone, [true, false]);
}

#[test]
fn newer_object_gives_its_pod_a_turn() {
    let mut bench = Bench::new();
    bench.add("u");
    bench.take_dirty();
    let newer = with(&pod("u", "u"), "labels", json!({"tier": "edge"}));
    bench.node.pod_wanted(newer, None).unwrap();
    assert_eq!(bench.take_dirty(), ["u"]);
    assert!(bench.node.cx.pods.get("u").unwrap().pod.metadata.labels.is_some());

    let ending = with(&pod("u", "u"), "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let ending = with(&ending, "deletionGracePeriodSeconds", json!(7));
    bench.node.pod_wanted(ending, None).unwrap();
    let deletion = bench.record("u").deletion.as_ref().map(|deletion| (deletion.grace_s, deletion.object_gone));
    assert_eq!(deletion, Some((7, false)));
}

/// A PersistentVolume may name Secrets of any namespace.
#[test]
fn object_of_another_namespace_wakes_pods_with_csi_volumes() {
    let mut bench = Bench::new();
    for uid in ["plain", "csi"] {
        bench.add(uid);
    }
    let volume = KeptVolume { name: "data".to_owned(), folder: "pvc-1".to_owned(), ..KeptVolume::default() };
    csi_kept::save(&bench.node.cx.paths, "csi", &[volume]).unwrap();
    bench.node.plugins.volumes.load(&bench.node.cx.paths);
    bench.take_dirty();
    bench.node.dependency_changed("storage");
    assert_eq!(bench.take_dirty(), ["csi"]);
    bench.node.dependency_changed("ns");
    assert_eq!(bench.take_dirty().len(), 2);
}

#[test]
fn mirror_is_no_pod_of_its_own() {
    let mut bench = Bench::new();
    let mirror = with(&pod("m", "m"), "annotations", json!({ MIRROR: "static" }));
    bench.node.pod_wanted(mirror.clone(), None).unwrap();
    assert!(bench.node.cx.pods.is_empty());
    bench.node.cx.store.refuse_writes(true);
    assert!(bench.node.pod_wanted(mirror, None).is_err(), "its deletion cannot be reported");
}

#[test]
fn tombstone_ends_the_pod_of_its_uid_alone() {
    let mut bench = Bench::new();
    bench.add("u");
    bench.node.object_gone(&key("Pod", "u"), "another of this name").unwrap();
    assert_eq!(bench.record("u").deletion, None);
    bench.node.object_gone(&key("Pod", "u"), "u").unwrap();
    assert!(bench.record("u").deletion.as_ref().is_some_and(|deletion| deletion.object_gone));
}

#[test]
fn object_concerns_the_pods_of_its_namespace() {
    let mut bench = Bench::new();
    ["a", "b"].iter().for_each(|uid| bench.add(uid));
    bench.record_mut("b").namespace = "other".to_owned();
    bench.take_dirty();
    bench.node.dependency_changed("ns");
    assert_eq!(bench.take_dirty(), ["a"]);
    bench.node.dependency_changed("");
    assert_eq!(bench.take_dirty(), ["a", "b"], "a RuntimeClass has no namespace");
}

#[test]
fn deleted_object_gives_turns_only_if_pods_may_name_it() {
    let mut bench = Bench::new();
    bench.add("a");
    bench.take_dirty();
    for (kind, turns) in
        [("ConfigMap", 1), ("Secret", 1), (services::KIND, 0), (SERVICE_VIEW, 0), (SITE_VIEW, 0), (POLICY_VIEW, 0)]
    {
        bench.node.object_gone(&key(kind, "x"), "x").unwrap();
        assert_eq!(bench.take_dirty().len(), turns, "{kind}");
    }
}

#[test]
fn static_pod_waits_for_its_name_and_begins_when_it_is_stored() {
    let mut bench = Bench::new();
    bench.add("web");
    let manifest = || pod("s", "web");
    bench.node.begin_static(manifest()).unwrap();
    assert!(!bench.node.cx.pods.contains("s"), "its predecessor still ends");
    bench.node.cx.pods.remove("web");
    bench.node.cx.store.refuse_writes(true);
    assert!(bench.node.begin_static(manifest()).is_err() && !bench.node.cx.pods.contains("s"));
    bench.node.cx.store.refuse_writes(false);
    bench.node.begin_static(manifest()).unwrap();
    assert!(bench.node.cx.pods.contains("s") && bench.node.cx.store.is_synced());
    let (stored, _) = bench.node.cx.store.pods().unwrap();
    let [stored] = stored.as_slice() else { panic!("{} pods", stored.len()) };
    assert_eq!((stored.record.source, &stored.manifest["metadata"]["uid"]), (PodSource::Static, &json!("s")));
}
