//! Each fault of a running bridge is found; a healthy bridge passes.

use super::*;
use crate::doctor::finding::Severity;
use crate::doctor::finding::tests::assert_found;

fn info(api: &str) -> Info {
    Info { url: "https://b:7443".into(), authority: "a".into(), page: None, api: Some(api.into()) }
}

fn link(name: &str, connected: bool, seen: Option<&str>) -> NodeView {
    NodeView {
        node: name.into(),
        connected,
        since: None,
        last_seen: seen.map(str::to_owned),
        epoch: 1,
        sequence: 1,
        acked: None,
        objects: 0,
        queue_bytes: 0,
        report_bytes: 0,
        rtt_ms: None,
        no_kubelet_port: false,
    }
}

fn metrics(version: &str, panics: u32, open: u32) -> String {
    format!(
        "# HELP sampan_bridge_panics_total x\nsampan_bridge_panics_total {panics}\nsampan_bridge_info{{version=\"{version}\"}} 1\n\
         process_open_fds {open}\nprocess_max_fds 1000\n"
    )
}

fn well() -> Facts {
    Facts {
        standalone: true,
        now: "2026-03-01T10:00:00Z".parse().unwrap(),
        info: Some(Ok(info("https://10.0.0.1:6443"))),
        url: "https://b:7443".into(),
        ready: Some(Ok(())),
        metrics: Some(metrics(env!("CARGO_PKG_VERSION"), 0, 10)),
        links: Some(vec![link("a", true, None)]),
        nodes: Some([("a".to_owned(), "True".to_owned())].into()),
    }
}

#[test]
fn healthy_bridge_has_no_findings() {
    let found = judge(&well());
    assert!(found.len() >= 6 && found.iter().all(|one| one.severity == Severity::Ok), "{found:#?}");
}

#[test]
fn silent_api_and_closed_port_are_found() {
    let silent = Facts { info: Some(Err("refused".into())), ..Facts::default() };
    assert_found(&judge(&silent), "api", Severity::Error, "kubectl get --raw");
    assert_found(&judge(&Facts { standalone: true, ..silent }), "api", Severity::Error, "journalctl");
    let alone = Facts { info: Some(Ok(info("https://127.0.0.1:6443"))), ..well() };
    assert_found(&judge(&alone), "api", Severity::Info, "");
    let closed = Facts { ready: Some(Err(Refused::Unreached("refused".into()))), metrics: None, ..well() };
    assert_found(&judge(&closed), "bridge", Severity::Error, "firewall");
    let waits = Facts { ready: Some(Err(Refused::NotReady("api failed".into()))), ..well() };
    assert_found(&judge(&waits), "bridge", Severity::Error, "journalctl");
}

#[test]
fn faults_of_the_process_are_found() {
    let with = |metrics| judge(&Facts { metrics: Some(metrics), ..well() });
    let own = env!("CARGO_PKG_VERSION");
    assert_found(&with(metrics("0.0.1", 0, 10)), "drift", Severity::Warning, "restart");
    assert_found(&with(metrics(own, 3, 10)), "panics", Severity::Warning, "journalctl");
    assert_found(&with(metrics(own, 0, 900)), "descriptors", Severity::Warning, "LimitNOFILE");
}

#[test]
fn offline_and_unready_nodes_are_named() {
    let nodes =
        ["a", "b", "c", "d"].map(|name| (name.to_owned(), if name == "a" { "True" } else { "Unknown" }.to_owned()));
    let links = vec![link("a", false, None), link("b", false, Some("2026-03-01T09:30:00Z")), link("c", false, None)];
    let off = judge(&Facts { nodes: Some(nodes.clone().into()), links: Some(links), ..well() });
    assert_found(&off, "nodes", Severity::Warning, "edge-runtime doctor");
    let what = off.iter().find(|one| one.check == "nodes").map(|one| one.what.as_str());
    assert_eq!(what, Some("2 of 4 nodes are offline: b (seen 30m ago), c (never seen)"));
    let on = judge(&Facts { nodes: Some(nodes.into()), links: Some(vec![link("d", true, None)]), ..well() });
    assert_found(&on, "nodes", Severity::Warning, "kubectl describe node");
    // A revoked node is left out of the list of nodes.
    let revoked = judge(&Facts { links: Some(vec![link("r", false, None)]), ..well() });
    assert!(revoked.iter().all(|one| one.severity == Severity::Ok), "{revoked:#?}");
}

#[test]
fn node_without_a_kubelet_port_is_named() {
    let without = NodeView { no_kubelet_port: true, ..link("a", true, None) };
    let found = judge(&Facts { links: Some(vec![without, link("b", true, None)]), ..well() });
    assert_found(&found, "kubelet-ports", Severity::Warning, "--kubelet-ports");
    let what = found.iter().find(|one| one.check == "kubelet-ports").map(|one| one.what.as_str());
    assert_eq!(what, Some("no port is free for the kubelet API of a"));
}

#[test]
fn unlisted_nodes_are_not_called_ready() {
    assert_found(&judge(&Facts { nodes: None, ..well() }), "nodes", Severity::Warning, "kubectl get nodes");
    let unlisted = judge(&Facts { links: None, ..well() });
    assert_found(&unlisted, "nodes", Severity::Warning, "journalctl");
    assert!(unlisted.iter().any(|one| one.what == "the bridge does not list the nodes"), "{unlisted:#?}");
}

#[test]
fn long_lists_are_cut() {
    let names = || (0..13).map(|number| number.to_string()).collect::<Vec<_>>().into_iter();
    assert!(some(names()).ends_with("9 and 3 more"));
    assert_eq!(some(names().take(2)), "0, 1");
}
