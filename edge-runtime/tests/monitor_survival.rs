//! The monitor is killed, at every moment that can be hit: containers stay, truths stay true, nothing runs twice.

mod monitor_support;

use std::collections::BTreeMap;
use std::time::Duration;

use edge_runtime::monitor::client::ClientError;
use monitor_support::{Node, can_run, kill, lives, runc_list, wait_until};
use sampan_monitor::exit::ExitRecord;
use sampan_monitor::protocol::Phase;

async fn sleep_ms(ms: u64) {
    smol::Timer::after(Duration::from_millis(ms)).await;
}

/// `PIDFD_GET_INFO` tells exit codes from Linux 6.15 on.
fn pidfds_tell_exits() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

/// After a power cut, the exit of an earlier boot is deleted while the first start waits for its monitor.
#[test]
fn a_forgotten_exit_does_not_make_a_new_start_look_lost() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    let old = ExitRecord { id: "old".into(), code: 137, unknown: true, ..ExitRecord::default() };
    sampan_monitor::exit::write(&node.paths.exits(), &old).unwrap();
    node.run(async {
        assert_eq!(node.reconnected().await.len(), 1);
        node.client.forget("old").await.unwrap();
        node.client.start(node.bundle("new", "sleep 1000")).await.unwrap();
        node.started("new").await;
        let told_again = async { Some(node.reconnected().await) };
        let never = async {
            sleep_ms(50).await;
            None
        };
        assert_eq!(smol::future::or(told_again, never).await, None);
        node.client.kill("new", 9).await.unwrap();
        node.exited("new").await;
        node.client.delete("new").await.unwrap();
    });
}

#[test]
fn containers_outlive_the_monitor_and_end_truly() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let _ = node.reconnected().await;
        let script = "trap 'echo bye; exit 5' TERM; n=0; while :; do n=$((n+1)); echo $n; sleep 0.005; done";
        node.client.start(node.bundle("count", script)).await.unwrap();
        node.client.start(node.bundle("quiet", "sleep 1000")).await.unwrap();
        let (count, quiet) = (node.started("count").await, node.started("quiet").await);
        for _ in 0..4 {
            sleep_ms(60).await;
            node.kill_monitor();
            let listed = node.reconnected().await;
            let pids: BTreeMap<&str, i32> = listed
                .iter()
                .map(|c| match c.phase {
                    Phase::Running { pid, .. } => (c.id.as_str(), pid),
                    ref other => panic!("{} is {other:?}", c.id),
                })
                .collect();
            assert_eq!(pids, BTreeMap::from([("count", count), ("quiet", quiet)]));
        }
        node.client.kill("count", 15).await.unwrap();
        node.client.kill("quiet", 9).await.unwrap();
        let (count, quiet) = (node.exited("count").await, node.exited("quiet").await);
        if pidfds_tell_exits() {
            assert_eq!((count.code, count.signal, count.unknown), (5, None, false));
            assert_eq!((quiet.code, quiet.signal, quiet.unknown), (137, Some(9), false));
        }
        let text = node.log_text("count");
        let said: Vec<&str> = text.lines().map(|l| l.rsplit(' ').next().unwrap()).collect();
        assert_eq!(*said.last().unwrap(), "bye");
        let numbers: Vec<u32> = said[..said.len() - 1].iter().map(|n| n.parse().unwrap()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "lines are told twice or late: {numbers:?}");
        // Each of the four that were killed may have had one in its hands.
        let missing = numbers.last().map_or(0, |last| *last as usize - numbers.len());
        assert!(missing <= 4, "lines are missing: {numbers:?}");
        assert!(numbers.len() > 20, "{}", numbers.len());
        for id in ["count", "quiet"] {
            node.client.delete(id).await.unwrap();
        }
        assert!(runc_list(&node).is_empty());
    });
}

#[test]
fn an_exit_while_no_monitor_lives() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let _ = node.reconnected().await;
        node.client.start(node.bundle("one", "trap 'exit 4' TERM; while :; do sleep 0.01; done")).await.unwrap();
        let pid = node.started("one").await;
        sleep_ms(100).await;
        let monitor = node.monitor_pid().unwrap();
        // Without a turn of this executor no new monitor is spawned.
        kill(monitor, 9);
        kill(pid, 15);
        wait_until("both to be gone", || !lives(pid) && !lives(monitor));
        std::thread::sleep(Duration::from_millis(100));
        let listed = node.reconnected().await;
        let Phase::Exited(record) = &listed[0].phase else { panic!("{listed:?}") };
        if pidfds_tell_exits() {
            assert_eq!((record.code, record.unknown), (4, false), "the daemon holds a pidfd");
        } else {
            assert_eq!((record.code, record.unknown), (137, true));
        }
    });
}

