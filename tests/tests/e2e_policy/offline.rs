//! Without a cloud, without a daemon, and after a power cut.

use std::time::Duration;

use sampan_tests::manifest::shell;
use sampan_tests::{Cluster, can_run, until};
use serde_json::json;

use super::{bridge, client, ip, policy, reaches, server, tables, wait_reaches};

#[test]
fn policies_hold_offline_and_before_the_first_packet_of_a_boot() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("policy-cut");
    let mut node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    let friends = json!({"ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}]});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    kubectl.apply_all(&[policy("friends", "web", &friends), service]);
    let address = kubectl.ok(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    let url = format!("http://{address}/");
    // It tries to connect all the time, also in the first moments after a reboot.
    let script =
        format!("while true; do echo tried; timeout 1 wget -qO- {url} >/dev/null 2>&1 && echo LEAKED; sleep 0.1; done");
    let mut stranger = client("stranger", &on, "stranger");
    stranger["spec"]["containers"] = json!([shell("c", &script)]);
    kubectl.apply_all(&[server("web", &on, "web"), client("friend", &on, "friend"), stranger]);
    let web = ip(kubectl, "web");
    ["friend", "stranger"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    wait_reaches(&node, "friend", &url, true);
    let never = |node: &sampan_tests::EdgeNode| {
        let log = until(Duration::from_secs(20), "the stranger tries", || {
            let log = node.edge(&["logs", "stranger"])?;
            if log.matches("tried").count() > 3 { Ok(log) } else { Err(log) }
        });
        assert!(!log.contains("LEAKED"), "{log}");
        assert_eq!(reaches(node, "stranger", &url), Ok(false));
    };
    never(&node);

    cluster.kill_bridge();
    let bridge = bridge(&web);
    let before = tables(&bridge);
    assert!(before.contains(&web), "{before}");
    node.kill();
    never(&node);
    node.start();
    until(Duration::from_secs(20), "the daemon knows its pods", || node.edge(&["ps"]));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(tables(&bridge), before, "nothing was touched");
    never(&node);
    wait_reaches(&node, "friend", &url, true);

    node.cut_power(cluster.folder());
    node.start();
    wait_reaches(&node, "friend", &url, true);
    never(&node);
}

#[test]
fn flushed_rules_return_and_no_pod_starts_without_them() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("policy-flush");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[policy("deny", "web", &json!({})), server("web", &on, "web"), client("client", &on, "client")]);
    let (web, _) = (ip(kubectl, "web"), kubectl.wait_ready("client"));
    let url = format!("http://{web}:8080/");
    wait_reaches(&node, "client", &url, false);
    let table = format!("policies-{}", bridge(&web));
    let deleted =
        std::process::Command::new("nft").args(["delete", "table", "ip", &table]).status().expect("nft starts");
    assert!(deleted.success());
    until(Duration::from_secs(90), "the rules are there again", || match reaches(&node, "client", &url) {
        Ok(false) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}
