//! Services for users: an address that leads to ready pods, with the cloud and without it.

mod addresses;
mod affinity;
mod health;
mod hostile;
mod interests;
mod kills;
mod names;
mod others;
mod outside;
mod traffic;

use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::{Cluster, EdgeNode, Kubectl, until};
use serde_json::{Value, json};

/// A Service of `app`, port 80 to 8080.
fn service(name: &str, app: &str, more: &Value) -> Value {
    let spec = json!({"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": with(spec, more)})
}

/// A pod that serves its name at 8080, logs its clients, and is ready while `/tmp/ready` exists.
fn server(name: &str, on: &str, app: &str) -> Value {
    let script = "hostname >/tmp/index.html; touch /tmp/ready; exec httpd -fv -p 8080 -h /tmp";
    let probe = json!({"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    let container = with(shell("c", script), &json!({"readinessProbe": probe}));
    let mut pod = pod(name, on, json!([container]));
    pod["metadata"]["labels"] = json!({"app": app});
    pod
}

fn client(name: &str, on: &str) -> Value {
    pod(name, on, json!([shell("c", "exec sleep 1000")]))
}

/// Applies an object of another namespace than the test's.
fn apply_in(cluster: &Cluster, namespace: &str, object: &Value) {
    let file =
        cluster.folder().join(format!("{namespace}-{}.json", object["metadata"]["name"].as_str().unwrap_or("x")));
    std::fs::write(&file, object.to_string()).expect("writes");
    let _ = cluster.kubectl.ok(&["apply", "-n", namespace, "-f", file.to_str().expect("UTF-8")]);
}

/// The Service's own address.
fn address(kubectl: &Kubectl, service: &str) -> String {
    kubectl.ok(&["get", "service", service, "-o", "jsonpath={.spec.clusterIP}"])
}

/// The answer of `url`, requested inside the pod without the cloud.
fn fetch(node: &EdgeNode, pod: &str, url: &str) -> Result<String, String> {
    let command = format!("timeout 2 wget -qO- {url} 2>&1 || echo failed");
    let said = node.edge(&["exec", pod, "--", "sh", "-c", &command])?.trim().to_owned();
    if said.ends_with("failed") { Err(said) } else { Ok(said) }
}

/// Waits until exactly these pods answer a series of requests.
fn answered_by(node: &EdgeNode, pod: &str, url: &str, wanted: &[&str]) {
    until(Duration::from_secs(15), &format!("{url} is answered by {wanted:?}"), || {
        let mut seen: Vec<String> = (0..16).map(|_| fetch(node, pod, url)).collect::<Result<_, _>>()?;
        seen.sort();
        seen.dedup();
        if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
    });
}

/// The tables with Services of this test's namespace, as text.
fn tables(node: &EdgeNode) -> String {
    let namespace = format!("-{}/", node.name.trim_start_matches("edge-"));
    let output = Command::new("nft").args(["list", "ruleset"]).output().expect("nft starts");
    // The first table begins the text.
    let all = format!("\n{}", String::from_utf8_lossy(&output.stdout));
    let tables = all.split("\ntable ").filter(|table| table.contains("services-") && table.contains(&namespace));
    // Chains that were added later are listed later.
    let mut lines: Vec<&str> = tables.flat_map(str::lines).collect();
    lines.sort_unstable();
    lines.join("\n")
}
