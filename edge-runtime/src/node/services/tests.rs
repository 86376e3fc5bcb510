//! What follows from a pod's change, for the kernel and for names.

use edge_protocol::message::ObjectKey;
use serde_json::json;

use super::done::Done;
use super::*;
use crate::net::services::view::SERVICE_VIEW;

fn services() -> Services {
    let store = Store::in_memory().unwrap();
    let tables = Tables::new("b0", &[]);
    let mut services = Services::open(&ServicesConfig::default(), tables, Here::default(), &store).unwrap();
    for (namespace, name) in [("default", "kubernetes"), ("shop", "web"), ("shop", "db"), ("site", "web")] {
        let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: namespace.into(), name: name.into() };
        let selector = if name == "kubernetes" { json!({}) } else { json!({"app": name}) };
        services.put(&key, Some(json!({"spec": {"clusterIPs": ["10.96.0.1"], "selector": selector}})));
    }
    forget(&mut services);
    services
}

/// Takes all changes so far.
fn forget(services: &mut Services) {
    services.dirty.clear();
    services.names_changed = false;
    services.take_untold();
}

fn pod(app: &str, ready: bool) -> LocalPod {
    let labels = BTreeMap::from([("app".to_owned(), app.to_owned())]);
    let (namespace, name, ips) = ("shop".into(), "p".into(), vec!["10.0.0.2".parse().unwrap()]);
    LocalPod { namespace, name, labels, ips, ready, ..LocalPod::default() }
}

#[test]
fn service_that_cannot_be_read_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let cx = Context::for_tests(folder.path());
    let mut services = services();
    services.enabled = true;
    let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: "shop".into(), name: "web".into() };
    cx.store.lose_table("objects");
    assert!(services.take(&cx, &key) && services.dirty.is_empty());
    assert_eq!(services.views.len(), 4);
}

#[test]
fn pod_of_no_service_changes_addresses_of_none() {
    let mut services = services();
    assert!(!services.pod_changed("a", Some(pod("batch", false))));
    assert!(services.names_changed && services.dirty.is_empty(), "it may ask for names");
    forget(&mut services);
    assert!(!services.pod_changed("a", Some(pod("batch", true))));
    assert!(!services.names_changed, "no name leads to it");
    assert!(!services.pod_changed("a", None));
    assert!(services.names_changed && services.pods.is_empty());
}

#[test]
fn dns_helper_gets_only_changed_services() {
    let mut services = services();
    let [web, db] = ["web", "db"].map(|name| ("shop".to_owned(), name.to_owned()));
    assert_eq!(services.take_untold(), (Vec::new(), Some(Vec::new())));
    services.pod_changed("a", Some(pod("web", true)));
    assert_eq!(services.take_untold(), (vec![web], Some(Vec::new())));
    services.pod_changed("a", Some(LocalPod { subdomain: Some("db".into()), ..pod("batch", true) }));
    let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: "site".into(), name: "web".into() };
    services.put(&key, None);
    let gone = vec![("site".to_owned(), "web".to_owned())];
    // The pod was in one, and has a name below the other.
    assert_eq!(services.take_untold(), (vec![db, ("shop".into(), "web".into())], Some(gone)));
}

#[test]
fn dns_helper_gets_all_services_first_and_after_many_changes() {
    let mut services = services();
    let many = (0..1000).map(|number| ("shop".to_owned(), number.to_string()));
    services.untold.add(many);
    let (told, gone) = services.take_untold();
    assert_eq!((told.len(), gone), (services.views.len(), None));
    let store = Store::in_memory().unwrap();
    let config = ServicesConfig::default();
    let mut new = Services::open(&config, Tables::new("b0", &[]), Here::default(), &store).unwrap();
    assert_eq!(new.take_untold(), (Vec::new(), None));
}

#[test]
fn pod_of_a_service_changes_that_service() {
    let mut services = services();
    let dirty = |services: &Services| services.dirty.iter().cloned().collect::<Vec<_>>();
    let [web, db] = ["web", "db"].map(|name| ("shop".to_owned(), name.to_owned()));
    assert!(services.pod_changed("a", Some(pod("web", false))));
    assert_eq!(dirty(&services), std::slice::from_ref(&web), "not that of another namespace");
    forget(&mut services);
    assert!(!services.pod_changed("a", Some(pod("web", false))));
    assert!(services.pod_changed("a", Some(pod("web", true))));
    assert!(services.names_changed);
    forget(&mut services);
    assert!(services.pod_changed("a", Some(pod("db", true))));
    assert_eq!(dirty(&services), [db, web], "the one that it leaves, too");
}

#[test]
fn each_reason_for_a_step_wakes_the_loop() {
    let mut services = services();
    let web = ("shop".to_owned(), "web".to_owned());
    (services.phase, services.not_before) = (Phase::Known, Some(Mono(7)));
    assert_eq!(services.wake(), None, "nothing is to be done");
    services.left_out.add(vec![web.clone()], Mono(0));
    assert_eq!(services.wake(), Some(Mono(60_000)), "a Service that was left out is tried again");
    services.flows.stale = true;
    assert_eq!(services.wake(), Some(Mono(0)), "flows are deleted after all portions");
    services.sweep_at = Some(Mono(9));
    services.flows.stale = false;
    assert_eq!(services.wake(), Some(Mono(9)));
    services.dirty.insert(web);
    assert_eq!(services.wake(), Some(Mono(7)), "changes before rules that were emptied");
    services.flows.stale = true;
    assert_eq!(services.wake(), Some(Mono(7)), "not between two portions");
    services.dirty.clear();
    (services.flows.stale, services.pods_changed) = (false, true);
    assert_eq!(services.wake(), Some(Mono(7)));
    (services.pods_changed, services.phase) = (false, Phase::Whole);
    assert_eq!(services.wake(), Some(Mono(7)));
    services.running = true;
    assert_eq!(services.wake(), None, "its end is news");
}

