//! Views of policies that change.

use serde_json::{Value, json};

use super::*;
use crate::bridge::peer_pod::PeerPod;

fn policy(name: &str, ingress: Value) -> DynamicObject {
    let metadata = json!({"name": name, "namespace": "shop", "uid": format!("u-{name}")});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"podSelector": {}, "ingress": ingress}})).unwrap()
}

fn pod(name: &str, app: &str) -> (Name, PeerPod) {
    let pod = json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": app}},
        "spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": "10.86.0.2"}]}});
    (("shop".to_owned(), name.to_owned()), PeerPod::of(&serde_json::from_value(pod).unwrap()).unwrap())
}

fn now(views: &mut Views, known: &Known) -> Group {
    while views.step(known) {}
    views.told(known)
}

fn body(told: &Told) -> Value {
    serde_json::from_str(told.text().text()).unwrap()
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

/// Without policies that select pods, no pods are watched.
#[test]
fn s11_pods_are_asked_for_while_a_policy_means_some() {
    let mut views = read(Vec::new());
    assert!(now(&mut views, &Known::default()).is_empty() && !views.means_pods());
    views.take(Ok(Event::Apply(policy("deny", json!([])))));
    views.take(Ok(Event::Apply(policy("range", json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}])))));
    assert_eq!(kinds(&now(&mut views, &Known::default())).len(), 2);
    assert!(!views.means_pods());
    let peers = policy("peers", json!([{"from": [{"podSelector": {}}]}]));
    views.take(Ok(Event::Apply(peers.clone())));
    now(&mut views, &Known::default());
    assert!(views.means_pods());
    views.take(Ok(Event::Delete(peers)));
    assert_eq!(now(&mut views, &Known::default()).len(), 2);
    assert!(!views.means_pods());
}

#[test]
fn a_pod_that_changes_changes_no_policy() {
    let mut known = Known::default();
    known.pods.extend([pod("a", "db"), pod("b", "web")]);
    let peer = json!([{"from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]);
    let mut views = read(vec![policy("p", peer)]);
    let first = now(&mut views, &known);
    assert_eq!(kinds(&first), [("PolicyPeers", "0-of-1"), ("PolicyView", "p")]);
    let told = |group: &Group| body(group.values().next().unwrap())["pods"].as_array().map(Vec::len);
    assert_eq!(told(&first), Some(1));
    known.pods.extend([pod("b", "db")]);
    views.note(Change::Pod(("shop".into(), "b".into())));
    let second = now(&mut views, &known);
    assert_eq!(told(&second), Some(2));
    let same = |key: &ObjectKey| first[key].digest == second[key].digest;
    assert_eq!(first.keys().map(same).collect::<Vec<_>>(), [false, true]);
    known.pods.clear();
    views.note(Change::All);
    assert_eq!(kinds(&now(&mut views, &known)), [("PolicyView", "p")]);
}

#[test]
fn namespaces_that_change_change_what_policies_mean() {
    let mut known = Known::default();
    let teams = |team: &str| BTreeMap::from([("shop".to_owned(), json!({"team": team}))]);
    known.namespaces = teams("a");
    known.pods.extend([pod("a", "db")]);
    let peer = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}});
    let mut views = read(vec![policy("deny", json!([])), policy("p", json!([{"from": [peer]}]))]);
    assert_eq!(now(&mut views, &known).len(), 3);
    known.namespaces = teams("b");
    views.note(Change::All);
    let then = now(&mut views, &known);
    assert_eq!(kinds(&then), [("PolicyView", "deny"), ("PolicyView", "p")]);
    let told = then.values().map(|told| body(told)["spec"]["ingress"].clone()).collect::<Vec<_>>();
    assert_eq!((&told[0], &told[1][0]["peers"][0]["namespaces"]), (&json!([]), &json!([])));
}

/// Policies beyond the limit isolate all pods; a deletion makes room for the others.
#[test]
fn policies_without_room_isolate_the_namespace() {
    let large = |name: &str| {
        let ranges: Vec<Value> = (0..20_000).map(|n| json!({"ipBlock": {"cidr": format!("10.{n}/32")}})).collect();
        policy(name, json!([{"from": ranges}]))
    };
    let many: Vec<DynamicObject> = (0..8).map(|number| large(&number.to_string())).collect();
    let mut views = read(many.clone());
    let known = Known::default();
    let told = now(&mut views, &known);
    let bytes: usize = told.values().map(|told| told.text().text().len()).sum();
    assert!(told.len() < 8 && bytes < 8 << 20, "{} policies, {bytes} bytes", told.len());
    let more = body(&told[&more_key("shop")]);
    assert!(more["spec"]["unreadable"].is_string() && more["spec"]["podSelector"].is_null());
    assert!(!views.wants_reading);
    many.iter().skip(1).for_each(|policy| drop(views.take(Ok(Event::Delete(policy.clone())))));
    assert!(views.wants_reading, "there may be room for others");
    now(&mut views, &known);
    assert!(views.said.contains_key(&more_key("shop")), "until they are read");
    for event in [Event::Init, Event::InitApply(many[0].clone()), Event::InitDone] {
        views.take(Ok(event));
    }
    assert_eq!(kinds(&now(&mut views, &known)), [("PolicyView", "0")]);
}

#[test]
fn pod_is_no_more_than_some_peers_of_a_namespace() {
    let mut known = Known::default();
    known.pods.extend([pod("a", "db")]);
    let without = |n: usize| json!({"key": format!("k{n}"), "operator": "DoesNotExist"});
    let without = |n: usize| json!({"podSelector": {"matchExpressions": [without(n)]}});
    let peers: Vec<Value> = (0..500).map(without).collect();
    let mut views = read(vec![policy("p", json!([{"from": peers}]))]);
    let told = now(&mut views, &known);
    let pods = told.values().map(|told| body(told)).find(|body| body["kind"] == Kind::PolicyPeers.name()).unwrap();
    assert_eq!(pods["pods"][0]["peers"].as_array().map(Vec::len), Some(PEERS_OF_A_POD));
}
