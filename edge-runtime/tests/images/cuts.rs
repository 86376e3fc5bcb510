//! Helpers that are killed at any moment, and two of them at once.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::node::Node;
use crate::wire::{Served, Server, layer};

fn served() -> Served {
    let content = |seed: u32| (0..200_000_u32).flat_map(|n| (n ^ seed).to_le_bytes()).collect::<Vec<u8>>();
    Served::new(&[layer("a", &content(1)), layer("b", &content(2)), layer("c", &content(3))])
}

fn node_for(server: &Server) -> Node {
    let node = Node::new();
    node.plain_http(&server.address.to_string());
    node
}

/// Runs a verb and kills it after `time`; whether it was quicker.
fn killed(node: &Node, verb: &str, args: &[&str], time: Duration) -> bool {
    let mut command = node.command(verb);
    let mut child = command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while started.elapsed() < time {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    false
}

/// Duration without a disturbance, plus a margin.
fn whole(node: &Node, verb: &str, args: &[&str]) -> Duration {
    let started = Instant::now();
    node.run(verb, args).expect();
    started.elapsed() * 5 / 4
}

fn is_clean(node: &Node) {
    assert!(node.run("images", &["--verify"]).expect().stdout.contains("whole"));
    assert!(node.listing("incoming").is_empty(), "{:?}", node.listing("incoming"));
    let half: Vec<_> = node.listing("layers").into_iter().filter(|name| name.starts_with('.')).collect();
    assert!(half.is_empty(), "{half:?}");
}

#[test]
fn a_pull_that_is_killed_anywhere_leaves_nothing() {
    let served = served();
    let server = Server::start(move |request| served.answer(request));
    let image = server.image("app:v1");
    let time = whole(&node_for(&server), "pull", &[&image]);
    const CUTS: u32 = 30;
    for cut in 1..=CUTS {
        let node = node_for(&server);
        killed(&node, "pull", &[&image], time * cut / CUTS);
        // The next boot, then the next try.
        node.run("collect", &["usual"]).expect();
        let half: Vec<_> = node.listing("incoming").into_iter().filter(|name| name.starts_with("layer-")).collect();
        assert!(half.is_empty(), "{half:?}");
        node.pull(&image).expect();
        assert_eq!(node.images().len(), 1);
        assert_eq!(node.listing("layers").len(), 7, "three layers, their counts, one record");
        is_clean(&node);
    }
}

/// Killed between its last commit and the removal of its note, which is a moment of a sync.
#[test]
fn note_of_a_completed_pull_is_deleted() {
    let served = served();
    let server = Server::start(move |request| served.answer(request));
    let image = server.image("app:v1");
    let node = node_for(&server);
    node.pull(&image).expect();
    let records: Vec<_> = node.listing("layers").into_iter().filter(|name| name.ends_with(".image")).collect();
    let [record] = records.as_slice() else { panic!("{records:?}") };
    let note = node.state("incoming").join(format!("want-{}", record.trim_end_matches(".image")));
    std::fs::write(&note, r#"{"layers": [], "brought": [], "access": {}}"#).unwrap();
    // A note about another image, which a power cut has emptied.
    std::fs::write(node.state("incoming").join(format!("want-{}", "0".repeat(64))), "").unwrap();
    node.run("collect", &["usual"]).expect();
    is_clean(&node);
    assert_eq!(node.images().len(), 1);
    assert_eq!(node.listing("layers").len(), 7, "three layers, their counts, one record");
}

#[test]
fn a_removal_that_is_killed_anywhere_is_ended_by_the_next() {
    let served = served();
    let server = Server::start(move |request| served.answer(request));
    let image = server.image("app:v1");
    let node = node_for(&server);
    node.pull(&image).expect();
    let time = whole(&node, "images", &["--remove", &image]);
    const CUTS: u32 = 30;
    for cut in 1..=CUTS {
        let node = node_for(&server);
        node.pull(&image).expect();
        killed(&node, "images", &["--remove", &image], time * cut / CUTS);
        node.run("collect", &["usual"]).expect();
        match node.images().len() {
            0 => assert!(node.listing("layers").is_empty(), "{:?}", node.listing("layers")),
            // Killed before it did anything that lasts; its layers are all there.
            _ => assert_eq!(node.listing("layers").iter().filter(|name| !name.ends_with(".image")).count(), 6),
        }
        is_clean(&node);
    }
}

#[test]
fn a_pull_of_hours_keeps_no_collection_waiting() {
    let served = served();
    let small = Served::new(&[layer("file", b"small")]);
    let path = format!("/v2/app/blobs/{}", served.layers[1]);
    let goes_on = Arc::new(AtomicBool::new(false));
    let go = goes_on.clone();
    // One connection at a time: the silent one has a server of its own.
    let slow = Server::start(move |request| {
        while request.path == path && !go.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        served.answer(request)
    });
    let quick = Server::start(move |request| small.answer(request));
    let node = Node::new();
    let tables = [slow.address, quick.address].map(|a| format!("- host: \"{a}\"\n  plain-http: true\n"));
    node.config(&format!("registry:\n{}", tables.concat()));
    let mut pull = node.command("pull").arg(slow.image("app:v1")).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while !slow.seen().iter().any(|request| request.path.contains("blobs") && slow.seen().len() > 3) {
        assert!(started.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(10));
    }
    let started = Instant::now();
    node.pull(&quick.image("app:v1")).expect();
    node.run("images", &["--remove", &quick.image("app:v1")]).expect();
    node.run("collect", &["shortest"]).expect();
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(pull.try_wait().unwrap().is_none(), "the slow pull is still at it");
    assert_eq!(node.listing("layers").len(), 2, "the first layer of the pull under way: {:?}", node.listing("layers"));
    goes_on.store(true, Ordering::Relaxed);
    assert!(pull.wait().unwrap().success());
    assert_eq!(node.images().len(), 1);
    is_clean(&node);
}
