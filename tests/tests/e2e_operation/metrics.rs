//! Health and metrics of node and bridge, and what is made of them: alerts and a dashboard.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::ports::free_address;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

use super::{asked, assert_provoked, examined, of_node};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The value of the first sample that begins so.
fn value(text: &str, sample: &str) -> Option<f64> {
    let line =
        text.lines().find(|line| line.starts_with(sample) && line[sample.len()..].starts_with(['{', ' ', ',', '}']))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn scraped(node: &EdgeNode) -> String {
    let (status, body) = of_node(node, "/metrics").expect("answered");
    assert!(status.contains(" 200 "), "{status}: {body}");
    body
}

#[test]
fn a_pod_shows_in_the_nodes_metrics() {
    if !can_run() {
        return;
    }
    let port = free_address();
    let cluster = Cluster::start("metrics");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    node.configure(&format!("metrics: {{listen: '{port}'}}\n"));
    node.start();
    node.wait_ready();
    let before = scraped(&node);
    assert_eq!(value(&before, "kubelet_running_pods"), Some(0.0), "{before}");
    assert_eq!(value(&before, "sampan_node_link_up"), Some(1.0), "{before}");
    assert!(before.contains(&format!("kubelet_node_name{{node=\"{}\"}} 1", node.name)), "{before}");
    assert!(before.contains("sampan_node_condition{condition=\"Ready\"} 1"), "{before}");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let probe = json!({"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}});
    kubectl.apply_all(&[pod("busy", on, json!([with(shell("c", "while true; do :; done"), &probe)]))]);
    kubectl.wait_ready("busy");
    let labels = format!("{{container=\"c\",pod=\"busy\",namespace=\"{}\"}}", kubectl.namespace);
    let after = until(Duration::from_secs(20), "the pod uses CPU and is probed", || {
        let text = scraped(&node);
        let used = value(&text, &format!("container_cpu_usage_seconds_total{labels}"));
        let probed = value(&text, "prober_probe_total{probe_type=\"Liveness\",result=\"successful\"}");
        if used > Some(0.1) && probed > Some(0.0) { Ok(text) } else { Err(text) }
    });
    for (sample, least) in [
        ("kubelet_running_pods".to_owned(), 1.0),
        ("kubelet_running_containers{container_state=\"running\"}".to_owned(), 1.0),
        ("sampan_node_link_bytes_total{direction=\"sent\",class=\"message\"}".to_owned(), 1000.0),
        ("sampan_node_link_bytes_total{direction=\"received\",class=\"message\"}".to_owned(), 1000.0),
        ("node_cpu_usage_seconds_total".to_owned(), 1.0),
        ("node_memory_working_set_bytes".to_owned(), 1e7),
        ("process_resident_memory_bytes".to_owned(), 1e6),
        ("process_start_time_seconds".to_owned(), 1.7e9),
        ("sampan_node_image_bytes".to_owned(), 1000.0),
        ("sampan_node_certificate_expiration_seconds".to_owned(), 1.7e9),
        (format!("container_start_time_seconds{labels}"), 1.7e9),
    ] {
        assert!(value(&after, &sample) >= Some(least), "{sample} in\n{after}");
    }
    let grew = |name: &str| assert!(value(&after, name) > value(&before, name), "{name}");
    ["sampan_node_store_commits_total", "sampan_node_loop_turns_total"].into_iter().for_each(grew);
    // Bytes of a stream are of another class.
    let _ = kubectl.ok(&["exec", "busy", "--", "sh", "-c", "yes | head -c 100000"]);
    let streamed = value(&scraped(&node), "sampan_node_link_bytes_total{direction=\"sent\",class=\"stream\"}");
    assert!(streamed > Some(100.0), "{streamed:?}");
    // The port has what the socket has.
    let (status, by_port) = asked(TcpStream::connect(port).expect("listens"), "/metrics").expect("answered");
    assert!(status.contains(" 200 ") && by_port.contains("kubelet_running_pods 1"), "{by_port}");
    // A flood of the port does not block the node or the socket.
    let _flood: Vec<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(port).ok()).collect();
    assert!(of_node(&node, "/livez").is_ok_and(|(status, _)| status.contains(" 200 ")));
    let _ = kubectl.ok(&["exec", "busy", "--", "true"]);
}

#[test]
fn a_node_that_is_not_ready_says_why_until_it_is() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("readyz");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    node.configure("network: {mode: cni}\n");
    node.start();
    let body = until(Duration::from_secs(20), "it is not ready", || match of_node(&node, "/readyz")? {
        (status, body)
            if status.contains(" 503 ")
                && body.contains("[-]node failed")
                && body.contains("network")
                && body.contains("[+]monitor ok") =>
        {
            Ok(body)
        }
        other => Err(format!("{other:?}")),
    });
    assert!(body.contains("network") && body.ends_with("readyz check failed\n"), "{body}");
    let found = examined(node.root(), |_| ());
    assert_provoked(&found, "ready", "error", "the node is not ready: ", "cure what it names");
    assert!(of_node(&node, "/livez").expect("answered").0.contains(" 200 "), "it lives all the same");
    let folder = node.root().join("etc/cni/net.d");
    std::fs::create_dir_all(&folder).expect("a folder");
    let network = json!({"cniVersion": "1.0.0", "name": "e2e", "plugins": [{"type": "loopback"}]});
    std::fs::write(folder.join("10-e2e.conflist"), network.to_string()).expect("written");
    let body = until(Duration::from_secs(60), "it is ready", || match of_node(&node, "/readyz")? {
        (status, body) if status.contains(" 200 ") => Ok(body),
        (_, body) => Err(body),
    });
    assert!(body.contains("[+]node ok") && body.contains("link: connected"), "{body}");
}

#[test]
fn alerts_and_dashboard_name_what_is_there() {
    if !can_run() {
        return;
    }
    let port = free_address();
    let cluster = Cluster::start_with("alerts", &["--metrics-listen", &port.to_string()]);
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let root = cluster.folder().join("kubelet");
    node.configure(&format!("plugins: {{device-plugins: true, root: '{}'}}\n", root.display()));
    node.start();
    node.wait_ready();
    let ask_bridge = |what: &str| asked(TcpStream::connect(port).expect("listens"), what).expect("answered");
    let bridge = until(Duration::from_secs(20), "the bridge has written a report", || {
        let (_, text) = ask_bridge("/metrics");
        if value(&text, "sampan_bridge_reports_written_total") > Some(0.0) { Ok(text) } else { Err(text) }
    });
    assert!(value(&bridge, "sampan_bridge_api_requests_total") > Some(0.0), "{bridge}");
    for (path, status) in [("/livez", " 200 "), ("/healthz", " 200 "), ("/readyz", " 200 "), ("/v1/nodes", " 404 ")] {
        assert!(ask_bridge(path).0.contains(status), "{path}");
    }
    let names = |text: &str| -> BTreeSet<String> {
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned)).collect()
    };
    let printed: BTreeSet<String> = names(&bridge).union(&names(&scraped(&node))).cloned().collect();
    let alerts = std::fs::read_to_string(format!("{REPOSITORY}/deploy/prometheus/alerts.yaml")).expect("it is there");
    let expressions = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned);
    let dashboard = std::fs::read_to_string(format!("{REPOSITORY}/deploy/grafana/sampan.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let targets = dashboard["panels"].as_array().expect("panels").iter().flat_map(|panel| {
        panel["targets"]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .filter_map(|one| one["expr"].as_str().map(str::to_owned))
    });
    let variables = dashboard["templating"]["list"].as_array().expect("variables").iter();
    let variables = variables.filter_map(|one| one["query"].as_str().map(str::to_owned));
    let used: Vec<String> = expressions.chain(targets).chain(variables).collect();
    assert!(used.len() > 40, "{used:?}");
    let begins = ["sampan_", "kubelet_", "container_", "pod_", "node_", "process_", "prober_"];
    let mut seen = 0;
    for expression in &used {
        let words = expression.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
        for word in words.filter(|word| begins.iter().any(|begin| word.starts_with(begin))) {
            assert!(printed.contains(word), "{word} of {expression:?} is printed by no program");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
    // What is told to users is printed, too.
    let told = std::fs::read_to_string(format!("{REPOSITORY}/docs/reference/metrics.md")).expect("it is there");
    for line in told.lines().filter(|line| line.starts_with("| `")) {
        let word = line.trim_start_matches("| `").split(['`', '{']).next().unwrap_or_default();
        if begins.iter().any(|begin| word.starts_with(begin)) {
            assert!(printed.contains(word), "{word} of docs/reference/metrics.md is printed by no program");
        }
    }
    let tests =
        std::fs::read_to_string(format!("{REPOSITORY}/deploy/prometheus/alerts_test.yaml")).expect("it is there");
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(
            tests.contains(&format!("\n        alertname: {name}\n        exp_alerts:\n")),
            "{name} is made to fire by no test"
        );
    }
    let Some(promtool) = promtool() else { return };
    for (verb, file) in [("check", "alerts.yaml"), ("test", "alerts_test.yaml")] {
        let file = format!("{REPOSITORY}/deploy/prometheus/{file}");
        let done = Command::new(&promtool).args([verb, "rules", &file]).output().expect("it starts");
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success() && said.contains("SUCCESS"), "{said}");
    }
    // It reads what both print, and has nothing to say but what it thinks of names that are the kubelet's own.
    for text in [bridge, scraped(&node)] {
        let mut child = Command::new(&promtool)
            .args(["check", "metrics"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), text.as_bytes()).expect("written");
        let done = child.wait_with_output().expect("it ends");
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let of_kubelet =
            |line: &str| ["kubelet_", "container_", "pod_", "node_", "prober_"].iter().any(|own| line.starts_with(own));
        assert!(matches!(done.status.code(), Some(0 | 3)) && said.lines().all(of_kubelet), "{said}");
    }
}

/// That of `PROMTOOL`, of `./scripts/test`, or of this host.
fn promtool() -> Option<PathBuf> {
    let fetched = PathBuf::from(format!("{REPOSITORY}/.cache/promtool/promtool"));
    let named = std::env::var_os("PROMTOOL").map(PathBuf::from);
    let program = named.or_else(|| Some(fetched).filter(|file| file.exists())).unwrap_or_else(|| "promtool".into());
    match Command::new(&program).arg("--version").output() {
        Ok(_) => Some(program),
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "skipped: promtool (Debian: prometheus): {error}");
            None
        }
    }
}
