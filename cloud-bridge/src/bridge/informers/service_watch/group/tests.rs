//! Tests of the group of Services, and of its room.

use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::super::kept::ROOM;
use super::*;

fn service(name: &str, ports: usize) -> DynamicObject {
    let ports: Vec<Value> = (0..ports).map(|n| json!({"name": format!("port-{n}"), "port": n + 1})).collect();
    let spec = json!({"clusterIP": "10.96.0.7", "ports": ports});
    let metadata = json!({"name": name, "namespace": "shop", "uid": name});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn slice(name: &str, endpoints: usize, address: &str) -> DynamicObject {
    let endpoints = vec![json!({"addresses": [address], "nodeName": "site-north-1-board-7"}); endpoints];
    let metadata = json!({"name": name, "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}});
    let slice = json!({"metadata": metadata, "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints});
    serde_json::from_value(slice).unwrap()
}

/// Lists slices of the Service `web`.
fn list(all: &mut All, slices: impl Iterator<Item = DynamicObject>) {
    all.slices.take(Ok(Event::Init));
    slices.for_each(|slice| drop(all.slices.take(Ok(Event::InitApply(slice)))));
    all.slices.take(Ok(Event::InitDone));
}

#[test]
fn first_services_are_told_at_once_and_later_changes_together() {
    let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
    let said = Instant::now();
    for event in [Event::Init, Event::InitApply(service("web", 1)), Event::InitDone] {
        all.services.take(Ok(event));
    }
    assert_eq!(all.due(said), None, "slices have not been read");
    list(&mut all, std::iter::empty());
    assert_eq!(all.due(said), Some(said), "pods wait for them");
    all.now();
    assert_eq!(all.due(said), None);
    all.services.take(Ok(Event::Apply(service("web", 2))));
    assert_eq!(all.due(said), Some(said + PAUSE));
}

#[test]
fn slices_of_a_namespace_have_a_bounded_room() {
    let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
    for event in [Event::Init, Event::InitApply(service("web", 1)), Event::InitDone] {
        all.services.take(Ok(event));
    }
    let large = "x".repeat(1 << 20);
    list(&mut all, (0..10).map(|n| slice(&n.to_string(), 1, &large)));
    let web = ("shop".to_owned(), "web".to_owned());
    assert_eq!(all.now()[&web].slices.len(), 7, "the Service stays, with the endpoints that have room");
    assert!(!all.slices.wants_reading);
    all.slices.take(Ok(Event::Delete(slice("0", 1, &large))));
    assert!(std::mem::take(&mut all.slices.wants_reading) && all.now()[&web].slices.len() == 6);
    list(&mut all, (1..10).map(|n| slice(&n.to_string(), 1, &large)));
    assert_eq!(all.now()[&web].slices.len(), 7);
    list(&mut all, (1..3).map(|n| slice(&n.to_string(), 1, &large)));
    all.slices.take(Ok(Event::Delete(slice("1", 1, &large))));
    assert!(!all.slices.wants_reading, "all have room");
}

#[test]
fn thousand_services_of_ten_endpoints_have_room() {
    let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
    list(&mut all, (0..1000).map(|n| slice(&format!("web-{n}"), 10, "10.86.112.34")));
    let kept = &all.slices.kept;
    assert!(kept.all.len() == 1000 && kept.used("shop") < ROOM / 4, "{} bytes", kept.used("shop"));
}

#[test]
fn services_of_a_namespace_have_a_bounded_room() {
    let mut all = All::new(("shop".into(), ALL_SERVICES.into()));
    for slices in [Event::Init, Event::InitDone] {
        all.slices.take(Ok(slices));
    }
    all.services.take(Ok(Event::Init));
    (0..30).for_each(|n| drop(all.services.take(Ok(Event::InitApply(service(&n.to_string(), 10_000))))));
    all.services.take(Ok(Event::InitDone));
    let told = all.now();
    let bytes: usize = told.values().map(|entry| entry.view.text().text().len()).sum();
    assert!(told.len() > 10 && told.len() < 30 && bytes <= ROOM, "{} Services, {bytes} bytes", told.len());
    let gone: Vec<Name> = told.keys().take(2).cloned().collect();
    gone.iter().for_each(|(_, name)| drop(all.services.take(Ok(Event::Delete(service(name, 1))))));
    all.services.take(Ok(Event::Apply(service("new", 10_000))));
    let now = all.now();
    assert!(now.contains_key(&("shop".into(), "new".into())) && now.len() == told.len() - 1);
    all.services.take(Ok(Event::Apply(service("new", 1))));
    all.services.take(Ok(Event::Apply(service("other", 10_000))));
    assert_eq!(all.now().len(), told.len(), "a smaller one gives its room back");
}

#[test]
fn services_without_room_are_read_again_when_others_go() {
    let mut services = Watched::<Service>::new();
    services.take(Ok(Event::Init));
    (0..30).for_each(|n| drop(services.take(Ok(Event::InitApply(service(&n.to_string(), 10_000))))));
    services.take(Ok(Event::InitDone));
    services.take(Ok(Event::Apply(service("more", 10_000))));
    assert!(!services.wants_reading, "there is no more room than before");
    services.take(Ok(Event::Delete(service("0", 1))));
    assert!(std::mem::take(&mut services.wants_reading));
    services.take(Ok(Event::Init));
    services.take(Ok(Event::InitApply(service("1", 10_000))));
    services.take(Ok(Event::InitDone));
    services.take(Ok(Event::Delete(service("1", 1))));
    assert!(!services.wants_reading, "all have room");
}
