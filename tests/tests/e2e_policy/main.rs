//! NetworkPolicies for users: which connections pods can make, with the cloud and without it.

mod bounds;
mod offline;
mod reach;

use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::{EdgeNode, Kubectl, until};
use serde_json::{Value, json};

/// A pod that serves its name at 8080, named `http`, and at 8081; ready while the node reaches it.
fn server(name: &str, on: &str, app: &str) -> Value {
    let script = "hostname >/tmp/index.html; httpd -p 8081 -h /tmp; exec httpd -f -p 8080 -h /tmp";
    let probe = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 2});
    let more = json!({"readinessProbe": probe, "ports": [{"name": "http", "containerPort": 8080}]});
    let mut pod = pod(name, on, json!([with(shell("c", script), &more)]));
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

/// A pod that does nothing, with this label `app`.
fn client(name: &str, on: &str, app: &str) -> Value {
    let mut pod = pod(name, on, json!([shell("c", "exec sleep 10000")]));
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

fn policy(name: &str, app: &str, spec: &Value) -> Value {
    let selector = if app.is_empty() { json!({}) } else { json!({"matchLabels": {"app": app}}) };
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
        "spec": with(json!({"podSelector": selector}), spec)})
}

fn ip(kubectl: &Kubectl, pod: &str) -> String {
    kubectl.wait_ready(pod)["status"]["podIP"].as_str().expect("has one").to_owned()
}

/// Whether `url` answers, asked from inside the pod without the cloud.
fn reaches(node: &EdgeNode, pod: &str, url: &str) -> Result<bool, String> {
    let command = format!("timeout 1 wget -qO- {url} >/dev/null 2>&1 && echo yes || echo no");
    let said = node.edge(&["exec", pod, "--", "sh", "-c", &command])?;
    Ok(said.trim() == "yes")
}

/// Waits until this holds three times in a row.
fn wait_reaches(node: &EdgeNode, pod: &str, url: &str, wanted: bool) {
    let what = format!("{pod} {} {url}", if wanted { "reaches" } else { "does not reach" });
    // An unoptimized bridge pauses for seconds after it has read thousands of ranges.
    until(Duration::from_secs(60), &what, || {
        for _ in 0..3 {
            if reaches(node, pod, url)? != wanted {
                return Err(rules());
            }
        }
        Ok(())
    });
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The tables of policies of all nodes on this host.
fn rules() -> String {
    let all = output("nft", &["list", "ruleset"]);
    all.split("table ").filter(|text| text.lines().next().is_some_and(|line| line.contains(" policies-"))).collect()
}

/// Name of the bridge on which a pod is.
fn bridge(ip: &str) -> String {
    let route = output("ip", &["-o", "route", "get", ip]);
    route.split_once(" dev ").and_then(|(_, rest)| rest.split_whitespace().next()).expect("a route").to_owned()
}

/// The tables of policies of the node with this bridge.
fn tables(bridge: &str) -> String {
    let name = format!(" policies-{bridge} {{");
    let all = output("nft", &["list", "ruleset"]);
    all.split("table ")
        .filter(|text| text.lines().next().is_some_and(|line| format!(" {line}").contains(&name)))
        .collect()
}
