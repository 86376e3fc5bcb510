//! The disk of a running node fails: it turns read-only, returns errors, is full, has no inode left, is slow. Pods keep
//! running, lines that cannot be logged are dropped and counted, memory does not grow, the node reports it, and all is
//! written again when the disk works again.
//!
//! `TEST_BAD_DISK_SECONDS` makes each failure longer; with 60 or more the disk of the logs fails in a random order
//! (seed: `SAMPAN_SEED`) for ten times as long.

mod disk;
mod lines;
mod logs;
mod slow;
mod state;

use std::collections::BTreeMap;
use std::time::Duration;

use sampan_tests::process::start_time;
use sampan_tests::{EdgeNode, Kubectl, until};
use serde_json::Value;

/// How long the disk fails.
fn bad_time() -> Duration {
    let seconds = std::env::var("TEST_BAD_DISK_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(10))
}

/// Prints a line for the reader of the results.
fn tell(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "bad disk: {text}");
}

/// Memory and CPU time of a process of the node.
#[derive(Clone, Copy, Debug)]
struct Taken {
    anonymous_kb: u64,
    cpu_ms: u64,
}

fn taken(pid: u32) -> Taken {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("its memory");
    let anonymous_kb = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    // User and system time in ticks of 10 ms (proc(5), with the usual USER_HZ).
    let fields: Vec<u64> =
        stat.rsplit_once(')').expect("its name").1.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect();
    Taken { anonymous_kb, cpu_ms: (fields[11] + fields[12]) * 10 }
}

/// Waits while the disk fails: neither process grows or spins.
fn endure(node: &EdgeNode, what: &str) {
    let pids =
        [("daemon", node.daemon.as_ref().expect("it runs").pid()), ("monitor", node.monitor_pid().expect("one"))];
    let before = pids.map(|(_, pid)| taken(pid));
    std::thread::sleep(bad_time());
    for ((name, pid), before) in pids.into_iter().zip(before) {
        let after = taken(pid);
        let cpu =
            after.cpu_ms.saturating_sub(before.cpu_ms) * 100 / u64::try_from(bad_time().as_millis()).expect("short");
        tell(&format!(
            "{what}: {name} {} kB before, {} kB after {:?}, {cpu} % of a core",
            before.anonymous_kb,
            after.anonymous_kb,
            bad_time()
        ));
        let grown = after.anonymous_kb.saturating_sub(before.anonymous_kb);
        assert!(grown < 1024, "{what}: the {name} has grown by {grown} kB");
        assert!(cpu < 60, "{what}: the {name} takes {cpu} % of a core");
    }
}

/// Waits until the node reports this state of its storage.
fn wait_healthy(kubectl: &Kubectl, node: &EdgeNode, wanted: &str) -> String {
    until(Duration::from_secs(60), &format!("StorageHealthy is {wanted}"), || {
        let object = kubectl.get("node", &node.name)?;
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let find = |kind: &str| all.iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null);
        let one = find("StorageHealthy");
        assert_eq!(find("Ready")["status"], "True", "{all:?}");
        if one["status"] == wanted { Ok(one["message"].to_string()) } else { Err(one.to_string()) }
    })
}

/// Processes of the containers of a pod, by name: pid and start time identify one.
type Processes = BTreeMap<String, (u32, Option<u64>)>;

fn processes(node: &EdgeNode, pod: &Value) -> Processes {
    let pids = node.container_pids();
    let of = |status: &Value| {
        let pid = *pids.get(&sampan_tests::manifest::container_id(status))?;
        Some((status["name"].to_string(), (pid, start_time(pid))))
    };
    pod["status"]["containerStatuses"].as_array().into_iter().flatten().filter_map(of).collect()
}
