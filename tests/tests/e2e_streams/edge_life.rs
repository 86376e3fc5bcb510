//! The device's side: `kubectl run` with input, terminals, and commands when the daemon is killed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::node::BUSYBOX;
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, until};
use serde_json::{Value, json};

use crate::exec::processes;
use crate::{kubectls, text, with_input};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn input_terminals_and_a_killed_daemon() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("edgelife");
    let mut node = cluster.node("edge");
    for kubectl in kubectls(&cluster) {
        inline_execution(&kubectl, &node.name);
        terminal(&kubectl, &node.name);
    }
    killed_daemon(&cluster, &mut node);
    usage(&cluster, &node);
    cut_link(&mut cluster, &node);
}

/// As K8s test/e2e/kubectl/kubectl.go "should support inline execution and attach".
fn inline_execution(kubectl: &Kubectl, node: &str) {
    let overrides = json!({"spec": {"nodeName": node, "terminationGracePeriodSeconds": 0}}).to_string();
    let run = |name: &str, flags: &[&str], script: &str, input: &[u8]| {
        let image = format!("--image={BUSYBOX}");
        let overrides = format!("--overrides={overrides}");
        let usual = ["--restart=OnFailure", "--image-pull-policy=Never", "--attach=true", "--pod-running-timeout=30s"];
        let all = [&["run", name, &image, &overrides], &usual[..], flags, &["--", "sh", "-c", script]].concat();
        let output = with_input(&mut kubectl.command(&all), input);
        assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    };
    run("run-1", &["--stdin"], "echo -n read: && cat && echo 'stdin closed'", b"value\nabcd1234");
    let log = kubectl.wait_log("run-1", "stdin closed");
    assert_eq!(log, "read:value\nabcd1234stdin closed\n");

    let open = ["--stdin", "--leave-stdin-open=true"];
    run("run-2", &open, "cat && echo 'stdin closed'", b"abcd1234\n");
    assert_eq!(kubectl.wait_log("run-2", "abcd1234"), "abcd1234\n");
    kubectl.wait_ready("run-2");
    for pod in ["run-1", "run-2"] {
        let _ = kubectl.ok(&["delete", "pod", pod, "--wait=true"]);
    }
}

/// `script` gives kubectl a terminal.
fn terminal(kubectl: &Kubectl, node: &str) {
    let it = with(shell("c", "echo up; exec sh"), &json!({"stdin": true, "tty": true}));
    kubectl.apply_all(&[with_spec(pod("tty", node, json!([it])), &json!({"restartPolicy": "Never"}))]);
    kubectl.wait_ready("tty");
    let attach = format!(
        "stty rows 41 cols 101; {} --kubeconfig {} -n {} attach -it tty -c c",
        kubectl.program.display(),
        kubectl.kubeconfig.display(),
        kubectl.namespace
    );
    let mut command = Command::new("script");
    command.args(["-qec", &attach, "/dev/null"]).env("HOME", "/tmp");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut seen = Vec::new();
    // The size arrives after the first bytes, so a shell that starts early asks again.
    let asks = b"until [ \"$(stty size)\" = \"41 101\" ]; do sleep 0.1; done; tty; echo $TERM $((6*7)).; exit 5\n";
    stdin.write_all(asks).expect("script reads");
    assert!(
        lines.by_ref().any(|line| {
            seen.push(line.clone());
            line.contains("xterm 42.")
        }),
        "{seen:?}"
    );
    assert!(lines.count() < 100);
    child.wait().expect("script ends");
    let done = kubectl.wait_phase("tty", "Failed");
    assert_eq!(done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 5, "{done}");
    let log = kubectl.ok(&["logs", "tty"]);
    assert!(log.starts_with("up\r\n") && log.contains("/dev/"), "{log:?}");
    let _ = kubectl.ok(&["delete", "pod", "tty", "--wait=true"]);
}