#[test]
fn unobserved_exit_is_unknown() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    let pid = node.run(async {
        node.client.start(node.bundle("one", "sleep 1000")).await.unwrap();
        node.started("one").await
    });
    let monitor = node.monitor_pid().unwrap();
    kill(monitor, 9);
    kill(pid, 9);
    // Until it is reaped, even a newcomer can read its exit code.
    wait_until("it to be reaped", || !std::path::Path::new(&format!("/proc/{pid}")).exists() && !lives(monitor));
    // The next daemon holds nothing.
    let next = node.again();
    next.run(async {
        let listed = next.reconnected().await;
        let Phase::Exited(record) = &listed[0].phase else { panic!("{listed:?}") };
        assert_eq!((record.code, record.unknown, record.pid), (137, true, pid));
        next.client.delete("one").await.unwrap();
        next.client.forget("one").await.unwrap();
        assert!(runc_list(&next).is_empty());
    });
}

#[test]
fn the_daemon_may_be_away_when_a_container_ends() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    let pid = node.run(async {
        node.client.start(node.bundle("one", "sleep 0.3; echo done; exit 9")).await.unwrap();
        node.client.start(node.bundle("two", "sleep 1000")).await.unwrap();
        node.started("one").await;
        node.started("two").await
    });
    std::thread::sleep(Duration::from_millis(600));
    let next = node.again();
    next.run(async {
        let listed = next.reconnected().await;
        assert!(matches!(&listed[0].phase, Phase::Exited(r) if r.code == 9 && !r.unknown), "{listed:?}");
        assert!(matches!(&listed[1].phase, Phase::Running { pid: p, .. } if *p == pid), "{listed:?}");
    });
    // Even when the monitor has died since: the record is on disk.
    node.kill_monitor();
    let third = node.again();
    third.run(async {
        let listed = third.reconnected().await;
        assert!(matches!(&listed[0].phase, Phase::Exited(r) if r.code == 9 && !r.unknown), "{listed:?}");
    });
}

#[test]
fn no_start_runs_twice_whenever_the_monitor_is_killed() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let _ = node.reconnected().await;
        node.client.start(node.bundle("first", "true")).await.unwrap();
        node.exited("first").await;
        for round in 0..16u64 {
            let ids: Vec<String> = (0..5).map(|n| format!("r{round:02}c{n}")).collect();
            for id in &ids {
                match node.client.start(node.bundle(id, "echo ran; sleep 1000")).await {
                    Ok(()) | Err(ClientError::Gone) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            sleep_ms(round * 7).await;
            node.kill_monitor();
            let mut listed = node.reconnected().await;
            // Starts in progress end by themselves.
            wait_until_settled(&node, &mut listed).await;
            for id in &ids {
                let ran = node.log_text(id).matches("ran").count();
                match listed.iter().find(|c| c.id == *id).map(|c| &c.phase) {
                    Some(Phase::Running { pid, .. }) => assert!(lives(*pid), "{id}"),
                    Some(Phase::Failed { .. }) => assert!(!runc_list(&node).contains(id), "{id} is failed, but there"),
                    None => {
                        assert_eq!(ran, 0, "{id} was never started");
                        node.client.start(node.bundle(id, "echo ran; sleep 1000")).await.unwrap();
                        node.started(id).await;
                    }
                    Some(other) => panic!("{id}: {other:?}"),
                }
                wait_until("its line", || node.log_text(id).matches("ran").count() <= 1);
            }
            for id in &ids {
                let _ = node.client.kill(id, 9).await;
                while node.client.delete(id).await.is_err() {
                    sleep_ms(2).await;
                }
                assert!(node.log_text(id).matches("ran").count() <= 1, "{id} ran twice");
                node.client.forget(id).await.unwrap();
            }
            assert_eq!(runc_list(&node), ["first"]);
        }
    });
}

async fn wait_until_settled(node: &Node, listed: &mut Vec<sampan_monitor::protocol::ContainerState>) {
    while listed.iter().any(|c| c.phase == Phase::Starting) {
        sleep_ms(5).await;
        *listed = node.client.list().await.unwrap();
    }
}
