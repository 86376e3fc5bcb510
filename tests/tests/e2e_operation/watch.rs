//! Events and resource usage, as shown to a user on the node.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use sampan_tests::manifest::{pod, shell};
use sampan_tests::process::binary;
use sampan_tests::{Cluster, can_run, until};
use serde_json::{Value, json};

#[test]
fn what_has_happened_stays_known_when_the_bridge_has_it() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("events");
    let mut node = cluster.node(&format!("edge-{}", cluster.kubectl.namespace));
    let (kubectl, on) = (cluster.kubectl.clone(), node.name.clone());
    kubectl.apply_all(&[pod("web", &on, json!([shell("c", "exec sleep 1000")]))]);
    kubectl.wait_ready("web");
    kubectl.wait_event("web", "Started");
    let namespace = kubectl.namespace.clone();
    let shown = until(Duration::from_secs(10), "it is known here, too", || {
        let text = node.edge(&["events"])?;
        if text.contains("Started") && text.contains("Starting") { Ok(text) } else { Err(text) }
    });
    assert!(shown.contains(&format!("{namespace}/web")) && shown.contains(&format!("node {on}")), "{shown}");
    let of_pod = node.edge_ok(&["events", "--for", "web", "-o", "json"]);
    let events: Vec<Value> = of_pod.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let reasons: Vec<&str> = events.iter().filter_map(|event| event["reason"].as_str()).collect();
    assert!(reasons.ends_with(&["Started"]) && reasons.contains(&"Created"), "{reasons:?}");
    // A client follows events while the daemon is killed, starts again and stops the pod, without a bridge.
    let mut follower = Command::new(binary("edge-runtime"));
    follower.args(["events", "-f", "--tail", "0", "--root"]).arg(node.root()).stdout(Stdio::piped());
    let mut follower = follower.spawn().expect("it starts");
    let mut text = String::new();
    let mut out = follower.stdout.take().expect("a pipe");
    let mut read_until = |wanted: &str| {
        while !text.contains(wanted) {
            let mut some = [0; 4096];
            let length = out.read(&mut some).expect("it goes on");
            assert!(length > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&some[..length]));
        }
        text.clone()
    };
    // It begins with existing events.
    read_until("MESSAGE");
    cluster.kill_bridge();
    node.kill();
    node.start();
    let text = read_until("Starting edge-runtime.");
    let _ = follower.kill();
    let _ = follower.wait();
    // A daemon that is killed right after a start reports that start again, but not the image, which it has reported
    // before.
    assert!(!text.contains("already present"), "old ones were not asked for: {text}");
    cluster.start_bridge();
}

#[test]
fn top_shows_who_uses_what_with_and_without_the_daemon() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("top");
    let mut node = cluster.node(&format!("edge-{}", cluster.kubectl.namespace));
    let (kubectl, on) = (cluster.kubectl.clone(), node.name.clone());
    let lazy = shell("lazy", "exec sleep 1000");
    kubectl.apply_all(&[
        pod("busy", &on, json!([shell("burn", "while true; do :; done"), lazy.clone()])),
        pod("idle", &on, json!([lazy])),
    ]);
    ["busy", "idle"].into_iter().for_each(|name| drop(kubectl.wait_ready(name)));
    for daemon in [true, false] {
        if !daemon {
            node.kill();
        }
        let view: Value = serde_json::from_str(&node.edge_ok(&["top", "-o", "json"])).expect("JSON");
        assert_eq!(view["node"]["name"], on.as_str(), "{view}");
        assert!(view["node"]["memoryBytes"].as_u64() > Some(10 << 20), "{view}");
        // The pod with the highest usage is first.
        let first = &view["pods"][0];
        assert_eq!(first["name"], "busy", "{view}");
        assert!(first["cpuPercent"].as_f64() > Some(5.0), "{view}");
        let burn = first["containers"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "burn"));
        let burn = burn.unwrap_or_else(|| panic!("{view}"));
        assert!(burn["cpuPercent"].as_f64() > Some(5.0) && burn["memoryBytes"].as_u64() > Some(1000), "{view}");
        assert_eq!(burn["state"], "Running");
        let text = node.edge_ok(&["top", "--once", "--sort", "name"]);
        assert!(text.contains(&on) && text.contains("NAMESPACE") && text.contains("burn"), "{text}");
    }
    // On a terminal it redraws; after q or a signal it ends and restores the screen.
    for end in ["q", "TERM"] {
        let line = format!("{} top --root {}", binary("edge-runtime").display(), node.root().display());
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut terminal = terminal.spawn().expect("script of util-linux starts");
        let (mut input, mut output) = (terminal.stdin.take().expect("a pipe"), terminal.stdout.take().expect("a pipe"));
        let mut text = String::new();
        let mut more = |text: &mut String| {
            let mut some = [0; 4096];
            let length = output.read(&mut some).unwrap_or(0);
            text.push_str(&String::from_utf8_lossy(&some[..length]));
            length > 0
        };
        while text.matches("NAMESPACE").count() < 2 {
            assert!(more(&mut text), "{text:?}");
        }
        match end {
            "q" => input.write_all(b"q").expect("pressed"),
            signal => {
                let pid = child_of(terminal.id());
                sampan_tests::process::signal(pid, signal);
            }
        }
        while more(&mut text) {}
        assert!(terminal.wait().expect("it ends").success(), "{text:?}");
        assert!(text.contains("\u{1b}[?1049h") && text.trim_end().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{text:?}");
    }
}

/// The last process of a chain of first children (`script`, perhaps a shell, then the program).
fn child_of(mut pid: u32) -> u32 {
    loop {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        match children.split_whitespace().next().and_then(|word| word.parse().ok()) {
            Some(child) => pid = child,
            None => return pid,
        }
    }
}
