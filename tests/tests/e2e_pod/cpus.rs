//! CPUs that containers have for themselves: `resources.cpu-manager: static` (K8s test/e2e_node/cpu_manager_test.go).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_tests::manifest::{container_id, pod, shell, with};
use sampan_tests::node::with_systemd;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

use crate::limits::cgroup_file;
use crate::status;

const EFFECTIVE: (&str, &str) = ("cpuset", "cpuset.effective_cpus");

fn listed(text: &str) -> BTreeSet<u32> {
    let number = |text: &str| text.trim().parse::<u32>().expect("the id of a CPU");
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    };
    text.split(',').flat_map(range).collect()
}

/// The CPUs of this machine, if it has enough and the kernel can keep containers on some of them.
fn cpus() -> Option<BTreeSet<u32>> {
    use std::io::Write;
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .map_or_else(|_| BTreeSet::new(), |list| listed(&list));
    let v2 = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    let can = v2.map_or_else(
        |_| Path::new("/sys/fs/cgroup/cpuset").is_dir(),
        |controllers| controllers.split_whitespace().any(|name| name == "cpuset"),
    );
    if !can || online.len() < 2 || !online.contains(&0) {
        let _ = writeln!(std::io::stderr(), "skipped: needs two CPUs and the cpuset controller");
        return None;
    }
    Some(online)
}

fn state(node: &EdgeNode) -> PathBuf {
    node.root().join("var/lib/edge-runtime/cpu_manager_state")
}

#[test]
fn exclusive_cpus_are_kept_from_other_containers() {
    let Some(online) = cpus().filter(|_| can_run()) else { return };
    let cluster = Cluster::start("cpus");
    let kubectl = &cluster.kubectl;
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", kubectl.namespace));
    node.configure("reserved: {cpus: 0}\nresources: {cpu-manager: static}\n");
    node.start();
    let object = node.wait_ready();
    let allocatable = (online.len() - 1).to_string();
    assert_eq!(object["status"]["allocatable"]["cpu"], json!(allocatable), "without the reserved one");

    kubectl.apply_all(&[pod("shares", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    let shares = container_id(&status(&kubectl.wait_ready("shares"), "c"));
    let runs_on = |node: &EdgeNode, id: &str| listed(&cgroup_file(node, id, EFFECTIVE, "cpuset.cpus.effective"));
    assert_eq!(runs_on(&node, &shares), online);

    let limits = json!({"resources": {"limits": {"cpu": "1", "memory": "32Mi"}}});
    kubectl.apply_all(&[pod("own", &node.name, json!([with(shell("c", "exec sleep 1000"), &limits)]))]);
    let ready = kubectl.wait_ready("own");
    let own_id = container_id(&status(&ready, "c"));
    if with_systemd() {
        // It writes values beside the daemon.
        std::thread::sleep(Duration::from_secs(1));
    }
    let own = runs_on(&node, &own_id);
    assert!(own.len() == 1 && !own.contains(&0), "{own:?}");
    let rest: BTreeSet<u32> = online.difference(&own).copied().collect();
    assert_eq!(runs_on(&node, &shares), rest, "since before the start of the other");
    let quota = cgroup_file(&node, &own_id, ("cpu", "cpu.cfs_quota_us"), "cpu.max");
    assert!(quota == "-1" || quota.starts_with("max "), "{quota}");
    let text = std::fs::read_to_string(state(&node)).expect("the state");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let uid = ready["metadata"]["uid"].as_str().expect("a uid");
    let first = own.first().expect("a CPU").to_string();
    assert_eq!((&file["policyName"], &file["entries"]), (&json!("static"), &json!({uid: {"c": first}})));

    node.kill();
    node.start();
    node.wait_ready();
    node.wait_connected(&cluster);
    assert_eq!((runs_on(&node, &own_id), runs_on(&node, &shares)), (own, rest), "as before the restart");
    assert_eq!(std::fs::read_to_string(state(&node)).expect("the state"), text);

    let _ = kubectl.ok(&["delete", "pod", "own", "--wait=false"]);
    kubectl.wait_gone("pod", "own", 30);
    until(Duration::from_secs(15), "all CPUs are shared again", || {
        let now = runs_on(&node, &shares);
        if now == online { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

#[test]
fn without_the_cpu_manager_no_cpuset_is_written() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("no-cpus");
    let node = cluster.node("edge");
    let limits = json!({"resources": {"limits": {"cpu": "100m", "memory": "32Mi"}}});
    cluster.kubectl.apply_all(&[pod("app", &node.name, json!([with(shell("c", "exec sleep 1000"), &limits)]))]);
    let id = container_id(&status(&cluster.kubectl.wait_ready("app"), "c"));
    assert!(!state(&node).exists());
    // On cgroup v1 the OCI runtime copies the set of the parent; systemd makes no file without a value.
    if !with_systemd() && Path::new("/sys/fs/cgroup/cgroup.controllers").exists() && cpus().is_some() {
        assert_eq!(cgroup_file(&node, &id, ("none", ""), "cpuset.cpus"), "");
    }
}
