//! Excessive policies.

use std::time::Duration;

use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

use super::{client, ip, policy, reaches, server, wait_reaches};

#[test]
fn policies_without_end_isolate_their_pods_and_harm_nobody_else() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("policy-huge");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let on = node.name.clone();
    kubectl.apply_all(&[
        server("web", &on, "web"),
        server("db", &on, "db"),
        server("free", &on, "free"),
        client("client", &on, "client"),
    ]);
    let [web, db, free] = ["web", "db", "free"].map(|pod| format!("http://{}:8080/", ip(kubectl, pod)));
    kubectl.wait_ready("client");
    // The maximum that the kernel accepts: 6,000 ranges, one of them with the client.
    let block = |n: usize| json!({"ipBlock": {"cidr": format!("172.{}.{}.0/24", n >> 8, n & 255)}});
    let rule = |which: std::ops::Range<usize>| json!({"from": which.map(block).collect::<Vec<_>>()});
    let client = json!({"from": [{"ipBlock": {"cidr": format!("{}/32", ip(kubectl, "client"))}}]});
    let create = |policy: Value| {
        // `apply` would add a copy in an annotation, which is limited.
        let file = cluster.folder().join("policy.json");
        std::fs::write(&file, policy.to_string()).expect("written");
        let _ = kubectl.ok(&["create", "-f", &file.display().to_string()]);
    };
    let rules = json!([rule(0..4000), rule(4000..6000), client]);
    create(policy("ranges", "web", &json!({"ingress": rules})));
    // More peers than a node accepts.
    let peers: Vec<Value> = (0..2000).map(|n| json!({"podSelector": {"matchLabels": {"n": format!("{n}")}}})).collect();
    create(policy("peers", "db", &json!({"ingress": [{"from": peers}, {}]})));
    wait_reaches(&node, "client", &db, false);
    wait_reaches(&node, "client", &web, true);
    assert_eq!(reaches(&node, "db", &web), Ok(false));
    assert_eq!(reaches(&node, "client", &free), Ok(true));
    until(Duration::from_secs(20), "it is told", || {
        let events = kubectl.run(&["get", "events", "--all-namespaces", "-o", "json"])?;
        let told = events.contains("NetworkPolicyNotUnderstood") && events.contains("/peers isolates");
        if told { Ok(()) } else { Err("no event".to_owned()) }
    });
}