fn killed_daemon(cluster: &Cluster, node: &mut EdgeNode) {
    let kubectl = &cluster.kubectl;
    let cat = with(shell("c", "while read x; do echo got $x; done"), &json!({"stdin": true}));
    let busy = shell("busy", "while :; do :; done");
    kubectl.apply_all(&[pod("p", &node.name, json!([cat, busy]))]);
    kubectl.wait_ready("p");
    let sleep = ["sleep", "6543"];
    let mut child = kubectl.command(&["exec", "p", "-c", "c", "--", "sleep", "6543"]).spawn().expect("kubectl starts");
    let is = |count: usize| move || if processes(&sleep) == count { Ok(()) } else { Err("no".to_owned()) };
    until(SOON, "the command runs", is(1));
    node.kill();
    let status = until(SOON, "kubectl ends with the link", || match child.try_wait() {
        Ok(Some(status)) => Ok(status),
        other => Err(format!("{other:?}")),
    });
    assert!(!status.success(), "{status}");
    node.start();
    node.wait_connected(cluster);
    until(SOON, "the command ends with the next daemon", is(0));
    // Containers that this daemon did not start.
    let code = kubectl.command(&["exec", "p", "-c", "c", "--", "sh", "-c", "exit 9"]).output().expect("it starts");
    assert_eq!(code.status.code(), Some(9), "{}", text(&code.stderr));
    assert_eq!(node.edge_ok(&["exec", "p", "-c", "c", "--", "sh", "-c", "echo here"]), "here\n");
    let missing = kubectl.command(&["exec", "p", "-c", "c", "--", "nosuch"]).output().expect("it starts");
    let said = text(&missing.stderr);
    assert_eq!(missing.status.code(), Some(127), "{said}");
    assert!(said.contains("OCI runtime exec failed") && said.contains("executable file not found in $PATH"), "{said}");
    let mut child = kubectl.command(&["attach", "-i", "p", "-c", "c"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("kubectl starts");
    child.stdin.as_mut().expect("a pipe").write_all(b"again\n").expect("kubectl reads");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "got again"));
    child.kill().expect("kubectl is killed");
    child.wait().expect("kubectl ends");
}

fn usage(cluster: &Cluster, node: &EdgeNode) {
    if !cluster.proxies_to_nodes() {
        return;
    }
    let path = format!("/api/v1/nodes/{}/proxy/stats/summary", node.name);
    let summary: Value = serde_json::from_str(&cluster.kubectl.ok(&["get", "--raw", &path])).expect("JSON");
    let all = summary["pods"].as_array().expect("pods");
    let pod = all.iter().find(|pod| pod["podRef"]["name"] == "p").expect("the pod");
    let busy = pod["containers"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "busy"));
    let busy = busy.expect("the container");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {summary}"));
    assert!(number(&busy["cpu"]["usageNanoCores"]) > 50_000_000, "{busy}");
    assert!(number(&pod["cpu"]["usageCoreNanoSeconds"]) >= number(&busy["cpu"]["usageCoreNanoSeconds"]), "{pod}");
    for part in [&busy["memory"]["workingSetBytes"], &pod["memory"]["usageBytes"], &busy["rootfs"]["usedBytes"]] {
        assert!(number(part) > 0, "{pod}");
    }
    assert!(number(&busy["logs"]["capacityBytes"]) > 0 && pod["network"]["interfaces"].is_array(), "{pod}");
    let node = &summary["node"];
    assert!(number(&node["cpu"]["usageNanoCores"]) > 0 && number(&node["memory"]["workingSetBytes"]) > 0, "{node}");
    assert!(number(&node["fs"]["usedBytes"]) > 0 && number(&node["runtime"]["imageFs"]["usedBytes"]) > 0, "{node}");
}

fn cut_link(cluster: &mut Cluster, node: &EdgeNode) {
    let sleep = ["sleep", "7654"];
    let is = |count: usize| move || if processes(&sleep) == count { Ok(()) } else { Err("no".to_owned()) };
    let mut child = cluster.kubectl.command(&["exec", "p", "-c", "c", "--", "sleep", "7654"]);
    let mut child = child.stderr(Stdio::null()).spawn().expect("kubectl starts");
    until(SOON, "the command runs", is(1));
    cluster.kill_bridge();
    until(SOON, "the command ends with the link", is(0));
    child.wait().expect("kubectl ends");
    cluster.start_bridge();
    node.wait_connected(cluster);
}
