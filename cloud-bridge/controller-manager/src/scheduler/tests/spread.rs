//! Topology spread constraints.

use serde_json::{Value, json};

use super::{Site, cpu, in_vain, with};

fn zones(site: &mut Site, nodes: &[(&str, &str)]) {
    for (name, zone) in nodes {
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "disk": name});
        site.labelled(name, labels, json!({"/status/allocatable/pods": "30"}));
    }
}

fn web(site: &mut Site, name: &str, spec: Value) {
    site.object(name, json!({"labels": {"app": "web", "version": "1"}}), json!({"spec": spec}));
}

fn constraint(more: Value) -> Value {
    let mut one = json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        one = with(one, field, value.clone());
    }
    json!([one])
}

fn spread(more: Value) -> Value {
    with(cpu("10m"), "topologySpreadConstraints", constraint(more))
}

#[test]
fn pods_are_spread_over_zones() {
    let mut site = Site::default();
    zones(&mut site, &[("a1", "a"), ("a2", "a"), ("b1", "b")]);
    let mut counts = std::collections::BTreeMap::new();
    for at in 0..6 {
        web(&mut site, &format!("p{at}"), spread(json!({})));
        *counts.entry(site.only().unwrap()[..1].to_owned()).or_insert(0) += 1;
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 3), ("b".to_owned(), 3)]);
}

#[test]
fn where_the_skew_would_be_too_large_no_pod_goes() {
    let mut site = Site::default();
    zones(&mut site, &[("a1", "a"), ("b1", "b")]);
    site.labelled("c1", json!({"disk": "c1"}), json!({}));
    web(&mut site, "there", with(cpu("10m"), "nodeName", "a1".into()));
    // Zone b is full.
    site.there("full", "b1", cpu("2"));
    web(&mut site, "p", spread(json!({})));
    let text = "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints, \
                1 node(s) didn't match pod topology spread constraints (missing required label).";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(3, 2))));
    // A pod that is being deleted no longer counts.
    site.object(
        "there",
        json!({"labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        json!({"spec": with(cpu("10m"), "nodeName", "a1".into())}),
    );
    assert_eq!(site.only(), Ok("a1".to_owned()));
}

#[test]
fn with_too_few_domains_the_emptiest_counts_as_empty() {
    let mut site = Site::default();
    zones(&mut site, &[("a1", "a"), ("b1", "b")]);
    for (name, node) in [("p", "a1"), ("q", "b1")] {
        web(&mut site, name, with(cpu("10m"), "nodeName", node.into()));
    }
    web(&mut site, "r", spread(json!({"minDomains": 3})));
    let text = "0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints.";
    assert_eq!(site.only(), Err(format!("{text} {}", in_vain(2, 2))));
    zones(&mut site, &[("c1", "c")]);
    assert_eq!(site.only(), Ok("c1".to_owned()));
}

#[test]
fn policies_say_which_nodes_count() {
    // Zone b is not for this pod: by its selector, by a taint.
    let selected = |more: Value| with(spread(more), "nodeSelector", json!({"disk": "a1"}));
    let tainted = |site: &mut Site| {
        let labels = json!({"topology.kubernetes.io/zone": "b"});
        site.labelled("b1", labels, json!({"/spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}));
    };
    let cases = [
        (selected(json!({})), false, true),
        (selected(json!({"nodeAffinityPolicy": "Ignore"})), false, false),
        (spread(json!({})), true, false),
        (spread(json!({"nodeTaintsPolicy": "Honor"})), true, true),
    ];
    for (spec, taint, fits) in cases {
        let mut site = Site::default();
        zones(&mut site, &[("a1", "a"), ("b1", "b")]);
        if taint {
            tainted(&mut site);
        }
        web(&mut site, "there", with(cpu("10m"), "nodeName", "a1".into()));
        web(&mut site, "p", spec.clone());
        assert_eq!(site.only().is_ok(), fits, "{spec}");
    }
}

#[test]
fn label_keys_tell_one_version_from_another() {
    for (keys, fits) in [(json!([]), false), (json!(["version", "not-there"]), true)] {
        let mut site = Site::default();
        zones(&mut site, &[("a1", "a"), ("b1", "b")]);
        site.there("full", "b1", cpu("2"));
        let old = json!({"labels": {"app": "web", "version": "0"}});
        site.object("old", old, json!({"spec": with(cpu("10m"), "nodeName", "a1".into())}));
        web(&mut site, "p", spread(json!({"matchLabelKeys": keys})));
        assert_eq!(site.only().is_ok(), fits, "{keys}");
    }
}

#[test]
fn what_is_only_better_keeps_no_pod_waiting() {
    let mut site = Site::default();
    zones(&mut site, &[("a1", "a"), ("b1", "b")]);
    web(&mut site, "there", with(cpu("10m"), "nodeName", "a1".into()));
    site.there("load", "b1", cpu("1"));
    let soft = || spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    web(&mut site, "p", soft());
    assert_eq!(site.only(), Ok("b1".to_owned()), "though more is taken there");
    site.there("full", "b1", cpu("990m"));
    web(&mut site, "q", soft());
    assert_eq!(site.only(), Ok("a1".to_owned()));
}

#[test]
fn pods_of_a_controller_are_spread_without_saying_so() {
    let mut site = Site::default();
    zones(&mut site, &[("a1", "a"), ("b1", "b")]);
    let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w",
        "controller": true}]});
    site.object("there", owned.clone(), json!({"spec": with(cpu("10m"), "nodeName", "a1".into())}));
    site.there("load", "b1", cpu("500m"));
    site.object("p", owned, json!({"spec": cpu("10m")}));
    assert_eq!(site.only(), Ok("b1".to_owned()));
}
