//! Changes of the node's network: another uplink, an uplink that was down, lost packets.

use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, EdgeNode, FakeClock, FaultProxy, Faults, Uplink, can_run, until};
use serde_json::json;

use super::{connections, reconnected};

const SOON: Duration = Duration::from_secs(5);

#[test]
fn g14_a_new_uplink_is_used_within_five_seconds() {
    if !can_run() {
        return;
    }
    let uplink = Rc::new(Uplink::new());
    let mut cluster = Cluster::start_at("uplinks", uplink.bridge_ip(), &[]);
    let name = format!("roams-{}", cluster.kubectl.namespace);
    let direct = format!("https://{}", cluster.listen);
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &direct, Some(Rc::clone(&uplink)));
    node.start();
    node.wait_ready();
    cluster.kubectl.apply_all(&[pod("stays", &name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("stays");

    // From Wi-Fi to cable, as if the access point were out of reach: no connection is closed.
    let before = connections(&cluster, &node);
    uplink.down(0);
    uplink.up(1);
    let took = reconnected(&cluster, &node, before, SOON);
    crate::tell(&format!("switched to the second uplink in {took:?}"));

    // And back, while the second uplink still exists: new connections use another source address.
    let before = connections(&cluster, &node);
    uplink.up(0);
    let took = reconnected(&cluster, &node, before, SOON);
    crate::tell(&format!("switched back in {took:?}"));
    uplink.down(1);

    // Pods are created and deleted: the kernel's notifications about their links do not affect the connection.
    let before = connections(&cluster, &node);
    let pods: Vec<String> = (0..4).map(|number| format!("churn-{number}")).collect();
    let manifests: Vec<_> = pods.iter().map(|one| pod(one, &name, json!([shell("c", "exec sleep 1000")]))).collect();
    cluster.kubectl.apply_all(&manifests);
    pods.iter().for_each(|one| drop(cluster.kubectl.wait_ready(one)));
    let mut delete = vec!["delete", "pod"];
    delete.extend(pods.iter().map(String::as_str));
    let _ = cluster.kubectl.ok(&delete);
    assert_eq!(connections(&cluster, &node), before);

    // No uplink for a while, and no bridge: the node backs off, and resets that with the new uplink.
    cluster.kill_bridge();
    uplink.down(0);
    std::thread::sleep(Duration::from_secs(12));
    cluster.start_bridge();
    let before = connections(&cluster, &node);
    let start = Instant::now();
    uplink.up(0);
    reconnected(&cluster, &node, before, SOON);
    crate::tell(&format!("back with the uplink in {:?}", start.elapsed()));
    let pod = cluster.kubectl.wait_ready("stays");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

/// 300 ms each way, 64 kbit/s, and 5 % real packet loss: slow, but both sides stay connected.
#[test]
fn g13_a_narrow_lossy_line_is_not_a_dead_one() {
    if !can_run() {
        return;
    }
    let uplink = Rc::new(Uplink::new());
    let cluster = Cluster::start_at("lossy", uplink.bridge_ip(), &[]);
    let name = format!("far-{}", cluster.kubectl.namespace);
    let proxy = FaultProxy::start(uplink.bridge_ip(), cluster.listen);
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &proxy.url(), Some(Rc::clone(&uplink)));
    proxy.set(Faults { delay: Duration::from_millis(300), rate: Some(8_000), ..Faults::default() });
    uplink.lose(5, 5);
    node.start();
    node.wait_ready();
    // One ConfigMap that takes half a minute on this line.
    let big = cluster.folder().join("big");
    std::fs::write(&big, "0123456789abcdef".repeat(12_000)).expect("a file");
    let _ = cluster.kubectl.ok(&["create", "configmap", "big", &format!("--from-file=k={}", big.display())]);
    let mounted = json!([{
        "name": "c", "image": sampan_tests::node::BUSYBOX, "imagePullPolicy": "Never",
        "command": ["sh", "-c", "wc -c </big/k; exec sleep 1000"],
        "volumeMounts": [{"name": "big", "mountPath": "/big"}],
    }]);
    let mut manifest = pod("reads", &name, mounted);
    manifest["spec"]["volumes"] = json!([{"name": "big", "configMap": {"name": "big"}}]);
    cluster.kubectl.apply_all(&[manifest]);
    let start = Instant::now();
    cluster.kubectl.wait_pod("reads", 120, "Ready", sampan_tests::kubectl::is_ready);
    crate::tell(&format!("192 kB at 64 kbit/s, 300 ms, 5 % lost: Ready in {:?}", start.elapsed()));
    assert_eq!(connections(&cluster, &node), 1, "one connection carried it all");
    cluster.kubectl.wait_log("reads", "192000");
    uplink.lose(0, 0);
    proxy.set(Faults::default());
}

/// Half of the packets are lost each way: a question and its answer both arrive one time in four.
#[test]
fn g24_a_certificate_is_renewed_though_half_of_the_packets_are_lost() {
    if !can_run() {
        return;
    }
    let uplink = Rc::new(Uplink::new());
    let mut cluster = Cluster::start_at("halved", uplink.bridge_ip(), &["--certificate-life", "2h"]);
    let name = format!("halved-{}", cluster.kubectl.namespace);
    let direct = format!("https://{}", cluster.listen);
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &direct, Some(Rc::clone(&uplink)));
    node.start();
    node.wait_ready();
    let identity = || std::fs::read_to_string(node.root().join("var/lib/edge-runtime/identity/identity.json"));
    let first = identity().expect("an identity");

    // Nine tenths of the certificate's life are over by the clock of the bridge, which decides.
    let clock = FakeClock::new(cluster.folder());
    clock.set(110 * 60);
    cluster.kill_bridge();
    uplink.lose(50, 50);
    let start = Instant::now();
    cluster.env = clock.env();
    cluster.start_bridge();
    until(Duration::from_secs(240), "the identity is another", || match identity() {
        Ok(now) if now != first => Ok(()),
        _ => Err(node.log().lines().rev().take(8).collect::<Vec<_>>().join("; ")),
    });
    crate::tell(&format!("half of the packets lost: renewed {:?} after the bridge was back", start.elapsed()));
    uplink.lose(0, 0);
    // The new certificate works in a handshake.
    let before = connections(&cluster, &node);
    cluster.kill_bridge();
    cluster.start_bridge();
    reconnected(&cluster, &node, before, Duration::from_secs(60));
}
