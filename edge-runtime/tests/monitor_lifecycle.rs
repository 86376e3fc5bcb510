//! Containers from start to delete, by a monitor that nothing disturbs.

#![allow(clippy::print_stderr)]

mod monitor_support;

use std::os::unix::fs::PermissionsExt;

use edge_runtime::monitor::client::{ClientError, MonitorEvent};
use monitor_support::{Node, can_run, lives, runc_list, wait_until};
use sampan_monitor::protocol::Phase;

#[test]
fn a_container_runs_logs_exits_and_is_deleted() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        assert!(node.reconnected().await.is_empty());
        assert_eq!(node.monitor_pid(), None, "no monitor before the first start");
        let spec = node.bundle("one", "echo out; echo err >&2; printf tail; exit 7");
        node.client.start(spec.clone()).await.unwrap();
        let pid = node.started("one").await;
        let exit = node.exited("one").await;
        assert_eq!((exit.code, exit.signal, exit.pid, exit.unknown, exit.oom_killed), (7, None, pid, false, false));
        assert!(exit.started_at <= exit.finished_at && exit.finished_at.ends_with('Z'), "{exit:?}");
        let mut lines: Vec<String> =
            node.log_text("one").lines().map(|l| l.split_once(' ').unwrap().1.to_owned()).collect();
        lines.sort();
        // Output without a final line feed is a partial line, as in containerd.
        assert_eq!(lines, ["stderr F err", "stdout F out", "stdout P tail"]);

        // The same attempt never runs twice, before or after its deletion. A repeated request, as around the death of a
        // monitor, does not start it a second time.
        assert!(node.client.start(spec.clone()).await.is_ok());
        assert_eq!(node.client.list().await.unwrap()[0].phase, Phase::Exited(exit.clone()));
        node.client.delete("one").await.unwrap();
        node.client.delete("one").await.unwrap();
        assert!(runc_list(&node).is_empty());
        assert!(!spec.bundle.join("stdout").exists());
        assert!(matches!(node.client.start(spec).await, Err(ClientError::Refused(_))));
        assert_eq!(node.client.list().await.unwrap()[0].phase, Phase::Exited(exit));
        node.client.forget("one").await.unwrap();
        assert!(node.client.list().await.unwrap().is_empty());
        assert!(node.client.shutdown_if_idle().await.unwrap());
        wait_until("the idle monitor to end", || node.monitor_pid().is_none());
    });
}

/// As in a unit with `Type=notify`, whose daemon and its children have the variable.
#[test]
fn notify_socket_of_the_unit_is_not_passed_on() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let _socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let node = Node::with(|settings| settings.runtime_env.push(("NOTIFY_SOCKET".into(), path.display().to_string())));
    node.run(async {
        assert!(node.reconnected().await.is_empty());
        node.client.start(node.bundle("one", "sleep 1000")).await.unwrap();
        node.started("one").await;
        node.client.kill("one", 9).await.unwrap();
        node.exited("one").await;
        node.client.delete("one").await.unwrap();
        node.client.forget("one").await.unwrap();
        assert!(node.client.shutdown_if_idle().await.unwrap());
    });
}

#[test]
fn start_during_the_monitors_exit_goes_to_the_next_one() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        for name in ["one", "two", "three", "four"] {
            let leaves = node.client.shutdown_if_idle();
            let spec = node.bundle(name, "exit 3");
            let starts = node.client.start(spec.clone());
            let (leaves, starts) = smol::future::zip(leaves, starts).await;
            assert!(leaves.unwrap());
            starts.unwrap();
            assert_eq!(node.exited(name).await.code, 3);
            node.client.delete(name).await.unwrap();
            node.client.forget(name).await.unwrap();
            std::fs::remove_dir_all(&spec.bundle).unwrap();
        }
    });
}

#[test]
fn a_user_that_is_not_root_can_open_its_output_again() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let spec = node.bundle("user", "echo one > /dev/stdout; echo two > /proc/self/fd/2; id -u");
        let file = spec.bundle.join("config.json");
        let config = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, config.replace("\"user\":{\"gid\":0,\"uid\":0}", "\"user\":{\"gid\":1000,\"uid\":1000}"))
            .unwrap();
        node.client.start(spec).await.unwrap();
        assert_eq!(node.exited("user").await.code, 0);
        let text = node.log_text("user");
        for line in ["stdout F one", "stderr F two", "stdout F 1000"] {
            assert!(text.contains(line), "{text}");
        }
    });
}

