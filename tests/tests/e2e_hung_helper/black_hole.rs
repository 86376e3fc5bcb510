//! A network that drops everything: names do not resolve, registries are unreachable, and no error is returned.

use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{shell, with};
use sampan_tests::wait::patient;
use sampan_tests::{Cluster, EdgeNode, Uplink, can_run, until};
use serde_json::json;

/// Maximum time that a boot waits for registries in all, for any number of images.
const CHECK: Duration = Duration::from_secs(3);
const PODS: usize = 20;

#[test]
fn a_boot_asks_a_dead_network_for_three_seconds_in_all() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("blackhole");
    let uplink = Rc::new(Uplink::new());
    // Only incoming packets: dropping an outgoing one returns an error to the sender at once.
    uplink.lose(100, 0);
    let without_asking = boot(&cluster, &uplink, "Never");
    let asking = boot(&cluster, &uplink, "Always");
    {
        use std::io::Write;
        // Printed for the reader of the log.
        let _ = writeln!(std::io::stderr(), "{PODS} pods run after {asking:?}; without asking {without_asking:?}");
    }
    // The second half of a start may be slower on a busy host.
    assert!(asking < without_asking * 2 + patient(CHECK), "{asking:?}, without asking {without_asking:?}");
}

/// Starts a node with all images and no network; returns the time until all of its static pods run.
fn boot(cluster: &Cluster, uplink: &Rc<Uplink>, policy: &str) -> Duration {
    let mut node = EdgeNode::bare(cluster, &policy.to_lowercase());
    node.import_busybox(cluster);
    node.wrapper = crate::registry::with_name_server(node.root(), &uplink.bridge_ip().to_string());
    node.uplink = Some(Rc::clone(uplink));
    let folder = node.root().join("etc/edge-runtime/manifests");
    std::fs::create_dir_all(&folder).expect("a folder");
    for number in 0..PODS {
        let name = format!("p{number}");
        let container = with(shell("c", "exec sleep 1000"), &json!({"imagePullPolicy": policy}));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
        });
        std::fs::write(folder.join(format!("{name}.json")), pod.to_string()).expect("written");
    }
    let start = Instant::now();
    node.start();
    let pid = node.daemon.as_ref().expect("it was started").pid();
    // The folder is on a file system that only processes of the node see.
    let bundles = format!("/proc/{pid}/root{}/run/edge-runtime/containers", node.root().display());
    until(Duration::from_secs(60), "all containers run", || {
        let entries = std::fs::read_dir(&bundles).into_iter().flatten().flatten();
        let running = entries.filter(|entry| entry.path().join("pid").exists()).count();
        if running == PODS { Ok(()) } else { Err(format!("{running} of {PODS}: {}", node.log())) }
    });
    start.elapsed()
}
