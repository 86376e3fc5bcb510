//! Changes from one whole to the next, as scripts.

use super::super::endpoints::{Here, LocalPod};
use super::super::rules::of_service;
use super::super::view::{EndpointView, ServiceView};
use super::*;
use serde_json::json;

fn items(name: &str, ip: &str, outside: &[&str], pods: &[&str]) -> BTreeMap<Item, String> {
    let pod = |ip: &&str| LocalPod {
        namespace: "ns".into(),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        ips: vec![ip.parse().unwrap()],
        ready: true,
        ..LocalPod::default()
    };
    let pods: Vec<LocalPod> = pods.iter().map(pod).collect();
    let spec = json!({"clusterIPs": [ip], "externalIPs": outside, "selector": {"a": "b"}, "ports": [{"port": 80}]});
    let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
    of_service(("ns", name), &view, &pods, &EndpointView::default(), &Here::default(), &[false])
}

fn name(name: &str) -> ServiceName {
    ("ns".into(), name.into())
}

fn one(tables: &mut Tables, service: &str, items: BTreeMap<Item, String>) -> Option<String> {
    tables.change(&[(name(service), items)].into(), &BTreeMap::new()).map(|change| change.script)
}

fn tables() -> Tables {
    let mut tables = Tables::new("b0", &["10.85.0.0/24".parse().unwrap()]);
    tables.replace(&Wanted::default());
    tables
}

#[test]
fn script_has_only_the_changes() {
    let mut tables = tables();
    for index in 0..100 {
        let ip = format!("10.96.0.{index}");
        one(&mut tables, &format!("other-{index}"), items(&format!("other-{index}"), &ip, &[], &["10.85.0.9"]));
    }
    let script = one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.2"])).unwrap();
    assert!(!script.contains("other") && script.contains("add element ip services-b0 cluster-ips { 10.96.1.1 }"));
    assert_eq!(one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.2"])), None);
    let script = one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.3"])).unwrap();
    assert!(script.starts_with("flush chain ip services-b0 service-") && !script.contains("element"), "{script}");
    assert_eq!(script.lines().count(), 4, "flush, rule, and the mark: {script}");
}

#[test]
fn removed_chain_is_emptied_and_deleted_later() {
    let mut tables = tables();
    one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.2"]));
    assert_eq!(tables.sweep(), None);
    let script = one(&mut tables, "web", BTreeMap::new()).unwrap();
    assert!(script.contains("delete element ip services-b0 service-ips { 10.96.1.1 . tcp . 80 }"), "{script}");
    assert!(script.contains("flush chain") && !script.contains("delete chain ip services-b0 service-"), "{script}");
    assert!(tables.sweep().unwrap().script.starts_with("delete chain ip services-b0 service-"));
    assert_eq!(tables.sweep(), None);
}

#[test]
fn returning_chain_is_not_deleted() {
    let mut tables = tables();
    one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.2"]));
    one(&mut tables, "web", BTreeMap::new());
    one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.2"]));
    assert_eq!(tables.sweep(), None);
}

#[test]
fn shared_address_moves_to_the_second_service_later() {
    let mut tables = tables();
    one(&mut tables, "z", items("z", "10.96.1.1", &["192.0.2.1"], &["10.85.0.2"]));
    let script = one(&mut tables, "a", items("a", "10.96.1.2", &["192.0.2.1"], &["10.85.0.2"])).unwrap();
    assert!(!script.contains("192.0.2.1 . tcp"), "{script}");
    let script = one(&mut tables, "z", BTreeMap::new()).unwrap();
    assert!(script.contains("delete element ip services-b0 service-ips { 192.0.2.1 . tcp . 80 }"), "{script}");
    assert_eq!(tables.take_heirs(), [name("a")].into());
    let script = one(&mut tables, "a", items("a", "10.96.1.2", &["192.0.2.1"], &["10.85.0.2"])).unwrap();
    assert!(script.contains("add element ip services-b0 service-ips { 192.0.2.1 . tcp . 80 : goto ext"), "{script}");
}

#[test]
fn mark_depends_only_on_the_present_state() {
    let mut tables = tables();
    let empty = tables.marks();
    one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.2"]));
    one(&mut tables, "web", items("web", "10.96.1.1", &[], &["10.85.0.3"]));
    let pods: BTreeMap<IpAddr, bool> = [("10.85.0.3".parse().unwrap(), true)].into();
    tables.change(&BTreeMap::new(), &pods);
    let services = [(name("web"), items("web", "10.96.1.1", &[], &["10.85.0.3"]))].into();
    let mut other = Tables::new("b0", &["10.85.0.0/24".parse().unwrap()]);
    other.adopt(&Wanted { services, pods });
    assert_eq!(tables.marks(), other.marks());
    one(&mut tables, "web", BTreeMap::new());
    tables.change(&BTreeMap::new(), &BTreeMap::new());
    assert_eq!(tables.marks(), empty);
}
