//! The kubelet API of a node at its bridge: which client may use which address, by certificate and by bearer token; and at
//! another bridge.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sampan_tests::faults::{FaultProxy, Faults};
use sampan_tests::manifest::{pod, shell};
use sampan_tests::ports::free_address;
use sampan_tests::{Cluster, EdgeNode, Kubectl, can_run, until};
use serde_json::{Value, json};

use crate::{bridge, kubeconfig, replica_of, replica_with, seen};

/// A field of the kubeconfig, decoded into a file.
fn decoded(kubectl: &Kubectl, folder: &Path, field: &str) -> PathBuf {
    let path = folder.join(field.rsplit('.').next().unwrap_or(field));
    let text = kubectl.ok(&["config", "view", "--raw", "-o", &format!("jsonpath={{{field}}}")]);
    std::fs::write(folder.join("base64"), text).expect("written");
    let script = "base64 -d \"$0\" >\"$1\"";
    let done = Command::new("sh").args(["-c", script]).arg(folder.join("base64")).arg(&path).status();
    assert!(done.expect("sh starts").success(), "{field} is base64");
    path
}

/// A token of a service account of the test's namespace.
pub(crate) fn token(cluster: &Cluster, account: &str) -> String {
    let kubectl = &cluster.kubectl;
    let request = cluster.folder().join("request.json");
    let text = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    std::fs::write(&request, text.to_string()).expect("written");
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", kubectl.namespace);
    let answer = kubectl.ok(&["create", "--raw", &path, "-f", &request.display().to_string()]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

/// Status and body of a request, with additional arguments of curl.
fn ask(url: &str, more: &[&str]) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["-sk", "--max-time", "20", "-w", "\n%{http_code}"]).args(more).arg(url);
    let output = command.output().expect("curl starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').expect("a status");
    (code.to_owned(), body.to_owned())
}

/// Arguments of curl for a client that may use the nodes: on the embedded API its administrator, whose certificate the bridge
/// checks, else a service account. `binding` is created for that one.
fn trusted(cluster: &Cluster, binding: &str) -> Vec<String> {
    let kubectl = &cluster.kubectl;
    if cluster.api_address().is_some() {
        let certificate = decoded(kubectl, cluster.folder(), ".users[0].user.client-certificate-data");
        let key = decoded(kubectl, cluster.folder(), ".users[0].user.client-key-data");
        return ["--cert".into(), certificate.display().to_string(), "--key".into(), key.display().to_string()].into();
    }
    let account = format!("--serviceaccount={}:reader", kubectl.namespace);
    let role = "--clusterrole=system:kubelet-api-admin";
    let _ = kubectl.ok(&["create", "clusterrolebinding", binding, role, &account]);
    ["-H".into(), format!("Authorization: Bearer {}", token(cluster, "reader"))].into()
}

/// Deletes what [`trusted`] has created.
fn trust_no_more(cluster: &Cluster, binding: &str) {
    if cluster.api_address().is_none() {
        let _ = cluster.kubectl.ok(&["delete", "clusterrolebinding", binding]);
    }
}

/// URL of a node's kubelet API, by its Node object.
fn kubelet_url(kubectl: &Kubectl, node: &str) -> String {
    let status = kubectl.get("node", node).expect("the node")["status"].clone();
    let address = status["addresses"].as_array().into_iter().flatten().find(|one| one["type"] == "InternalIP");
    let address = address.and_then(|one| one["address"].as_str()).expect("an address").to_owned();
    format!("https://{address}:{}", status["daemonEndpoints"]["kubeletEndpoint"]["Port"])
}

#[test]
fn who_may_use_the_kubelet_api_of_a_node() {
    if !can_run() || Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let cluster = Cluster::start("kubelet");
    let kubectl = &cluster.kubectl;
    let ca = decoded(kubectl, cluster.folder(), ".clusters[0].cluster.certificate-authority-data");
    let replica = replica_with(&cluster, 3, Some(&ca));
    let name = format!("asked-{}", kubectl.namespace);
    let join = bridge(&["token", "create", &name], &kubeconfig(&cluster));
    let join = join.split_whitespace().find(|word| word.starts_with("sampan1.")).expect("a token").to_owned();
    let mut node = EdgeNode::bare(&cluster, &name);
    node.edge_ok(&["join", "--bridge", &format!("https://{}", replica.listen), "--token", &join, "--node", &name]);
    node.import_busybox(&cluster);
    node.start();
    node.wait_ready();
    kubectl.apply_all(&[pod("speaks", &name, json!([shell("c", "echo here; exec sleep 1000")]))]);
    kubectl.wait_ready("speaks");
    let url = kubelet_url(kubectl, &name);
    let of_pod = format!("{}/speaks/c", kubectl.namespace);
    // Answers of each address to an authorized client (K8s pkg/kubelet/server/server.go); an exec needs an upgrade.
    let doors = [
        ("GET", "/healthz".to_owned(), "200", "ok"),
        ("GET", "/pods".to_owned(), "200", "\"speaks\""),
        ("GET", "/stats/summary".to_owned(), "200", "\"nodeName\""),
        ("GET", "/metrics/resource".to_owned(), "200", "node_cpu_usage_seconds_total"),
        ("GET", format!("/containerLogs/{of_pod}"), "200", "here"),
        ("POST", format!("/exec/{of_pod}?output=1&command=ls"), "400", "pgrade"),
    ];
    let _ = kubectl.ok(&["create", "serviceaccount", "reader"]);
    let _ = kubectl.ok(&["create", "serviceaccount", "stranger"]);
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let stranger = bearer(&token(&cluster, "stranger"));
    let binding = format!("reader-{}", kubectl.namespace);
    let trusted = trusted(&cluster, &binding);
    let trusted: Vec<&str> = trusted.iter().map(String::as_str).collect();
    for (method, path, code, text) in &doors {
        let at = |more: &[&str]| ask(&format!("{url}{path}"), &[&["-X", *method], more].concat());
        assert_eq!(at(&[]).0, "401", "{path} to nobody");
        assert_eq!(at(&["-H", &bearer("nonsense")]).0, "401", "{path} to who has no token of this cluster");
        let (refused, why) = at(&["-H", &stranger]);
        let user = format!("user=system:serviceaccount:{}:stranger", kubectl.namespace);
        assert!(refused == "403" && why.contains(&user), "{path} to a stranger: {refused} {why}");
        // Bindings and statistics take effect after a moment.
        until(Duration::from_secs(20), path, || {
            let (answered, body) = at(&trusted);
            if answered == *code && body.contains(text) { Ok(()) } else { Err(format!("{answered} {body}")) }
        });
    }
    trust_no_more(&cluster, &binding);
}

/// A node moves from one bridge to another, and a client still asks the first one.
#[test]
fn bridge_without_the_node_forwards_kubelet_requests() {
    if !can_run() || Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let cluster = Cluster::start("forward");
    let kubectl = &cluster.kubectl;
    let ca = decoded(kubectl, cluster.folder(), ".clusters[0].cluster.certificate-authority-data");
    let [one, mut two] = [8, 9].map(|number| {
        let place = free_address();
        let of_replicas = ["--replica-listen", &place.to_string(), "--replica-address", &place.ip().to_string()];
        replica_of(&cluster, number, Some(&ca), &of_replicas)
    });
    let way = FaultProxy::start(one.listen.ip(), one.listen);
    let name = format!("moved-{}", kubectl.namespace);
    let join = bridge(&["token", "create", &name], &kubeconfig(&cluster));
    let join = join.split_whitespace().find(|word| word.starts_with("sampan1.")).expect("a token").to_owned();
    let mut node = EdgeNode::bare(&cluster, &name);
    let second = format!("https://{}", two.listen);
    node.edge_ok(&["join", "--bridge", &way.url(), "--bridge", &second, "--token", &join, "--node", &name]);
    node.import_busybox(&cluster);
    node.start();
    node.wait_ready();
    kubectl.apply_all(&[pod("speaks", &name, json!([shell("c", "echo here; exec sleep 1000")]))]);
    kubectl.wait_ready("speaks");
    let url = kubelet_url(kubectl, &name);
    assert!(url.contains(":248"), "it is at the first bridge: {url}");

    way.set(Faults { refuse: true, ..Faults::default() });
    way.cut();
    until(Duration::from_secs(60), "the node is at the second bridge", || {
        let view = seen(&cluster, &two, &name).ok_or("not there yet")?;
        if view["connected"] == true { Ok(()) } else { Err(view.to_string()) }
    });
    let _ = kubectl.ok(&["create", "serviceaccount", "reader"]);
    let binding = format!("reader-{}", kubectl.namespace);
    let trusted = trusted(&cluster, &binding);
    let trusted: Vec<&str> = trusted.iter().map(String::as_str).collect();
    for (path, text) in [
        (format!("/containerLogs/{}/speaks/c", kubectl.namespace), "here"),
        ("/stats/summary".to_owned(), "\"nodeName\""),
        ("/metrics/resource".to_owned(), "node_cpu_usage_seconds_total"),
        ("/healthz".to_owned(), "ok"),
    ] {
        until(Duration::from_secs(30), &path, || match ask(&format!("{url}{path}"), &trusted) {
            (code, body) if code == "200" && body.contains(text) => Ok(()),
            (code, body) => Err(format!("{code} {body}")),
        });
        assert_eq!(ask(&format!("{url}{path}"), &[]).0, "401", "{path} to nobody");
    }
    let moved = kubelet_url(kubectl, &name);
    assert!(moved.contains(":249"), "its Node names the second bridge: {moved}");

    two.process.kill();
    until(Duration::from_secs(30), "the first bridge says that the second is gone", || {
        let (code, body) = ask(&format!("{url}/healthz"), &trusted);
        if code == "503" && body.contains("cannot be reached") { Ok(()) } else { Err(format!("{code} {body}")) }
    });
    trust_no_more(&cluster, &binding);
}
