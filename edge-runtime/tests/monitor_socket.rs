//! The monitor's socket as other versions and bad neighbours use it, and logs under load.
#![allow(clippy::print_stderr)]

mod monitor_support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use monitor_support::{Node, can_run};

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
        assert_eq!(receive(&mut newer)["version"], edge_runtime::monitor::protocol::VERSION);
        send(&mut newer, r#"{"seq":2,"op":"checkpoint","id":"one"}"#);
        let refused = receive(&mut newer);
        assert_eq!(refused["answer"], 2);
        assert!(refused["error"].as_str().unwrap().contains("checkpoint"), "{refused}");
        send(&mut newer, r#"{"seq":3,"op":"list"}"#);
        assert_eq!(receive(&mut newer)["containers"][0]["id"], "one");

        // One that breaks the framing is dropped, one that never reads is dropped when too much piles up.
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

        // Nobody else suffers.
        node.client.kill("one", 9).await.unwrap();
        node.exited("one").await;
        assert_eq!(receive(&mut newer)["event"], "exited");
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
        let mut files: Vec<_> = std::fs::read_dir(log.parent().unwrap()).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        // `0.log` sorts before its rotated files, but is the newest.
        files.rotate_left(1);
        assert!(files.len() >= 3, "{files:?}");
        let mut next = 1u32;
        for file in &files {
            assert!(std::fs::metadata(file).unwrap().len() < 5 << 20);
            for line in std::fs::read_to_string(file).unwrap().lines() {
                assert!(line.ends_with(&format!(" stdout F {next}")), "{line} instead of {next}");
                next += 1;
            }
        }
        assert_eq!(next, 200_001);
    });
}
