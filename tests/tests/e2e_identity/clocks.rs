//! A device whose wall clock is wrong by decades: the daemon runs with a library that changes the time.

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, EdgeNode, FakeClock, can_run};
use serde_json::json;

use crate::{processes, wait_log, wait_running};

const TEN_YEARS: i64 = 10 * 365 * 86_400;

fn static_pod(node: &EdgeNode, name: &str) {
    let folder = node.root().join("etc/edge-runtime/manifests");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut manifest = pod(name, &node.name, json!([shell("c", "exec sleep 1000")]));
    manifest["metadata"]["namespace"] = "default".into();
    manifest["spec"].as_object_mut().expect("an object").remove("nodeName");
    std::fs::write(folder.join(format!("{name}.json")), manifest.to_string()).expect("written");
}

#[test]
fn g25_pods_start_and_run_on_whatever_the_clock_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("clocks");
    let clock = FakeClock::new(cluster.folder());
    let mut node = EdgeNode::prepare(&cluster, &format!("clocks-{}", cluster.kubectl.namespace));
    node.env = clock.env();

    // The first boot, in 1970: local pods start, and the link connects.
    clock.set_1970();
    static_pod(&node, "local");
    node.start();
    node.wait_ready();
    cluster.kubectl.apply_all(&[pod("early", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("early");
    let two = wait_running(&node, 2);

    // A jump of ten years ahead: no pod ends, and nothing waits for years.
    clock.set(TEN_YEARS);
    cluster.kubectl.apply_all(&[pod("late", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("late");
    let three = wait_running(&node, 3);
    assert!(two.iter().all(|one| three.get(one.0) == Some(one.1)), "{two:?} {three:?}");

    // A boot with that clock: no certificate is valid, but pods start.
    node.kill();
    let seen = node.log().len();
    static_pod(&node, "other");
    node.start();
    let four = wait_running(&node, 4);
    assert!(three.iter().all(|one| four.get(one.0) == Some(one.1)), "{three:?} {four:?}");
    wait_log(&node, seen, 20, "xpired");

    // The clock is right again: the wrong time has no lasting effect.
    node.kill();
    clock.set(0);
    node.start();
    node.wait_connected(&cluster);
    assert_eq!(processes(&node), four);
    assert_eq!(cluster.kubectl.wait_ready("early")["status"]["containerStatuses"][0]["restartCount"], 0);
}
