//! `cloud-bridge authority`: another authority takes the place of the first, while nodes and their pods go on.

use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

use crate::{join_again, processes, wait_log, wait_running};

fn authority(cluster: &Cluster, args: &[&str]) -> Result<String, String> {
    let output = cluster.command(&[&["authority"][..], args].concat());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// What a rotation has not reached of these nodes, as `NAME TRUST`.
fn left(cluster: &Cluster, nodes: &[&EdgeNode]) -> Vec<String> {
    let text = authority(cluster, &["status", "-o", "json"]).expect("a status");
    let state: Value = serde_json::from_str(&text).expect("JSON");
    let all = state["left"].as_array().expect("a list").iter();
    let word = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    let own = all.filter(|line| nodes.iter().any(|node| line["node"] == node.name.as_str()));
    own.map(|line| format!("{} {}", word(line, "node"), word(line, "trusts"))).collect()
}

fn wait_reached(cluster: &Cluster, nodes: &[&EdgeNode]) {
    until(Duration::from_secs(60), "the rotation reaches the nodes", || {
        let left = left(cluster, nodes);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} {}", cluster.log())) }
    });
}

/// Number of the authorities that a node trusts.
fn trusted(node: &EdgeNode) -> usize {
    let path = node.root().join("var/lib/edge-runtime/identity/identity.json");
    let identity: Value = serde_json::from_slice(&std::fs::read(path).expect("an identity")).expect("JSON");
    identity["ca"].as_str().expect("a text").matches("BEGIN CERTIFICATE").count()
}

#[test]
fn authority_is_replaced_without_losing_a_connected_node() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("authority");
    let node = cluster.node("edge");
    let mut away = cluster.node("away");
    away.kill();
    cluster.kubectl.apply_all(&[pod("stays", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("stays");
    let before = wait_running(&node, 1);

    let told = authority(&cluster, &["rotate", "--renew-within", "2s", "--delay", "1s"]).expect("begun");
    assert!(told.contains("Restart every bridge"), "{told}");
    let refused = authority(&cluster, &["rotate"]).expect_err("one at a time");
    assert!(refused.contains("under way"), "{refused}");
    cluster.kill_bridge();
    cluster.start_bridge();
    // A node that joins now uses a token for the old authority.
    let late = cluster.node("late");
    wait_reached(&cluster, &[&node, &late]);
    assert_eq!([trusted(&node), trusted(&late), trusted(&away)], [2, 2, 1]);
    assert_eq!(left(&cluster, &[&away]), [format!("{} unknown", away.name)]);
    let refused = authority(&cluster, &["finish"]).expect_err("a node is left");
    assert!(refused.contains(&away.name) && refused.contains("--force"), "{refused}");

    // The old authority is gone: the nodes stay, and soon trust the new one alone.
    let _ = cluster.bridge_verb(&["token", "claim"]).expect("a claim token");
    let told = authority(&cluster, &["finish", "--force", "--delay", "1s"]).expect("finished");
    assert!(told.contains("Kubeconfigs") && told.contains("Tokens that name the old authority"), "{told}");
    cluster.kill_bridge();
    cluster.start_bridge();
    node.wait_connected(&cluster);
    wait_reached(&cluster, &[&node, &late]);
    assert_eq!([trusted(&node), trusted(&late)], [1, 1]);
    assert_eq!(processes(&node), before);
    assert_eq!(cluster.kubectl.wait_ready("stays")["status"]["containerStatuses"][0]["restartCount"], 0);

    // The node that was off all the time says what to do, and joins again while it runs.
    let seen = away.log().len();
    away.start();
    wait_log(&away, seen, 30, "join again with a fresh token");
    join_again(&cluster, &away);
    away.wait_connected(&cluster);
    wait_reached(&cluster, &[&away]);
}
