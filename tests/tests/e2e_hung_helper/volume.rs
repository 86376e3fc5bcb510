//! A hostPath on a file system whose server accepts every request and answers none.

use std::time::Duration;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::{Cluster, Fuse, can_run, until};
use serde_json::{Value, json};

use super::{all_else_goes_on, force_delete, simple, wait_no_look, wait_told, watched};

fn with_volume(name: &str, node: &str, volume: Value, mount: &Value) -> Value {
    let container = with(shell("c", "exec sleep 1000"), &json!({"volumeMounts": [mount]}));
    with_spec(pod(name, node, json!([container])), &json!({"volumes": [volume]}))
}

#[test]
fn a_path_that_hangs_is_one_pods_trouble() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("hungpath");
    let mut node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    kubectl.apply_all(&[watched("watched", &on)]);
    kubectl.wait_ready("watched");
    let dead = Fuse::silent(cluster.folder(), "dead");
    let path = dead.path().display().to_string();
    let mounted = json!({"name": "nas", "mountPath": "/nas"});
    // The path itself, a folder in it, and a folder beside it by a subPath.
    let below = host_path("nas", &dead.path().join("deep"));
    let sub = json!({"name": "nas", "mountPath": "/nas", "subPath": "dead/deep"});
    kubectl.apply_all(&[
        with_volume("itself", &on, host_path("nas", dead.path()), &mounted),
        with_volume("below", &on, below, &mounted),
        with_volume("sub", &on, host_path("nas", cluster.folder()), &sub),
    ]);
    all_else_goes_on(kubectl, &on, "watched", simple("other", &on));
    let late = format!("{path} did not answer within 30 s");
    wait_told(kubectl, "itself", 60, &["FailedMount", "MountVolume.SetUp failed for volume \"nas\"", &late]);
    wait_told(kubectl, "below", 60, &["FailedMount", &format!("{path}/deep did not answer within 30 s")]);
    wait_told(
        kubectl,
        "sub",
        60,
        &["failed to prepare subPath for volumeMount \"nas\" of container \"c\"", "did not answer"],
    );
    all_else_goes_on(kubectl, &on, "watched", simple("again", &on));

    // A daemon that starts while the file system hangs.
    node.kill();
    node.start();
    node.wait_connected(&cluster);
    all_else_goes_on(kubectl, &on, "watched", simple("restarted", &on));
    for name in ["itself", "below"] {
        force_delete(kubectl, name);
    }
    until(Duration::from_secs(60), "the node has forgotten the pods", || {
        let known = node.edge(&["ps", "-a"])?;
        if known.contains("itself") || known.contains("below") { Err(known) } else { Ok(()) }
    });
    // Without the file system the path is a normal folder again, which the remaining pod can use.
    drop(dead);
    kubectl.wait_pod("sub", 180, "it starts after all", sampan_tests::kubectl::is_ready);
    wait_no_look();
    let left = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!left.contains(&format!(" {path} ")), "{left}");
}
