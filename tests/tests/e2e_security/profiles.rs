//! Seccomp profiles, sysctls, identity.

use sampan_tests::{Cluster, can_run};
use serde_json::{Value, json};

use crate::{node_with, once, status};

/// Denies only mkdir.
const NO_MKDIR: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW",
    "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}"#;

#[test]
fn profiles_sysctls_and_identity_reach_the_process() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("profiles");
    let node = node_with(&cluster, "security: {allowed-unsafe-sysctls: [net.core.somaxconn]}\n");
    let profiles = node.root().join("var/lib/edge-runtime/seccomp/team");
    std::fs::create_dir_all(&profiles).expect("a folder");
    std::fs::write(profiles.join("no-mkdir.json"), NO_MKDIR).expect("a profile");
    let kubectl = &cluster.kubectl;

    let seccomp = |kind: &str| json!({"securityContext": {"seccompProfile": {"type": kind}}});
    let local = |name: &str| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": name}});
    let report =
        "grep ^Seccomp: /proc/self/status; unshare -U true 2>/dev/null && echo unshared; mkdir /x && echo made";
    let sysctls = |list: Value| json!({"securityContext": {"sysctls": list}});
    let groups = json!({"securityContext": {"runAsUser": 33, "supplementalGroups": [60000, 500],
        "supplementalGroupsPolicy": "Strict", "fsGroup": 700}});
    let read = "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/core/somaxconn \
        /proc/sys/net/ipv4/ip_unprivileged_port_start";
    let wished = json!([{"name": "kernel.shm_rmid_forced", "value": "1"},
        {"name": "net/core/somaxconn", "value": "77"}]);
    let none = json!({});
    kubectl.apply_all(&[
        once("unconfined", &node, report, &none, &none),
        once("default", &node, report, &seccomp("RuntimeDefault"), &none),
        once(
            "overridden",
            &node,
            report,
            &seccomp("RuntimeDefault"),
            &json!({"seccompProfile": {"type": "Unconfined"}}),
        ),
        once("privileged", &node, report, &seccomp("RuntimeDefault"), &json!({"privileged": true})),
        once("local", &node, report, &none, &local("team/no-mkdir.json")),
        once("missing", &node, report, &none, &local("team/none.json")),
        once("sysctls", &node, read, &sysctls(wished), &none),
        once("unsafe", &node, read, &sysctls(json!([{"name": "kernel.msgmax", "value": "10000000000"}])), &none),
        once("groups", &node, "id -u; id -G", &groups, &none),
    ]);

    for (name, expected) in [
        ("unconfined", "Seccomp:\t0\nunshared\nmade\n"),
        ("default", "Seccomp:\t2\nmade\n"),
        ("overridden", "Seccomp:\t0\nunshared\nmade\n"),
        ("privileged", "Seccomp:\t0\nunshared\nmade\n"),
        ("local", "Seccomp:\t2\nunshared\n"),
        ("sysctls", "1\n77\n0\n"),
        ("groups", "33\n33 500 700 60000\n"),
    ] {
        kubectl.wait_pod(name, 20, "has ended", |pod| !status(pod)["state"]["terminated"].is_null());
        let log = kubectl.ok(&["logs", name]);
        // The message of a refused call is on the other output.
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains("not permitted")).collect();
        assert_eq!(lines.join("\n") + "\n", expected, "{name}");
    }
    let pod = kubectl.wait_phase("groups", "Succeeded");
    let user = json!({"linux": {"uid": 33, "gid": 33, "supplementalGroups": [33, 500, 700, 60000]}});
    assert_eq!(status(&pod)["user"], user);

    let missing = kubectl
        .wait_pod("missing", 15, "waits", |pod| status(pod)["state"]["waiting"]["reason"] == "CreateContainerError");
    let message = status(&missing)["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("cannot load seccomp profile") && message.contains("team/none.json"), "{message}");

    let refused = kubectl.wait_phase("unsafe", "Failed");
    assert_eq!(refused["status"]["reason"], "SysctlForbidden", "{refused}");
    let message = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("forbidden sysctl: \"kernel.msgmax\" not allowlisted"), "{message}");
    let object = kubectl.get("node", &node.name).expect("the node");
    assert_eq!(object["status"]["features"]["supplementalGroupsPolicy"], true, "{object}");
}
