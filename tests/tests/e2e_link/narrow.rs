//! Streams and objects share one slow line.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::{Cluster, FaultProxy, Faults, can_run, until};
use serde_json::{Value, json};

use super::{Background, container_pid, memory_kib, node_behind};

const ROUNDS: usize = 12;

/// Objects reach a node within a second while four logs fill a line of 1 Mbit/s. The data that waits for the line stays
/// in the containers' logs, not in the daemon's memory.
#[test]
fn g18_logs_do_not_stand_in_the_way_of_objects() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start_at("narrow", Ipv4Addr::LOCALHOST.into(), &[]);
    let proxy = FaultProxy::start(Ipv4Addr::LOCALHOST.into(), cluster.listen);
    let node = node_behind(&cluster, "edge", &proxy.url());
    let kubectl = &cluster.kubectl;
    let _ = kubectl.ok(&["create", "configmap", "settings", "--from-literal=k=0"]);
    // Random data, which compression cannot shrink; each container prints 4 MB and then waits.
    let text = "head -c 3000000 /dev/urandom | base64; echo the end; exec sleep 1000";
    let mut pods: Vec<Value> =
        (0..4).map(|n| pod(&format!("talks-{n}"), &node.name, json!([shell("c", text)]))).collect();
    let reads = with(shell("c", "exec sleep 1000"), &json!({"volumeMounts": [{"name": "s", "mountPath": "/s"}]}));
    let reads = pod("reads", &node.name, json!([reads]));
    pods.push(with_spec(reads, &json!({"volumes": [{"name": "s", "configMap": {"name": "settings"}}]})));
    kubectl.apply_all(&pods);
    let reads = kubectl.wait_ready("reads");
    for n in 0..4 {
        kubectl.wait_log(&format!("talks-{n}"), "the end");
    }
    let file = format!("/proc/{}/root/s/k", container_pid(&node, &reads));
    let daemon = node.daemon.as_ref().expect("it runs").pid();
    // What it has needed so far: it may just have returned memory.
    let peak = memory_kib(daemon, "VmHWM");

    proxy.set(Faults { rate: Some(125_000), delay: Duration::from_millis(20), ..Faults::default() });
    let logs: Vec<Background> =
        (0..4).map(|n| Background::start(kubectl, &["logs", "-f", &format!("talks-{n}")])).collect();
    let (start_up, _) = proxy.passed();
    until(Duration::from_secs(40), "the line is full", || {
        let (up, _) = proxy.passed();
        if up.bytes > start_up.bytes + 250_000 { Ok(()) } else { Err(format!("{up:?}")) }
    });
    let (mut worst, mut took) = (0, Vec::new());
    let (before, _) = proxy.passed();
    let measured = Instant::now();
    for round in 1..=ROUNDS {
        let patch = json!({"data": {"k": round.to_string()}}).to_string();
        let _ = kubectl.ok(&["patch", "configmap", "settings", "-p", &patch]);
        let start = Instant::now();
        until(Duration::from_secs(20), "the change is on the node", || match std::fs::read_to_string(&file) {
            Ok(text) if text == round.to_string() => Ok(()),
            other => Err(format!("{other:?}")),
        });
        took.push(start.elapsed());
        worst = worst.max(memory_kib(daemon, "VmRSS"));
    }
    let (after, _) = proxy.passed();
    let rate = (after.bytes - before.bytes) as f64 / measured.elapsed().as_secs_f64();
    took.sort();
    crate::tell(&format!(
        "object to edge behind four logs on 1 Mbit/s: p50 {:?}, worst {:?}; the line carried {rate:.0} B/s of 125000; \
         daemon {peak} KiB before, {worst} KiB at most",
        took[ROUNDS / 2],
        took[ROUNDS - 1]
    ));
    assert!(rate > 60_000.0, "the line was not full: {rate:.0} B/s");
    // A second is the goal on an idle host, and a test host may be busy.
    assert!(took[ROUNDS / 2] < Duration::from_secs(1), "{took:?}");
    assert!(took[ROUNDS - 1] < Duration::from_secs(3), "{took:?}");
    assert!(worst < peak + 8 * 1024, "{peak} KiB before, {worst} KiB at most");
    drop(logs);
}

/// The bridge sends a thousand objects at once, nearly all that the pods of a node may name in a namespace, and the daemon
/// does not grow.
#[test]
fn g17_a_flood_of_objects_does_not_grow_the_daemon() {
    if !can_run() {
        return;
    }
    // A pod may name 256.
    let (objects, named) = (1_000, 250);
    let cluster = Cluster::start_at("flood", Ipv4Addr::LOCALHOST.into(), &[]);
    let mut node = node_behind(&cluster, "edge", &format!("https://{}", cluster.listen));
    let kubectl = &cluster.kubectl;
    let daemon = node.daemon.as_ref().expect("it runs").pid();
    let idle = memory_kib(daemon, "VmRSS");
    let padding = "x".repeat(1000);
    let chunks: Vec<String> = (0..objects)
        .map(|n| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c-{n}")}, "data": {"k": padding}}))
        .collect::<Vec<Value>>()
        .chunks(objects / 8)
        .map(|chunk| json!({"apiVersion": "v1", "kind": "List", "items": chunk}).to_string())
        .collect();
    // kubectl limits itself to fifty requests a second: eight of them.
    std::thread::scope(|scope| {
        for (number, chunk) in chunks.iter().enumerate() {
            let file = cluster.folder().join(format!("chunk-{number}.json"));
            std::fs::write(&file, chunk).expect("a file");
            scope.spawn(move || {
                let _ = kubectl.ok(&["create", "--validate=false", "-f", &file.display().to_string()]);
            });
        }
    });
    let pods: Vec<Value> = (0..objects / named)
        .map(|at| {
            let sources: Vec<Value> = (at * named..(at + 1) * named)
                .map(|n| json!({"configMap": {"name": format!("c-{n}"), "items": [{"key": "k", "path": format!("c-{n}")}]}}))
                .collect();
            let all = with(shell("c", "exec sleep 1000"), &json!({"volumeMounts": [{"name": "all", "mountPath": "/all"}]}));
            let all = pod(&format!("all-{at}"), &node.name, json!([all]));
            with_spec(all, &json!({"volumes": [{"name": "all", "projected": {"sources": sources}}]}))
        })
        .collect();
    let start = Instant::now();
    kubectl.apply_all(&pods);
    let ready = |at: usize| kubectl.wait_pod(&format!("all-{at}"), 180, "Ready", sampan_tests::kubectl::is_ready);
    let pods: Vec<Value> = (0..pods.len()).map(ready).collect();
    let worst = memory_kib(daemon, "VmHWM");
    crate::tell(&format!(
        "{objects} objects of 1 kB in {:?}: daemon {idle} KiB idle, {worst} KiB at most",
        start.elapsed()
    ));
    for pod in &pods {
        let folder = format!("/proc/{}/root/all", container_pid(&node, pod));
        let files =
            std::fs::read_dir(folder).expect("the volume").flatten().filter(|e| e.file_name() != "..data").count();
        assert!(files >= named, "{files} of {named} files");
    }
    assert!(worst < idle + 24 * 1024, "{idle} KiB idle, {worst} KiB at most");
    node.kill();
}
