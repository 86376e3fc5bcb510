//! Objects change all the time while the link breaks and processes are killed. Afterwards the node has exactly what the
//! API has, and nothing was started needlessly.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sampan_tests::faults::Cuts;
use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::process::start_time;
use sampan_tests::{Cluster, EdgeNode, FaultProxy, Faults, Kubectl, can_run, until};
use serde_json::{Value, json};

use super::{connections, container_pid, node_behind, reconnected};

/// Number of ConfigMaps that are mounted in one pod; each has at most this many changes per round.
const MAPS: usize = 10;

/// Duration from `TEST_LINK_LONG`.
pub(super) fn long() -> Option<Duration> {
    std::env::var("TEST_LINK_LONG").ok()?.parse().ok().map(Duration::from_secs)
}

fn maps(values: &[usize]) -> Vec<Value> {
    let map = |(number, value): (usize, &usize)| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number}")},
            "data": {"k": value.to_string()}})
    };
    values.iter().enumerate().map(map).collect()
}

/// A pod that writes each of its starts to `notes`.
fn noting(name: &str, node: &EdgeNode, notes: &Path) -> Value {
    let script = format!("echo start >>/notes/{name}; exec sleep 1000");
    let container = with(shell("c", &script), &json!({"volumeMounts": [{"name": "notes", "mountPath": "/notes"}]}));
    with_spec(pod(name, &node.name, json!([container])), &json!({"volumes": [host_path("notes", notes)]}))
}

fn reader(node: &EdgeNode) -> Value {
    let mounts: Vec<Value> =
        (0..MAPS).map(|n| json!({"name": format!("v-{n}"), "mountPath": format!("/maps/{n}")})).collect();
    let volumes: Vec<Value> =
        (0..MAPS).map(|n| json!({"name": format!("v-{n}"), "configMap": {"name": format!("map-{n}")}})).collect();
    let container = with(shell("c", "exec sleep 100000"), &json!({ "volumeMounts": mounts }));
    with_spec(pod("reader", &node.name, json!([container])), &json!({ "volumes": volumes }))
}

/// Pods of the API that are not being deleted: name to restarts.
fn pods(kubectl: &Kubectl) -> Result<BTreeMap<String, Value>, String> {
    let list: Value = serde_json::from_str(&kubectl.run(&["get", "pods", "-o", "json"])?).map_err(|e| e.to_string())?;
    let pods = list["items"].as_array().cloned().unwrap_or_default().into_iter();
    Ok(pods.map(|pod| (pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(), pod)).collect())
}

