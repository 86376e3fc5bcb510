//! A node with crun as OCI runtime, which needs cgroups of version 2 alone. A host with both versions shows only the
//! second one in a mount namespace of the test (with the controllers that version 2 has).

use std::io::Write;
use std::path::Path;
use std::process::Command;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

use crate::{node_with, status};

const SCRIPT: &str = "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup \
    && exec \"$0\" --exact crun::pods_run_on_crun --nocapture";

#[test]
fn pods_run_on_crun() {
    if !can_run() || Command::new("crun").arg("--version").output().is_err() {
        // There is nothing to do if stderr is closed.
        let _ = writeln!(std::io::stderr(), "skipped: crun is not installed");
        return;
    }
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        let this = std::env::current_exe().expect("the test's own program");
        let done = Command::new("unshare").args(["--mount", "sh", "-c", SCRIPT]).arg(this).status();
        assert!(done.expect("unshare starts").success(), "the test on cgroup v2 alone");
        return;
    }
    let cluster = Cluster::start("crun");
    let node = node_with(&cluster, "runtime: {command: crun}\n");
    let kubectl = &cluster.kubectl;
    let object = kubectl.get("node", &node.name).expect("the node");
    let version = object["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default();
    assert!(version.starts_with("crun://"), "{version}");

    let probe = json!({"readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}});
    // Otherwise crun raises its limit of locked memory, which is not allowed everywhere.
    let privileged = json!({"securityContext": {"privileged": true, "seccompProfile": {"type": "RuntimeDefault"}}});
    let script = "echo hello; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let container = with(with(shell("c", script), &probe), &privileged);
    let container = with(container, &json!({"workingDir": "/tmp"}));
    kubectl.apply_all(&[pod("p", &node.name, json!([container]))]);
    let ready = kubectl.wait_ready("p");
    assert_eq!(kubectl.ok(&["logs", "p"]), "hello\n");
    assert_eq!(kubectl.ok(&["exec", "p", "--", "pwd"]), "/tmp\n", "crun's own answer is /");
    let score = kubectl.ok(&["exec", "p", "--", "cat", "/proc/self/oom_score_adj"]);
    assert_eq!(score, "1000\n", "crun's own answer is the node's");
    let id = status(&ready)["containerID"].as_str().unwrap_or_default().replace("crun://", "");
    let state = node.root().join("run/edge-runtime/runc").join(id);
    assert!(state.exists(), "{}", state.display());
    let _ = kubectl.ok(&["delete", "pod", "p", "--wait=false"]);
    kubectl.wait_gone("pod", "p", 15);
    assert!(!state.exists(), "{}", state.display());
}
