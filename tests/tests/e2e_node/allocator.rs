//! Settings of the allocator apply only to the node's own processes.

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

#[test]
fn the_node_keeps_no_freed_memory_and_its_containers_know_nothing_of_that() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("allocator");
    let node = cluster.node("edge");
    cluster.kubectl.apply_all(&[pod("plain", &node.name, json!([shell("c", "sleep 1000")]))]);
    cluster.kubectl.wait_ready("plain");
    let read = |pid: u32, what: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{what}")).expect("it runs");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let daemon = node.daemon.as_ref().expect("it runs").pid();
    assert!(read(daemon, "environ").contains("glibc.malloc.tcache_count=0"));
    assert_eq!(read(daemon, "comm"), "edge-runtime\n");
    for pid in node.container_pids().into_values() {
        assert!(!read(pid, "environ").contains("GLIBC_TUNABLES"));
    }
}