#[test]
fn signals_reach_the_first_process() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        node.client.start(node.bundle("trap", "trap 'exit 3' TERM; while :; do sleep 0.05; done")).await.unwrap();
        node.client.start(node.bundle("deaf", "sleep 1000")).await.unwrap();
        let pid = node.started("deaf").await;
        node.started("trap").await;
        assert!(matches!(node.client.delete("deaf").await, Err(ClientError::Refused(_))), "it runs");
        smol::Timer::after(std::time::Duration::from_millis(100)).await;
        node.client.kill("trap", 15).await.unwrap();
        assert_eq!(node.exited("trap").await.code, 3);
        // A first process without a handler does not get SIGTERM from inside, but from here neither.
        node.client.kill("deaf", 15).await.unwrap();
        smol::Timer::after(std::time::Duration::from_millis(100)).await;
        assert!(lives(pid));
        node.client.kill("deaf", 9).await.unwrap();
        let exit = node.exited("deaf").await;
        assert_eq!((exit.code, exit.signal), (137, Some(9)));
        // A client that kills an ended container gets its exit again.
        node.client.kill("deaf", 9).await.unwrap();
        assert_eq!(node.exited("deaf").await, exit);
        assert!(matches!(node.client.kill("nobody", 9).await, Err(ClientError::Refused(_))));
    });
}

#[test]
fn failed_start_reports_the_reason_and_leaves_nothing() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let spec = node.bundle_with("nosuch", &["/bin/nosuch"], serde_json::json!({}));
        node.client.start(spec.clone()).await.unwrap();
        let message = node.start_failed("nosuch").await;
        assert!(message.contains("/bin/nosuch") && message.contains("no such file"), "{message}");
        assert!(runc_list(&node).is_empty());
        assert_eq!(node.log_text("nosuch"), "", "the runtime's words are not the container's");
        node.client.delete("nosuch").await.unwrap();
        assert!(node.client.list().await.unwrap().is_empty());

        let mut spec = node.bundle("noruntime", "true");
        spec.runtime = "/nonexistent/runc".into();
        node.client.start(spec).await.unwrap();
        let message = node.start_failed("noruntime").await;
        assert!(message.contains("starting the OCI runtime"), "{message}");
    });
}

#[test]
fn the_queue_keeps_order_and_a_queued_start_can_be_stopped() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let ids: Vec<String> = (0..12).map(|n| format!("c{n:02}")).collect();
        let slow = node.paths.root().join("slow-runc");
        std::fs::write(&slow, "#!/bin/sh\nsleep 0.3\nexec runc \"$@\"\n").unwrap();
        std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o755)).unwrap();
        for id in &ids {
            let mut spec = node.bundle(id, "sleep 1000");
            spec.runtime.clone_from(&slow);
            node.client.start(spec).await.unwrap();
        }
        node.client.kill("c11", 9).await.unwrap();
        let message = node
            .wait_for(|e| match e {
                MonitorEvent::StartFailed { id, message } if id == "c11" => Some(message.clone()),
                MonitorEvent::Exited(r) if r.id == "c11" => Some("ran".into()),
                _ => None,
            })
            .await;
        assert_eq!(message, "stopped before it was started");
        for id in &ids[..11] {
            node.started(id).await;
        }
        assert_eq!(runc_list(&node).len(), 11);
    });
}

#[test]
fn a_kill_while_the_runtime_works_comes_through() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        node.client.start(node.bundle("quick", "sleep 1000")).await.unwrap();
        node.client.kill("quick", 9).await.unwrap();
        assert_eq!(node.exited("quick").await.signal, Some(9));
    });
}

#[test]
fn out_of_memory_kill_is_reported() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let limit = serde_json::json!({"memory": {"limit": 16 << 20, "swap": 16 << 20}});
        let argv = ["/bin/busybox", "sh", "-c", "exec /bin/busybox tail /dev/zero"];
        let mut spec = node.bundle_with("hungry", &argv, limit);
        // The test's /dev is empty: make the node that has no end.
        let config = std::fs::read_to_string(spec.bundle.join("config.json")).unwrap();
        std::fs::write(spec.bundle.join("config.json"), config.replace("[\"nosuid\",\"mode=755\"]", "[\"mode=755\"]"))
            .unwrap();
        spec.log_max_files = 2;
        node.client.start(spec).await.unwrap();
        let exit = node.exited("hungry").await;
        if exit.signal != Some(9) {
            eprintln!("skipped: memory limits do not work here: {exit:?} {}", node.log_text("hungry"));
            return;
        }
        assert!(exit.oom_killed, "{exit:?}");
    });
}