#[test]
fn marks_are_there_only_when_the_kernel_is_known() {
    let mut services = services();
    for phase in [Phase::Unknown, Phase::Whole, Phase::Known] {
        services.phase = phase;
        assert!(services.marks().is_empty(), "{phase:?}: there are no tables");
    }
    services.lost();
    assert_eq!(services.phase, Phase::Whole);
}

#[test]
fn other_program_for_services_is_told_once() {
    let mut services = services();
    assert!(!services.set_elsewhere(None));
    services.phase = Phase::Known;
    assert!(services.set_elsewhere(Some("kube-proxy".into())) && services.phase == Phase::Whole);
    services.phase = Phase::Known;
    assert!(!services.set_elsewhere(Some("kube-proxy".into())) && services.phase == Phase::Known);
    assert_eq!(services.elsewhere(), Some("kube-proxy"));
    assert!(services.set_elsewhere(None) && services.phase == Phase::Whole && services.elsewhere().is_none());
}

#[test]
fn service_gets_no_address_of_the_cluster_or_the_node() {
    let services = services();
    let ips = |all: &[&str]| -> Vec<IpAddr> { all.iter().map(|ip| ip.parse().unwrap()).collect() };
    let all = ["10.96.0.1", "127.0.0.1", "::1", "192.0.2.1"];
    let view = ServiceView { external_ips: ips(&all), ingress_ips: ips(&all), ..ServiceView::default() };
    let own = services.without_what_is_others(&view);
    assert_eq!((own.external_ips, own.ingress_ips), (ips(&["192.0.2.1"]), ips(&["192.0.2.1"])));
}

#[test]
fn address_of_the_link_changes_only_services_that_ask_for_it() {
    let mut services = services();
    let key = ObjectKey { kind: SERVICE_VIEW.into(), namespace: "shop".into(), name: "web".into() };
    services.put(&key, Some(json!({"spec": {"externalIPs": ["192.0.2.1"]}})));
    let key = ObjectKey { name: "db".into(), ..key };
    services.put(&key, Some(json!({"spec": {"ports": [{"port": 80, "nodePort": 30_443}]}})));
    forget(&mut services);
    let dirty = |services: &mut Services| {
        let names = services.dirty.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>();
        services.dirty.clear();
        names
    };
    services.set_link(vec!["192.0.2.1:443".parse().unwrap()]);
    assert_eq!(dirty(&mut services), ["web"]);
    services.set_link(vec!["192.0.2.1:443".parse().unwrap()]);
    assert_eq!(dirty(&mut services), [""; 0], "nothing has changed");
    services.set_link(vec!["198.51.100.1:30443".parse().unwrap()]);
    assert_eq!(dirty(&mut services), ["db", "web"], "one loses it, the other may have its port");
    services.set_link(Vec::new());
    assert_eq!(dirty(&mut services), ["db"]);
}

/// A node for what [`Services`] tell it.
fn context() -> (tempfile::TempDir, Context) {
    let folder = tempfile::tempdir().unwrap();
    let cx = Context::for_tests(folder.path());
    (folder, cx)
}

#[test]
fn look_at_the_start_decides_between_all_rules_and_changes() {
    let (_folder, mut cx) = context();
    for (before, is_there, after) in [
        (Phase::Unknown, true, Phase::Known),
        (Phase::Unknown, false, Phase::Whole),
        (Phase::Whole, true, Phase::Whole),
    ] {
        let mut services = services();
        (services.phase, services.running) = (before, true);
        services.applied(&mut cx, Done::Looked(is_there)).unwrap();
        assert_eq!((services.phase, services.running), (after, false), "{before:?}, {is_there}");
    }
}

#[test]
fn refused_rules_are_written_whole_again_and_told_once() {
    let (_folder, mut cx) = context();
    let mut services = services();
    for failures in 1..=3 {
        services.phase = Phase::Known;
        let now = cx.mono();
        services.applied(&mut cx, Done::Changed(Err("no nft".into()))).unwrap();
        assert_eq!((services.phase, services.failures), (Phase::Whole, failures));
        assert!(services.not_before.is_some_and(|at| at > now), "not at once");
    }
    assert_eq!(cx.store.outbox().unwrap().len(), 1);
    services.applied(&mut cx, Done::Isolated(None)).unwrap();
    assert_eq!((services.phase, services.failures), (Phase::Whole, 4), "no Service is the reason");
}

#[test]
fn refused_services_are_left_out_until_all_others_are_served() {
    let (_folder, mut cx) = context();
    let mut services = services();
    let web = ("shop".to_owned(), "web".to_owned());
    (services.phase, services.failures) = (Phase::Known, 5);
    services.applied(&mut cx, Done::Isolated(Some(vec![web.clone()]))).unwrap();
    assert_eq!((services.phase, services.failures), (Phase::Whole, 1), "all is tried without them");
    assert!(services.left_out.has(&web));
    assert_eq!(cx.store.outbox().unwrap().len(), 1);

    services.dirty.insert(web.clone());
    services.applied(&mut cx, Done::Changed(Ok(()))).unwrap();
    assert!(services.failures == 1 && services.flows.stale, "that was a first portion");
    services.dirty.clear();
    services.applied(&mut cx, Done::Changed(Ok(()))).unwrap();
    assert!(services.failures == 0 && services.left_out.has(&web));
}
