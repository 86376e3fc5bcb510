//! Volumes of CSI drivers: limits of nodes, capacity, and claims of ephemeral volumes.

use serde_json::{Value, json};

use super::{Claim, Decision, Site, cpu, in_vain, key, with};

const DRIVER: &str = "disks.example.com";

/// A cluster with two nodes, `a` and `b`, that are in the zone of their name.
fn site() -> Site {
    let mut site = Site::default();
    site.labelled("a", json!({"zone": "a"}), json!({}));
    site.labelled("b", json!({"zone": "b"}), json!({}));
    site
}

fn volume(site: &mut Site, claim: &str) {
    let volumes = &mut site.cluster.picture.volumes;
    let name = format!("pv-{claim}");
    volumes.volume(&name, &json!({"spec": {"csi": {"driver": DRIVER, "volumeHandle": claim}}}));
    let bound = json!({"spec": {"volumeName": name}, "status": {"phase": "Bound"}});
    volumes.claim(key(claim), Claim::read("u", "", &bound));
}

fn uses(claims: &[&str]) -> Value {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    with(cpu("1m"), "volumes", claims.iter().map(volume).collect())
}

fn limit(site: &mut Site, node: &str, count: Value) -> bool {
    let driver = json!({"name": DRIVER, "nodeID": node, "allocatable": {"count": count}});
    site.cluster.picture.volumes.limits.node(node, &json!({"spec": {"drivers": [driver]}}))
}

#[test]
fn node_has_no_more_volumes_than_its_driver_allows() {
    let mut site = site();
    ["one", "two", "three", "four"].iter().for_each(|claim| volume(&mut site, claim));
    site.there("there", "a", uses(&["one"]));
    assert!(limit(&mut site, "a", json!(2)) && !limit(&mut site, "a", json!(2)));
    assert!(limit(&mut site, "b", json!(0)));
    let full = "2 node(s) exceed max volume count";
    let message = site.places("p", uses(&["two", "three"])).unwrap_err();
    assert!(message.starts_with(&format!("0/2 nodes are available: {full}. ")), "{message}");
    site.cluster.pod_gone(&key("p"));
    assert_eq!(site.places("same", uses(&["one", "two"])).unwrap(), "a", "a volume counts once");
    site.cluster.pod_gone(&key("same"));
    // A volume that is still attached, though its pod has gone.
    let attachment = json!({"spec": {"nodeName": "a", "source": {"persistentVolumeName": "pv-four"}}});
    site.cluster.picture.volumes.limits.attachment("csi-4", &attachment);
    assert!(site.places("q", uses(&["two"])).unwrap_err().contains(full));
    assert!(site.cluster.picture.volumes.limits.attachment_gone("csi-4"));
    site.cluster.volumes_changed();
    assert_eq!(site.only().unwrap(), "a");
    assert!(limit(&mut site, "b", Value::Null), "no limit at all");
    assert_eq!(site.places("r", uses(&["three"])).unwrap(), "b");
}

#[test]
fn exclusive_claim_waits_for_the_pod_that_has_it() {
    let mut site = site();
    volume(&mut site, "data");
    let claim = json!({"spec": {"volumeName": "pv-data", "accessModes": ["ReadWriteOncePod"]},
        "status": {"phase": "Bound"}});
    site.there("there", "a", uses(&["data"]));
    assert!(site.places("shared", uses(&["data"])).is_ok(), "another mode");
    site.cluster.pod_gone(&key("shared"));
    site.cluster.picture.volumes.claim(key("data"), Claim::read("u", "", &claim));
    let used = "2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    let message = site.places("p", uses(&["data"])).unwrap_err();
    assert_eq!(message, format!("0/2 nodes are available: {used}. {}", in_vain(2, 0)));
    site.cluster.pod_gone(&key("there"));
    assert!(site.only().is_ok());
}

#[test]
fn volume_is_made_where_there_is_room_for_it() {
    let mut site = site();
    let volumes = &mut site.cluster.picture.volumes;
    volumes.class("fast", &json!({"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}));
    volumes.capacities.driver(DRIVER, &json!({"spec": {"storageCapacity": true}}));
    let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}});
    volumes.claim(key("data"), Claim::read("u", "", &claim));
    let capacity = |zone: &str, amount: &str| json!({"storageClassName": "fast", "capacity": amount, "nodeTopology": {"matchLabels": {"zone": zone}}});
    volumes.capacities.put(key("a"), &capacity("a", "1Gi"));
    let none = "0/2 nodes are available: 2 node(s) did not have enough free storage.";
    assert_eq!(site.places("p", uses(&["data"])).unwrap_err(), format!("{none} {}", in_vain(2, 0)));
    assert!(site.cluster.picture.volumes.capacities.put(key("b"), &capacity("b", "5Gi")));
    site.cluster.volumes_changed();
    let decisions = site.decide();
    assert!(matches!(&decisions[..], [Decision::Select { node, .. }] if node == "b"), "{decisions:?}");
}

#[test]
fn class_that_serves_no_node_is_told() {
    let mut site = site();
    let volumes = &mut site.cluster.picture.volumes;
    let class = json!({"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["c"]}]}]});
    volumes.class("far", &class);
    volumes.claim(key("data"), Claim::read("u", "", &json!({"spec": {"storageClassName": "far"}})));
    let none = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    assert_eq!(site.places("p", uses(&["data"])).unwrap_err(), format!("{none} {}", in_vain(2, 0)));
}

#[test]
fn ephemeral_volume_waits_for_a_claim_of_its_own() {
    let mut site = site();
    let ephemeral = || with(cpu("1m"), "volumes", json!([{"name": "scratch", "ephemeral": {}}]));
    let told = |why: &str| format!("0/2 nodes are available: {why}. {}", in_vain(2, 0));
    let waiting = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"web-scratch\"";
    assert_eq!(site.places("web", ephemeral()).unwrap_err(), told(waiting));
    let claim = |owner: &str, more: Value| {
        let mut claim = json!({"metadata": {"ownerReferences": [{"uid": owner, "controller": true}]},
            "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}});
        json_patch::merge(&mut claim, &more);
        Claim::read("u", "", &claim)
    };
    let mut then = |claim: Claim| {
        site.cluster.picture.volumes.claim(key("web-scratch"), claim);
        site.cluster.claim_changed(&key("web-scratch"));
        site.only()
    };
    let other = "PVC default/web-scratch was not created for pod default/web (pod is not owner)";
    assert_eq!(then(claim("other", json!({}))).unwrap_err(), told(other));
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let deleting = "persistentvolumeclaim \"web-scratch\" is being deleted";
    assert_eq!(then(claim("web", deleted)).unwrap_err(), told(deleting));
    let missing = "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    assert_eq!(then(claim("web", json!({}))).unwrap_err(), told(missing));
    site.cluster.picture.volumes.volume("pv", &json!({}));
    site.cluster.volumes_changed();
    assert!(site.only().is_ok());
}
