//! Pods outlive the store that knew them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_tests::process::signal;
use sampan_tests::{Cluster, EdgeNode, can_run, until};

use super::{sleeper, wait_running};

const PAGE: usize = 4096;

/// Ruins the page of the store that `is_it`, of those that are in the file.
fn ruin(state: &Path, is_it: impl Fn(usize, &[u8]) -> bool) {
    let file = state.join("store.db");
    // What is in the log would be laid over the damage.
    let db = std::fs::read(&file).expect("a store");
    let page = (0..db.len() / PAGE).find(|page| is_it(*page, &db[page * PAGE..(page + 1) * PAGE]));
    let page = page.expect("such a page");
    let mut db = db;
    db[page * PAGE..(page + 1) * PAGE].fill(0xa5);
    std::fs::write(file, db).expect("written");
}

/// The daemon dies and leaves its store in one file.
fn kill_and_fold(node: &mut EdgeNode) {
    node.kill();
    // The last one to close it writes the log out.
    node.edge_ok(&["status"]);
    assert!(!node.root().join("var/lib/edge-runtime/store.db-wal").exists());
}

fn is_leaf_with(page: &[u8], text: &str) -> bool {
    page[0] == 10 && page.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Whether to ruin this page of the store: its number and its bytes.
type Page<'a> = &'a dyn Fn(usize, &[u8]) -> bool;

/// The five pods keep running, whatever page of the store is lost while the cloud is unreachable; when it is back,
/// everything is as before. Without a copy of the lost page they keep running as well, until the cloud has said what
/// they are.
#[test]
fn five_pods_outlive_a_bad_page_without_a_cloud() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("page");
    let mut node = cluster.node("edge");
    let names = ["a", "b", "c", "d", "e"];
    cluster.kubectl.apply_all(&names.map(|name| sleeper(name, &node.name)));
    names.iter().for_each(|name| drop(cluster.kubectl.wait_ready(name)));
    let before = wait_running(&node, 5);
    node.edge_ok(&["copy"]);
    let state = node.root().join("var/lib/edge-runtime");
    let stale = state.join("pods/00000000-0000-4000-8000-000000000000");
    let logs = node.root().join("var/log/pods");
    let stale_logs = logs.join("default_gone_00000000-0000-4000-8000-000000000000");
    let leave_stale = || {
        std::fs::create_dir_all(stale.join("volumes")).expect("a folder");
        std::fs::create_dir_all(stale_logs.join("c")).expect("a folder");
        std::fs::write(stale_logs.join("c/0.log"), "").expect("a log");
    };
    leave_stale();
    // A kubelet's, whose state is elsewhere.
    let foreign = logs.join("default_other_11111111-1111-4111-8111-111111111111");
    std::fs::create_dir(&foreign).expect("a folder");

    let first = |page: usize, _: &[u8]| page == 0;
    let records = |_: usize, page: &[u8]| is_leaf_with(page, "\"boot_id\":");
    let objects = |_: usize, page: &[u8]| is_leaf_with(page, "Pod") && is_leaf_with(page, "default");
    let pages: [(&str, Page<'_>); 3] = [("first", &first), ("records", &records), ("objects", &objects)];
    for (what, page) in pages {
        cluster.kill_bridge();
        kill_and_fold(&mut node);
        ruin(&state, page);
        node.start();
        until(Duration::from_secs(20), "it has looked at what runs", || {
            let log = node.log();
            let log = log.rsplit("the store was damaged").next().unwrap_or_default();
            if log.contains("the monitor has 5 containers, 5 running") { Ok(()) } else { Err(log.to_owned()) }
        });
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(wait_running(&node, 5), before, "{what}: {}", node.log());
        assert!(node.edge_ok(&["images"]).contains("busybox"), "{what}");
        assert!(stale.exists() && stale_logs.exists(), "nothing is swept before the list");
        cluster.start_bridge();
        node.wait_connected(&cluster);
        for name in names {
            let pod = cluster.kubectl.wait_ready(name);
            assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{what}: {pod}");
        }
        until(Duration::from_secs(20), "what is of nobody is swept after the list", || {
            if stale.exists() || stale_logs.exists() { Err(node.log()) } else { Ok(()) }
        });
        assert_eq!(std::fs::read_dir(&logs).expect("logs").count(), 6, "those of the pods and of others stay");
        assert!(foreign.exists(), "{what}: {}", node.log());
        assert_eq!(wait_running(&node, 5), before, "{what}: {}", node.log());
        assert!(!node.log().contains("pulling"), "{what}");
        leave_stale();
    }

    // What was on the page is nowhere else.
    cluster.kill_bridge();
    kill_and_fold(&mut node);
    std::fs::remove_file(state.join("store.db.copy")).expect("the copy");
    ruin(&state, records);
    node.start();
    until(Duration::from_secs(20), "it says what it does not know", || {
        let log = node.log();
        if log.contains("what is recorded of it is lost") { Ok(()) } else { Err(log) }
    });
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(wait_running(&node, 5), before, "{}", node.log());
    cluster.start_bridge();
    node.wait_connected(&cluster);
    wait_running(&node, 5);
    names.iter().for_each(|name| drop(cluster.kubectl.wait_ready(name)));
}

/// Changes the store while no daemon has it.
fn alter(state: &Path, sql: &str) {
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(state.join("store.db")).arg(sql);
    assert!(command.status().expect("python3 is installed").success(), "{sql}");
}

/// The object of a pod was lost, and its container ends before the cloud sends the object again. The end of the container
/// cannot be committed: the daemon must not go on with a pod that it has taken up by half.
#[test]
fn failed_commit_for_a_found_pod_ends_the_daemon() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("found");
    let mut node = cluster.node("edge");
    cluster.kubectl.apply_all(&[sleeper("a", &node.name)]);
    cluster.kubectl.wait_ready("a");
    let running = wait_running(&node, 1);
    cluster.kill_bridge();
    node.kill();
    running.values().for_each(|(pid, _)| signal(*pid, "KILL"));
    wait_running(&node, 0);
    let state = node.root().join("var/lib/edge-runtime");
    let refuse =
        "CREATE TRIGGER refuse BEFORE UPDATE OF record ON pods BEGIN SELECT RAISE(ABORT, 'no record today'); END;";
    alter(&state, &format!("DELETE FROM objects WHERE kind = 'Pod'; {refuse}"));

    let before = node.log().len();
    node.start();
    let log_with = |node: &EdgeNode, text: &str| {
        until(Duration::from_secs(40), text, || {
            let log = node.log().split_off(before);
            if log.contains(text) { Ok(()) } else { Err(log) }
        });
    };
    log_with(&node, "the monitor has 1 containers, 0 running");
    cluster.start_bridge();
    log_with(&node, "no record today");
    std::thread::sleep(Duration::from_secs(2));
    let log = node.log().split_off(before);
    assert!(!log.contains("the list is complete"), "it goes on: {log}");
    assert_eq!(log.matches("no record today").count(), 1, "it goes on and fails again: {log}");

    node.kill();
    alter(&state, "DROP TRIGGER refuse;");
    node.start();
    cluster.kubectl.wait_pod("a", 60, "runs again", |pod| {
        let container = &pod["status"]["containerStatuses"][0];
        container["restartCount"] == 1 && container["ready"] == true
    });
}
