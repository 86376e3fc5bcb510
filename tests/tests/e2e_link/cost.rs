//! Traffic of an idle link, and the effect of silence on the pods of a node.

use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell, with_spec};
use sampan_tests::{Cluster, EdgeNode, Uplink, can_run, until};
use serde_json::{Value, json};

use super::node_behind;

/// 2 MB a day, both ways together, with all headers.
const BYTES_PER_HOUR: f64 = 2_000_000.0 / 24.0;
/// Traffic of one heartbeat, in bytes: the window may begin anywhere in it.
const ROUND: f64 = 400.0;

/// `TEST_IDLE_SECONDS` is the measured time (31: two heartbeats).
#[test]
fn g15_an_idle_link_costs_little() {
    if !can_run() {
        return;
    }
    let seconds = std::env::var("TEST_IDLE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(31);
    let uplink = Rc::new(Uplink::new());
    let cluster = Cluster::start_at("idle", uplink.bridge_ip(), &[]);
    let name = format!("idle-{}", cluster.kubectl.namespace);
    let direct = format!("https://{}", cluster.listen);
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &direct, Some(Rc::clone(&uplink)));
    node.start();
    node.wait_ready();
    let pods: Vec<Value> =
        (0..3).map(|n| pod(&format!("p-{n}"), &name, json!([shell("c", "exec sleep 100000")]))).collect();
    cluster.kubectl.apply_all(&pods);
    (0..3).for_each(|n| drop(cluster.kubectl.wait_ready(&format!("p-{n}"))));
    // Wait for the traffic of the start.
    let mut quiet = (uplink.bytes(), Instant::now());
    until(Duration::from_secs(40), "the start is over", || {
        let now = uplink.bytes();
        if now.0 + now.1 > quiet.0.0 + quiet.0.1 + 600 {
            quiet = (now, Instant::now());
        }
        if quiet.1.elapsed() > Duration::from_secs(5) { Ok(()) } else { Err(format!("{now:?}")) }
    });
    let before = uplink.bytes();
    std::thread::sleep(Duration::from_secs(seconds));
    let after = uplink.bytes();
    let (down, up) = (after.0 - before.0, after.1 - before.1);
    let total = (down + up) as f64;
    let hour = total * 3600.0 / seconds as f64;
    crate::tell(&format!("idle for {seconds} s: {down} bytes down, {up} up on the wire; {hour:.0} per hour"));
    assert!(total <= BYTES_PER_HOUR * seconds as f64 / 3600.0 + ROUND, "{down} down, {up} up in {seconds} s");
}

/// A duration on the Node is applied to the tolerations of its pods.
#[test]
fn autonomy_of_a_node_is_given_to_its_pods() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start_at("autonomy", Ipv4Addr::LOCALHOST.into(), &[]);
    let node = node_behind(&cluster, "edge", &format!("https://{}", cluster.listen));
    let kubectl = &cluster.kubectl;
    let taint = |name: &str, seconds: u64| json!({"key": format!("node.kubernetes.io/{name}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let tolerant = |name: &str, seconds: u64| {
        let one = pod(name, &node.name, json!([shell("c", "exec sleep 1000")]));
        with_spec(one, &json!({"tolerations": [taint("not-ready", seconds), taint("unreachable", seconds)]}))
    };
    // 300 is set by admission; 60 is set by the user.
    kubectl.apply_all(&[tolerant("default", 300), tolerant("chosen", 60)]);
    kubectl.wait_ready("default");
    let seconds = |name: &str, wanted: &Value| {
        until(Duration::from_secs(15), &format!("{name} tolerates {wanted}"), || {
            let pod = kubectl.get("pod", name)?;
            let all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
            let mut ours = all.iter().filter(|one| one["key"] == "node.kubernetes.io/unreachable");
            match ours.next() {
                Some(one) if one["tolerationSeconds"] == *wanted => Ok(()),
                _ => Err(pod["spec"]["tolerations"].to_string()),
            }
        });
    };
    let _ = kubectl.ok(&["annotate", "node", &node.name, "sampan.dev/autonomy=24h"]);
    seconds("default", &json!(86_400));
    kubectl.apply_all(&[tolerant("later", 300)]);
    seconds("later", &json!(86_400));
    let _ = kubectl.ok(&["annotate", "--overwrite", "node", &node.name, "sampan.dev/autonomy=forever"]);
    seconds("default", &Value::Null);
    let _ = kubectl.ok(&["annotate", "node", &node.name, "sampan.dev/autonomy-"]);
    seconds("default", &json!(300));
    seconds("chosen", &json!(60));
    let pod = kubectl.wait_ready("default");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "a toleration restarts nothing");
}
