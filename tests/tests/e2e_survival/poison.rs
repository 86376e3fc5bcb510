//! A pod in whose reconciliation the daemon has died is skipped, and events of it meanwhile are not lost.

use std::time::Duration;

use sampan_tests::{Cluster, EdgeNode, can_run, until};

use super::{ends_on_file, sleeper, wait_running};

/// The daemon starts after three deaths in turns of this pod.
fn start_skipping(node: &mut EdgeNode, uid: &str) {
    node.kill();
    std::fs::write(node.root().join("run/edge-runtime/deaths"), format!("{{\"{uid}\": 3}}")).expect("written");
    node.start();
}

/// Exit records that the monitor keeps.
fn exits(node: &EdgeNode) -> usize {
    std::fs::read_dir(node.root().join("run/edge-runtime/exits")).into_iter().flatten().count()
}

#[test]
fn a_skipped_pod_learns_later_how_its_container_ended() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("skipped");
    let mut node = cluster.node("edge");
    let on = node.name.clone();
    let switch = cluster.folder().join("switch");
    std::fs::create_dir(&switch).expect("a folder");
    cluster.kubectl.apply_all(&[ends_on_file("ends", &on, &switch), sleeper("stays", &on)]);
    cluster.kubectl.wait_ready("stays");
    let pod = cluster.kubectl.wait_ready("ends");
    let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();

    start_skipping(&mut node, &uid);
    node.wait_connected(&cluster);
    cluster.kubectl.wait_event("ends", "PodSkipped");
    std::fs::write(switch.join("ends"), "").expect("a file");
    wait_running(&node, 1);
    // Ends are synced and removed within milliseconds.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(exits(&node), 1, "the monitor alone knows: {}", node.log());
    assert_eq!(cluster.kubectl.get("pod", "ends").expect("a pod")["status"]["phase"], "Running");

    // Another daemon gets it from the monitor again, and does not store it either.
    node.kill();
    node.start();
    node.wait_connected(&cluster);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(exits(&node), 1, "{}", node.log());
    let _ = cluster.kubectl.ok(&["annotate", "pod", "ends", "example.com/changed=yes"]);
    let ended = cluster.kubectl.wait_phase("ends", "Failed");
    let status = &ended["status"]["containerStatuses"][0];
    assert_eq!(status["state"]["terminated"]["exitCode"], 7, "{status}");
    until(Duration::from_secs(10), "the monitor forgets it", || match exits(&node) {
        0 => Ok(()),
        left => Err(format!("{left} are left")),
    });
}
