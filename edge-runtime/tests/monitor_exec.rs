//! Processes run inside containers for probes and hooks.

mod monitor_support;

use std::time::{Duration, Instant};

use edge_runtime::monitor::exec::{ExecError, OUTPUT_CAP, Runtime, exec};
use monitor_support::{Node, can_run, wait_until};

fn runtime(node: &Node) -> Runtime {
    Runtime {
        program: "runc".into(),
        root: node.paths.runtime_root(),
        args: Vec::new(),
        cwd: None,
        bundle: node.paths.bundle("c"),
    }
}

fn sh(script: &str) -> Vec<String> {
    ["/bin/busybox", "sh", "-c", script].map(str::to_owned).to_vec()
}

#[test]
fn a_process_runs_and_its_output_and_code_come_back() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        node.client.start(node.bundle("c", "sleep 1000")).await.unwrap();
        node.started("c").await;
        let (runtime, second) = (runtime(&node), Duration::from_secs(20));
        let done = exec(&runtime, "c", &sh("echo out; echo err >&2; echo $PATH; exit 3"), second).await.unwrap();
        let text = String::from_utf8(done.output).unwrap();
        assert_eq!((done.code, text.as_str()), (3, "out\n/bin\nerr\n"), "one stream after the other");
        let flood = exec(&runtime, "c", &sh("yes | head -c 100000"), second).await.unwrap();
        assert_eq!((flood.code, flood.output.len()), (0, OUTPUT_CAP));
        let left = exec(&runtime, "c", &sh("sleep 1000 >/dev/null 2>&1 & echo here"), second).await.unwrap();
        assert_eq!((left.code, left.output.as_slice()), (0, &b"here\n"[..]));

        let missing = exec(&runtime, "c", &["/bin/nosuch".to_owned()], second).await;
        assert!(matches!(&missing, Err(ExecError::NotStarted(m)) if m.contains("/bin/nosuch")), "{missing:?}");
        let gone = exec(&runtime, "nobody", &sh("true"), second).await;
        assert!(matches!(&gone, Err(ExecError::NotStarted(_))), "{gone:?}");
    });
}

#[test]
fn a_timeout_kills_the_process_and_its_children() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        node.client.start(node.bundle("c", "sleep 1000")).await.unwrap();
        let init = node.started("c").await;
        let since = Instant::now();
        let slow = exec(&runtime(&node), "c", &sh("sleep 977; true"), Duration::from_millis(400)).await;
        assert!(matches!(slow, Err(ExecError::TimedOut(_))), "{slow:?}");
        assert!(since.elapsed() < Duration::from_secs(3));
        wait_until("the processes to end", || {
            let out = std::process::Command::new("pgrep").args(["-f", "sleep 977"]).output().unwrap();
            out.stdout.is_empty()
        });
        assert!(monitor_support::lives(init));
        assert!(!node.paths.runtime_root().with_file_name("exec").read_dir().unwrap().any(|_| true), "files are left");
    });
}
