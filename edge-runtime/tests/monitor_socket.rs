//! The monitor's socket with other versions and faulty clients, how a daemon connects to it, and logs under load.
#![allow(clippy::print_stderr)]

mod monitor_support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use edge_runtime::monitor::client::Settings;
use monitor_support::{Node, can_run, sleeps, ticks};

async fn sleep_ms(ms: u64) {
    smol::Timer::after(Duration::from_millis(ms)).await;
}

fn send(stream: &mut UnixStream, text: &str) {
    stream.write_all(&u32::try_from(text.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
}

fn receive(stream: &mut UnixStream) -> serde_json::Value {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn connect(node: &Node) -> UnixStream {
    let stream = UnixStream::connect(node.paths.monitor_socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

#[test]
fn newer_clients_and_bad_neighbours() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        node.client.start(node.bundle("one", "sleep 1000")).await.unwrap();
        node.started("one").await;
        let mut newer = connect(&node);
        send(&mut newer, r#"{"seq":1,"op":"hello","version":99,"colour":"blue"}"#);
        assert_eq!(receive(&mut newer)["version"], sampan_monitor::protocol::VERSION);
        send(&mut newer, r#"{"seq":2,"op":"checkpoint","id":"one"}"#);
        let refused = receive(&mut newer);
        assert_eq!(refused["answer"], 2);
        assert!(refused["error"].as_str().unwrap().contains("checkpoint"), "{refused}");
        send(&mut newer, r#"{"seq":3,"op":"list"}"#);
        assert_eq!(receive(&mut newer)["containers"][0]["id"], "one");

        // A client that breaks the framing is dropped, and one that never reads is dropped at a limit.
        let mut broken = connect(&node);
        broken.write_all(&[0xff; 64]).unwrap();
        assert!(matches!(broken.read(&mut [0; 8]), Ok(0) | Err(_)));
        let mut deaf = connect(&node);
        let dropped = (0..200_000).any(|n| {
            let text = format!(r#"{{"seq":{n},"op":"list"}}"#);
            let mut frame = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
            frame.extend_from_slice(text.as_bytes());
            deaf.write_all(&frame).is_err()
        });
        assert!(dropped, "a deaf client was kept");

        // Other clients are not affected.
        node.client.kill("one", 9).await.unwrap();
        node.exited("one").await;
        assert_eq!(receive(&mut newer)["event"], "exited");
    });
}

/// The monitor as its client starts it: noted, and in vain once `$0.never` is there.
fn noted(settings: &mut Settings, program: &Path) {
    let text = "echo try >>\"$0.tries\"; [ ! -e \"$0.never\" ] || exit 1";
    fs::write(program, format!("#!/bin/sh\n{text}\nexec {} \"$@\"\n", Node::program())).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    settings.program = program.into();
}

/// The holder of the lock listens a while later: until then connections fail, and no second monitor starts.
#[test]
fn a_monitor_that_was_missed_is_found_when_it_listens() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let node = Node::with(|settings| noted(settings, &program));
    fs::create_dir_all(node.paths.run()).unwrap();
    let lock = File::create(node.paths.run().join("monitor.lock")).unwrap();
    lock.lock().unwrap();
    let by_hand = async {
        let tries = || fs::read_to_string(program.with_extension("tries")).unwrap_or_default().lines().count();
        while tries() < 2 {
            sleep_ms(10).await;
        }
        fs::write(program.with_extension("never"), "").unwrap();
        // One after the other: the last process that checked the lock has ended.
        let before = tries();
        while tries() == before {
            sleep_ms(10).await;
        }
        drop(lock);
        let mut monitor = Command::new(Node::program());
        assert!(monitor.arg("monitor").arg("--root").arg(node.paths.root()).status().unwrap().success());
        let late = async {
            sleep_ms(10_000).await;
            panic!("ten seconds later nothing has started");
        };
        smol::future::or(node.started("one"), late).await
    };
    node.run(async {
        let start = node.client.start(node.bundle("one", "sleep 1000"));
        let (started, _pid) = smol::future::zip(start, by_hand).await;
        started.unwrap();
    });
}

/// No connection is left: a daemon that asks for one again and again must cost a board nothing.
#[test]
fn a_daemon_that_is_turned_away_comes_back_less_and_less_often() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        node.client.start(node.bundle("one", "sleep 1000")).await.unwrap();
        node.started("one").await;
    });
    let strangers: Vec<UnixStream> = (0..16).map(|_| connect(&node)).collect();
    let monitor = node.monitor_pid().unwrap();
    let second = node.again();
    second.run(async {
        let before = (ticks(monitor), sleeps(monitor));
        sleep_ms(2000).await;
        let used = (ticks(monitor) - before.0, sleeps(monitor) - before.1);
        // On a busy host the first stays low, on an idle one the second.
        assert!(used.0 < 50 && used.1 < 50, "{} of 200 ticks, woken {} times", used.0, used.1);
        drop(strangers);
        assert_eq!(second.reconnected().await.len(), 1, "there is room again");
    });
}

#[test]
fn a_flood_of_output_is_rotated_and_nothing_is_lost() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    node.run(async {
        let mut spec = node.bundle("loud", "seq 1 200000");
        (spec.log_max_bytes, spec.log_max_files) = (4 << 20, 50);
        let log = spec.log_path.clone();
        node.client.start(spec).await.unwrap();
        assert_eq!(node.exited("loud").await.code, 0);
        let mut files: Vec<_> = fs::read_dir(log.parent().unwrap()).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        // `0.log` sorts before its rotated files, but is the newest.
        files.rotate_left(1);
        assert!(files.len() >= 3, "{files:?}");
        let mut next = 1u32;
        for file in &files {
            assert!(fs::metadata(file).unwrap().len() < 5 << 20);
            for line in fs::read_to_string(file).unwrap().lines() {
                assert!(line.ends_with(&format!(" stdout F {next}")), "{line} instead of {next}");
                next += 1;
            }
        }
        assert_eq!(next, 200_001);
    });
}
