//! Identity of a node over time: renewed and expired certificates, revoked nodes, wrong clocks.

mod authority;
mod clocks;
mod persons;
mod revocation;
mod rotation;

use std::collections::BTreeMap;
use std::time::Duration;

use sampan_tests::process::start_time;
use sampan_tests::{EdgeNode, until};

/// Pid and start time of every container: the same pair is the same process.
fn processes(node: &EdgeNode) -> BTreeMap<String, (u32, Option<u64>)> {
    node.container_pids().into_iter().map(|(id, pid)| (id, (pid, start_time(pid)))).collect()
}

fn wait_running(node: &EdgeNode, count: usize) -> BTreeMap<String, (u32, Option<u64>)> {
    until(Duration::from_secs(40), &format!("{count} containers run"), || {
        let now = processes(node);
        if now.len() == count { Ok(now) } else { Err(format!("{now:?}; {}", node.log())) }
    })
}

/// Waits until the daemon has logged `text` again after the first `seen` bytes of its log.
fn wait_log(node: &EdgeNode, seen: usize, seconds: u64, text: &str) {
    until(Duration::from_secs(seconds), &format!("the daemon logs {text:?}"), || {
        let log = node.log();
        let news = log.get(seen..).unwrap_or_default();
        if news.contains(text) { Ok(()) } else { Err(news.to_owned()) }
    });
}

/// Joins again, with a fresh token, while the daemon runs.
fn join_again(cluster: &sampan_tests::Cluster, node: &EdgeNode) {
    let bridge = format!("https://{}", cluster.listen);
    node.edge_ok(&["join", "--bridge", &bridge, "--token", &cluster.token(&node.name), "--node", &node.name]);
}