/// Checks that node and API agree: the reader's files, the pods' containers, the pods' status.
fn agree(kubectl: &Kubectl, node: &EdgeNode, values: &[usize], wanted: &BTreeSet<String>) -> Result<(), String> {
    let pods = pods(kubectl)?;
    let names: BTreeSet<String> = pods.keys().cloned().collect();
    if names != *wanted {
        return Err(format!("the API has {names:?}, not {wanted:?}"));
    }
    let running = node.container_pids();
    if running.len() != wanted.len() {
        return Err(format!("{} containers for {} pods", running.len(), wanted.len()));
    }
    for (name, pod) in &pods {
        let status = &pod["status"]["containerStatuses"][0];
        let id = status["containerID"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        if pod["status"]["phase"] != "Running" || !running.contains_key(id) {
            return Err(format!("{name}: {}", pod["status"]));
        }
        if status["restartCount"] != 0 {
            return Err(format!("{name} was restarted: {status}"));
        }
    }
    let root = format!("/proc/{}/root/maps", container_pid(node, &pods["reader"]));
    for (number, value) in values.iter().enumerate() {
        let text = std::fs::read_to_string(format!("{root}/{number}/k")).map_err(|error| error.to_string())?;
        if text != value.to_string() {
            return Err(format!("map-{number} is {text} on the node, {value} in the API"));
        }
    }
    Ok(())
}

/// Every file below the reader's volumes: inode and time of modification.
fn files(node: &EdgeNode, pod: &Value) -> BTreeMap<PathBuf, (u64, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::from(format!("/proc/{}/root/maps", container_pid(node, pod)))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let meta = entry.path().symlink_metadata().expect("it is there");
            found.insert(entry.path(), (meta.ino(), meta.mtime(), meta.mtime_nsec()));
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn g01_g02_the_node_ends_with_what_the_api_has() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start_at("changes", Ipv4Addr::LOCALHOST.into(), &[]);
    let proxy = FaultProxy::start(Ipv4Addr::LOCALHOST.into(), cluster.listen);
    let mut node = node_behind(&cluster, "edge", &proxy.url());
    let kubectl = cluster.kubectl.clone();
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    let mut values = vec![0; MAPS];
    kubectl.apply_all(&maps(&values));
    kubectl.apply_all(&[reader(&node)]);
    kubectl.wait_ready("reader");
    let mut wanted = BTreeSet::from(["reader".to_owned()]);

    // One of five pieces is lost and late, some break the connection, and the link is cut besides.
    proxy.set(Faults { late_percent: 20, break_permille: 5, ..Faults::default() });
    let (length, every) = long().map_or((25.0, 5.0), |length| (length.as_secs_f64(), 30.0));
    let cuts = Cuts { down: Duration::from_secs_f64(every / 5.0), every: Duration::from_secs_f64(every) };
    proxy.keep_cutting(cuts);
    let start = Instant::now();
    let (mut changes, mut round) = (0, 0);
    let (mut killed_node, mut killed_bridge) = (0, 0);
    // A slow host takes longer for the same changes.
    while start.elapsed().as_secs_f64() < length || (changes < 100 && start.elapsed().as_secs_f64() < 4.0 * length) {
        round += 1;
        // Which maps change differs from round to round.
        values.iter_mut().enumerate().filter(|(n, _)| (n + round) % 3 != 0).for_each(|(_, value)| *value += 1);
        changes += (0..MAPS).filter(|n| (n + round) % 3 != 0).count();
        let mut objects = maps(&values);
        let name = format!("pod-{round}");
        objects.push(noting(&name, &node, &notes));
        changes += 1;
        wanted.insert(name);
        kubectl.apply_all(&objects);
        if round >= 4 {
            let old = format!("pod-{}", round - 3);
            let _ = kubectl.ok(&["delete", "pod", &old, "--wait=false"]);
            changes += 1;
            wanted.remove(&old);
        }
        let at = start.elapsed().as_secs_f64() / length;
        if at > 0.3 * f64::from(killed_node + 1) && killed_node < 3 {
            killed_node += 1;
            node.kill();
            node.start();
        }
        if at > 0.45 * f64::from(killed_bridge + 1) && killed_bridge < 2 {
            killed_bridge += 1;
            cluster.kill_bridge();
            cluster.start_bridge();
        }
        let pause = if long().is_some() { 4 } else { 1 };
        std::thread::sleep(Duration::from_secs(pause));
    }
    let accepted = proxy.accepted();
    let calm = proxy.calm();
    proxy.set(Faults::default());
    let quiet = Instant::now();
    until(Duration::from_secs(30), "node and API agree", || agree(&kubectl, &node, &values, &wanted));
    crate::tell(&format!(
        "{changes} changes in {:?} over {accepted} connections, daemon killed {killed_node} times, bridge \
         {killed_bridge} times: equal {:?} after quiet",
        start.elapsed(),
        quiet.elapsed()
    ));
    let wanted_changes = if long().is_some_and(|long| long >= Duration::from_secs(600)) { 500 } else { 100 };
    assert!(changes >= wanted_changes, "only {changes} changes: the host is too slow for this test");
    for entry in std::fs::read_dir(&notes).expect("a folder").flatten() {
        // It is empty if the pod was deleted while its shell was about to write.
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        assert!(["", "start\n"].contains(&&*text), "{} started more than once: {text}", entry.path().display());
    }

    // All of it again from the beginning: a bridge without state, and a daemon that has just started.
    let pods_now = pods(&kubectl).expect("pods");
    let processes = |node: &EdgeNode| -> BTreeSet<(u32, Option<u64>)> {
        node.container_pids().into_values().map(|pid| (pid, start_time(pid))).collect()
    };
    let before = (processes(&node), files(&node, &pods_now["reader"]));
    for both in [false, true] {
        let connected = connections(&cluster, &node);
        cluster.kill_bridge();
        if both {
            node.kill();
        }
        cluster.start_bridge();
        if both {
            node.start();
        }
        reconnected(&cluster, &node, connected, Duration::from_secs(30));
        // A change after the replay: when it has arrived, the replay is over.
        values[0] += 1;
        kubectl.apply_all(&maps(&values)[..1]);
        until(Duration::from_secs(20), "a later change has come", || agree(&kubectl, &node, &values, &wanted));
    }
    let mut after = (processes(&node), files(&node, &pods_now["reader"]));
    let mut before = before;
    let first = |path: &PathBuf| path.ends_with("maps/0") || path.to_string_lossy().contains("/maps/0/");
    before.1.retain(|path, _| !first(path));
    after.1.retain(|path, _| !first(path));
    assert_eq!(before, after, "no container was started again and no file written");
    drop(calm);
}

#[test]
fn g07_what_is_deleted_while_the_node_is_away_ends_and_never_begins() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start_at("away", Ipv4Addr::LOCALHOST.into(), &[]);
    let proxy = FaultProxy::start(Ipv4Addr::LOCALHOST.into(), cluster.listen);
    let node = node_behind(&cluster, "edge", &proxy.url());
    let kubectl = cluster.kubectl.clone();
    let notes = cluster.folder().join("notes");
    std::fs::create_dir(&notes).expect("a folder");
    kubectl.apply_all(&[noting("stays", &node, &notes), noting("goes", &node, &notes), noting("turns", &node, &notes)]);
    ["stays", "goes", "turns"].iter().for_each(|name| drop(kubectl.wait_ready(name)));
    let process = container_pid(&node, &kubectl.get("pod", "stays").expect("a pod"));

    proxy.set(Faults { refuse: true, ..Faults::default() });
    proxy.cut();
    let _ = kubectl.ok(&["delete", "pod", "goes", "turns", "--wait=false"]);
    kubectl.apply_all(&[noting("flits", &node, &notes)]);
    let _ = kubectl.ok(&["delete", "pod", "flits", "--wait=false"]);
    // Another pod of the same name is another pod.
    let _ = kubectl.ok(&["delete", "pod", "turns", "--grace-period=0", "--force", "--wait=false"]);
    kubectl.apply_all(&[noting("turns", &node, &notes), noting("late", &node, &notes)]);
    // The bridge loses its state; the API has everything.
    cluster.kill_bridge();
    cluster.start_bridge();
    std::thread::sleep(Duration::from_secs(3));
    let before = connections(&cluster, &node);
    proxy.set(Faults::default());
    reconnected(&cluster, &node, before, Duration::from_secs(30));
    let start = Instant::now();
    kubectl.wait_gone("pod", "goes", 10);
    kubectl.wait_gone("pod", "flits", 10);
    crate::tell(&format!("deleted while away: gone {:?} after the node was back", start.elapsed()));
    ["late", "turns"].iter().for_each(|name| drop(kubectl.wait_ready(name)));
    let read = |name: &str| std::fs::read_to_string(notes.join(name)).unwrap_or_default();
    assert_eq!(read("flits"), "", "it never began");
    assert_eq!((read("goes"), read("late"), read("stays")), ("start\n".into(), "start\n".into(), "start\n".into()));
    assert_eq!(read("turns"), "start\nstart\n", "one after the other");
    assert_eq!(node.container_pids().len(), 3);
    assert!(node.container_pids().values().any(|pid| *pid == process), "what stays was left alone");
}
