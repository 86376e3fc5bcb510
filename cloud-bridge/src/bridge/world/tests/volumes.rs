//! What nodes receive because of the volumes of their pods.

use std::collections::BTreeSet;

use super::*;
use crate::bridge::told::kinds::Kind;

const CSI: Wants =
    Wants { services: false, routes: false, policies: false, devices: false, rules: false, api: false, csi: true };

fn claim(secret: &str) -> Object {
    let mut claim = object("PersistentVolumeClaim", "data", "c1");
    let csi = json!({"driver": "d", "nodeStageSecretRef": {"namespace": "vault", "name": secret}});
    claim.body = json!({"volume": {"spec": {"claimRef": {"namespace": "ns", "name": "data"}, "csi": csi}}});
    claim
}

fn in_namespace(namespace: &str, kind: &str, name: &str, uid: &str) -> Object {
    let mut object = object(kind, name, uid);
    object.digest.key.namespace = namespace.into();
    object
}

fn secret(name: &str) -> Object {
    in_namespace("vault", "Secret", name, &format!("{name}1"))
}

fn driver() -> Object {
    in_namespace("", "CSIDriver", "d", "d1")
}

fn with_claim(node: &str, name: &str) -> BoundPod {
    BoundPod { refs: [key("PersistentVolumeClaim", "data")].into(), ..pod(node, name, &[]) }
}

#[test]
fn pod_waits_for_what_its_volume_names() {
    let mut world = world(&["a"]);
    assert!(world.wants("a", CSI, None).is_empty(), "no pod, no watch");
    assert!(world.any_takes_csi() && world.takes_csi("a"));
    assert_eq!(words(&world.pod_applied(with_claim("a", "p"))), ["watch data for a"]);
    assert_eq!(words(&world.object_present(claim("s"))), ["set a data c1", "watch d for a", "watch s for a"]);
    assert_eq!(words(&world.object_present(driver())), ["set a d d1"]);
    assert_eq!(words(&world.object_present(secret("s"))), ["set a s s1", "set a p uid-p"]);
    // The claim is told again when an attachment has changed.
    assert_eq!(words(&world.object_present(claim("s"))), ["set a data c1"]);
    let told = words(&world.object_present(claim("t")));
    assert_eq!(told, ["set a data c1", "watch t for a", "withdraw a s s1", "unwatch s"]);
    assert!(world.uses("a", &Kind::Secret.key("vault", "t")) && !world.uses("a", &Kind::Secret.key("vault", "s")));
    let told = words(&world.pod_deleted("a", &key("Pod", "p"), "uid-p"));
    let claim = ["remove a p uid-p", "withdraw a data c1", "unwatch data"];
    assert_eq!(told, [&claim[..], &["withdraw a d d1", "unwatch d", "unwatch t"]].concat());
}

#[test]
fn node_without_csi_gets_claims_alone() {
    let mut world = world(&["a"]);
    let inline = Kind::CsiDriver.key("", "inline");
    let mut pod = with_claim("a", "p");
    pod.refs.insert(inline.clone());
    assert_eq!(words(&world.pod_applied(pod.clone())), ["watch data for a"]);
    assert_eq!(words(&world.object_present(claim("s"))), ["set a data c1", "set a p uid-p"]);
    assert!(!world.any_takes_csi() && !world.uses("a", &inline));
    // It is configured later, and no longer.
    let told = words(&world.wants("a", CSI, None));
    assert_eq!(told, ["watch d for a", "watch inline for a", "watch s for a"]);
    assert!(world.wants("a", CSI, None).is_empty(), "it says so with each connection");
    assert!(world.pod_applied(pod).iter().all(|effect| matches!(effect, Effect::Set { .. })));
    let told = words(&world.wants("a", Wants::default(), None));
    assert_eq!(told[..3], ["unwatch d", "unwatch inline", "unwatch s"]);
    let _ = world.wants("a", CSI, None);
    assert_eq!(words(&world.drop_node("a")), ["unwatch data", "unwatch d", "unwatch inline", "unwatch s"]);
    assert!(!world.any_takes_csi());
}

#[test]
fn a_list_waits_for_what_volumes_name() {
    let mut world = World::default();
    let round = hello(&mut world, "a");
    let _ = world.wants("a", CSI, None);
    assert_eq!(words(&world.seed("a", round, vec![with_claim("a", "p")], None)), ["watch data for a"]);
    assert_eq!(words(&world.object_present(claim("s"))), ["set a data c1", "watch d for a", "watch s for a"]);
    assert!(world.object_absent(&Kind::CsiDriver.key("", "d")).is_empty());
    assert_eq!(words(&world.object_present(secret("s"))), ["set a s s1", "set a p uid-p", "listed a 1"]);
}

/// A node gets the claim and the Secret of its volume only after the API has allowed it in the name of that node.
#[test]
fn g27_secret_of_a_volume_is_for_nodes_that_may_read_it() {
    let (data, stage) = (key("PersistentVolumeClaim", "data"), Kind::Secret.key("vault", "s"));
    let mut world = world(&["a", "evil"]);
    let _ = (world.wants("a", CSI, None), world.wants("evil", CSI, None));
    let _ = world.pod_applied(with_claim("a", "p"));
    let _ = world.object_present(claim("s"));
    let _ = world.object_present(secret("s"));
    assert_eq!(words(&world.pod_applied(with_claim("evil", "q"))), ["admit data for evil"]);
    assert_eq!(words(&world.not_admitted("evil", &data).0), ["set evil q uid-q"]);
    assert!(!world.uses("evil", &stage), "what the volume of an unread claim names gives nothing");
    assert!(words(&world.object_present(claim("s"))).iter().all(|word| !word.contains("evil")));
    assert_eq!(words(&world.admitted("evil", &data)), ["set evil data c1", "admit s for evil"]);
    assert!(world.not_admitted("evil", &stage).1);
    assert!(words(&world.object_present(secret("s"))).iter().all(|word| !word.contains("evil")));
    assert_eq!(words(&world.admitted("evil", &stage)), ["set evil s s1"]);
}

#[test]
fn g17_pods_make_the_bridge_watch_few_drivers() {
    let mut world = world(&["a"]);
    let _ = world.wants("a", CSI, None);
    let drivers = |from: usize| -> BTreeSet<ObjectKey> {
        (from..from + 400).map(|at| Kind::CsiDriver.key("", format!("d{at}"))).collect()
    };
    let watched = |effects: &[Effect]| words(effects).iter().filter(|word| word.starts_with("watch")).count();
    let told = world.pod_applied(BoundPod { refs: drivers(0), ..pod("a", "p", &[]) });
    assert_eq!(watched(&told), 256);
    let told = world.pod_applied(BoundPod { refs: drivers(400), ..pod("a", "q", &[]) });
    assert_eq!(watched(&told), 0);
    assert!(words(&told).contains(&"set a q uid-q".to_owned()), "its pod does not wait for them");
    assert_eq!(words(&world.drop_node("a")).len(), 256);
}
