//! Cost of fifty containers, beside bare runc in the same run. Measured without limits, except for memory:
//! `EDGE_RUNTIME_BIN=target/release/edge-runtime cargo test --test monitor_cost -- --ignored --nocapture`
#![allow(clippy::print_stderr)]

mod monitor_support;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use monitor_support::{Node, can_run};

const CONTAINERS: usize = 50;

fn ids(prefix: &str) -> Vec<String> {
    (0..CONTAINERS).map(|n| format!("{prefix}{n:02}")).collect()
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0 / 50.0
}

/// `Pss` of a process in kB, and its private part.
fn memory(pid: i32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let field = |name: &str| -> u64 {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (field("Pss:"), field("Private_Dirty:"))
}

fn cpu_ms(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

/// Starts all with bare runc, `parallel` at a time.
fn bare(node: &Node, prefix: &str, parallel: usize) -> f64 {
    let ids = ids(prefix);
    for id in &ids {
        node.bundle(id, "sleep 1000");
    }
    let runc = |arguments: &[&str]| {
        let mut command = Command::new("runc");
        command.arg("--root").arg(node.paths.runtime_root()).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let since = Instant::now();
    let mut running: Vec<Child> = Vec::new();
    for id in &ids {
        while running.len() >= parallel {
            running.retain_mut(|child| child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_micros(200));
        }
        let bundle = node.paths.bundle(id);
        running.push(runc(&["run", "--detach", "--bundle", bundle.to_str().unwrap(), id]));
    }
    for mut child in running {
        child.wait().unwrap();
    }
    let each = ms(since);
    for id in &ids {
        runc(&["delete", "--force", id]).wait().unwrap();
    }
    each
}

#[test]
#[ignore = "a measurement"]
fn fifty_containers() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    for parallel in [1, 2, 4] {
        eprintln!(
            "bare runc run, {parallel} at a time   {:6.1} ms each",
            bare(&node, &format!("b{parallel}x"), parallel)
        );
    }
    let ids = ids("m");
    let specs: Vec<_> = ids.iter().map(|id| node.bundle(id, "while :; do echo tick; sleep 0.2; done")).collect();
    node.run(async {
        let _ = node.reconnected().await;
        let since = Instant::now();
        for spec in specs {
            node.client.start(spec).await.unwrap();
        }
        for id in &ids {
            node.started(id).await;
        }
        eprintln!("monitor: started               {:6.1} ms each", ms(since));
        let pid = node.monitor_pid().unwrap();
        let before = cpu_ms(pid);
        smol::Timer::after(Duration::from_secs(7)).await;
        let (pss, private) = memory(pid);
        eprintln!("monitor: PSS {pss} kB, private dirty {private} kB, CPU for the starts {before} ms");
        eprintln!("monitor: CPU for 250 lines a second {:.1} ms a second", (cpu_ms(pid) - before) as f64 / 7.0);
        let since = Instant::now();
        for id in &ids {
            node.client.kill(id, 9).await.unwrap();
        }
        for id in &ids {
            node.exited(id).await;
        }
        eprintln!("monitor: kill to exit told     {:6.1} ms each", ms(since));
        let since = Instant::now();
        for id in &ids {
            node.client.delete(id).await.unwrap();
        }
        eprintln!("monitor: deleted               {:6.1} ms each", ms(since));
        for id in &ids {
            node.client.forget(id).await.unwrap();
        }
        let (pss, _) = memory(pid);
        eprintln!("monitor: PSS when empty again {pss} kB");
    });
}
