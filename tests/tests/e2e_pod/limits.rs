//! Resources in the pod's cgroup, the security context, and fields that this node refuses.

use std::path::PathBuf;

use sampan_tests::manifest::{container_id, pod, shell, with, with_spec};
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::{Value, json};

use crate::status;

/// A control file of the container's own cgroup, named for cgroup v1 and v2.
pub(crate) fn cgroup_file(node: &EdgeNode, id: &str, v1: (&str, &str), v2: &str) -> String {
    let pid = node.container_pids()[id];
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process is there");
    let of = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let names = parts.next()?;
            let path = parts.next()?.trim_start_matches('/').to_owned();
            names.split(',').any(|name| name == controller).then_some(path)
        })
    };
    let file = match of(v1.0) {
        Some(path) => PathBuf::from("/sys/fs/cgroup").join(v1.0).join(path).join(v1.1),
        None => PathBuf::from("/sys/fs/cgroup").join(of("").expect("a v2 cgroup")).join(v2),
    };
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).trim().to_owned()
}

fn secure(name: &str, script: &str, context: &Value) -> Value {
    with(shell(name, script), &json!({"securityContext": context}))
}

#[test]
fn limits_and_identity_reach_the_process() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("limits");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let resources = json!({"requests": {"cpu": "250m"}, "limits": {"memory": "32Mi", "cpu": "500m"}});
    let bounded = with(shell("c", "exec sleep 1000"), &json!({"resources": resources}));
    let report = "id -u; id -g; grep CapEff /proc/self/status; grep NoNewPrivs /proc/self/status; touch /x || echo ro";
    let context = json!({"runAsUser": 1000, "runAsGroup": 1001, "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let never = json!({"restartPolicy": "Never"});
    let caps = "grep CapEff /proc/self/status";
    let one = json!({"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}});
    let eater = with(shell("c", "tail /dev/zero"), &json!({"resources": {"limits": {"memory": "16Mi"}}}));
    kubectl.apply_all(&[
        pod("bounded", on, json!([bounded])),
        with_spec(pod("user", on, json!([secure("c", report, &context)])), &never),
        with_spec(pod("one-cap", on, json!([secure("c", caps, &one)])), &never),
        pod("root", on, json!([secure("c", "exec sleep 1000", &json!({"runAsNonRoot": true}))])),
        with_spec(pod("eater", on, json!([eater])), &never),
    ]);

    let ready = kubectl.wait_ready("bounded");
    let id = container_id(&status(&ready, "c"));
    assert_eq!(cgroup_file(&node, &id, ("memory", "memory.limit_in_bytes"), "memory.max"), (32 << 20).to_string());
    let quota = cgroup_file(&node, &id, ("cpu", "cpu.cfs_quota_us"), "cpu.max");
    assert!(quota == "50000" || quota == "50000 100000", "{quota}");
    let shares = cgroup_file(&node, &id, ("cpu", "cpu.shares"), "cpu.weight");
    // 35 by the newer conversion of shares, which the node itself uses.
    assert!(shares == "256" || shares == "35", "{shares}");
    assert_eq!(ready["status"]["qosClass"], "Burstable");

    kubectl.wait_phase("user", "Succeeded");
    let log = kubectl.ok(&["logs", "user"]);
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.first_chunk(), Some(&["1000", "1001"]), "{log}");
    assert!(log.contains("CapEff:\t0000000000000000") && log.contains("NoNewPrivs:\t1"), "{log}");
    // The two outputs are two pipes, so their lines arrive in any order.
    assert!(log.contains("Read-only file system") && log.lines().any(|line| line == "ro"), "{log}");
    kubectl.wait_phase("one-cap", "Succeeded");
    assert_eq!(kubectl.ok(&["logs", "one-cap"]), "CapEff:\t0000000000000400\n");

    let refused = kubectl.wait_pod("root", 15, "is refused", |pod| {
        status(pod, "c")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    let message = status(&refused, "c")["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("container has runAsNonRoot and image will run as root"), "{message}");

    let eaten = kubectl.wait_phase("eater", "Failed");
    let end = &status(&eaten, "c")["state"]["terminated"];
    assert_eq!((&end["reason"], &end["exitCode"]), (&json!("OOMKilled"), &json!(137)), "{end}");
}
