//! AppArmor: a kernel without it, and profiles on a kernel with it (test/e2e/node/apparmor.go).

use std::io::Write;
use std::process::{Command, Stdio};

use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run};
use serde_json::{Value, json};

use crate::{node_with, once, status};

/// A profile that allows everything except one folder.
const OWN: &str = "profile sampan-test flags=(attach_disconnected,mediate_deleted) {
  capability, network, file, umount, signal, ptrace,
  deny /forbidden/** w,
}
";

#[test]
fn profiles_hold_where_the_kernel_can() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("apparmor");
    let node = node_with(&cluster, "");
    let enabled = std::fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    if enabled.starts_with('Y') {
        profiles_are_enforced(&cluster.kubectl, &node)
    } else {
        refused(&cluster.kubectl, &node)
    }
}

fn wish(kind: &str, name: Option<&str>) -> Value {
    json!({"securityContext": {"appArmorProfile": {"type": kind, "localhostProfile": name}}})
}

fn refused(kubectl: &Kubectl, node: &EdgeNode) {
    kubectl.apply_all(&[once("apparmor", node, "true", &wish("RuntimeDefault", None), &json!({}))]);
    let refused = kubectl.wait_phase("apparmor", "Failed");
    assert_eq!(refused["status"]["reason"], "AppArmor", "{refused}");
    let message = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("Cannot enforce AppArmor: AppArmor is not enabled on the host"), "{message}");
}

fn profiles_are_enforced(kubectl: &Kubectl, node: &EdgeNode) {
    parser("-r");
    let none = json!({});
    let report = "cat /proc/self/attr/current; mkdir -p /forbidden /m; touch /forbidden/x 2>/dev/null && echo written; \
        mount -t tmpfs none /m 2>/dev/null && echo mounted; true";
    let may_mount = json!({"capabilities": {"add": ["SYS_ADMIN"]}});
    kubectl.apply_all(&[
        once("by-default", node, report, &none, &may_mount),
        once("default", node, report, &wish("RuntimeDefault", None), &may_mount),
        once("own", node, report, &wish("Localhost", Some("sampan-test")), &none),
        once("unconfined", node, report, &wish("Unconfined", None), &may_mount),
        once("gone", node, report, &wish("Localhost", Some("sampan-nobody")), &none),
    ]);
    for (name, expected) in [
        ("by-default", "sampan-default (enforce)\nwritten\n"),
        ("default", "sampan-default (enforce)\nwritten\n"),
        ("own", "sampan-test (enforce)\n"),
        ("unconfined", "unconfined\nwritten\nmounted\n"),
    ] {
        kubectl.wait_pod(name, 20, "has ended", |pod| !status(pod)["state"]["terminated"].is_null());
        assert_eq!(kubectl.ok(&["logs", name]).replace('\0', ""), expected, "{name}");
    }
    let gone = kubectl.wait_pod("gone", 20, "waits", |pod| status(pod)["state"]["waiting"]["message"].is_string());
    let message = status(&gone)["state"]["waiting"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("apparmor profile not found sampan-nobody"), "{message}");
    let _ = kubectl.ok(&["delete", "pod", "--all", "--wait=false"]);
    kubectl.wait_gone("pod", "own", 20);
    parser("-R");
}

fn parser(verb: &str) {
    let mut command = Command::new("apparmor_parser");
    let mut child = command.arg("-K").arg(verb).stdin(Stdio::piped()).spawn().expect("apparmor_parser starts");
    child.stdin.take().expect("a pipe").write_all(OWN.as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success(), "apparmor_parser {verb}");
}
