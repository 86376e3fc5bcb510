//! The link against a real TLS websocket server that runs the bridge's own session, on one executor.

mod identity;
mod proxy;
mod server;

use super::identity::Identity;
use super::join::{Hardware, JoinError, Token, enrol, join};
use super::*;
use crate::net::proxy::Proxy;
use crate::paths::Paths;
use crate::sys::tasks::Tasks;
use edge_protocol::edge::EdgeFacts;
use edge_protocol::message::{Object, ObjectDigest, Position, StreamRequest};
use server::{Authority, Server};
use smol::{Timer, channel};
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

/// Runs a test on one executor and gives up after a while.
fn run<F: Future<Output = ()>>(test: impl FnOnce(Tasks) -> F) {
    let ex = Tasks::default();
    let work = test(ex.clone());
    let limit = async {
        Timer::after(Duration::from_secs(20)).await;
        panic!("the test hangs");
    };
    smol::block_on(ex.run(smol::future::or(work, limit)));
}

fn object(name: &str, version: u64, pad: usize) -> Object {
    let key = ObjectKey { kind: "Pod".into(), namespace: "ns".into(), name: name.into() };
    let digest = ObjectDigest { key, uid: format!("uid-{name}"), digest: version.to_string() };
    Object { digest, body: serde_json::json!({ "pad": "x".repeat(pad) }) }
}

/// A node loop with a store in memory.
struct Node {
    paths: Paths,
    _folder: tempfile::TempDir,
    handle: LinkHandle,
    events: Receiver<LinkEvent>,
    held: BTreeMap<ObjectKey, ObjectDigest>,
    position: Option<Position>,
    cluster: Option<String>,
    log: Vec<String>,
}

impl Node {
    fn start(ex: &Tasks, identity: Identity, capacity: usize) -> Self {
        Self::start_at(ex, identity, capacity, Time::default())
    }

    /// Judges certificates by another time.
    fn start_at(ex: &Tasks, identity: Identity, capacity: usize, time: Time) -> Self {
        Self::start_through(ex, identity, capacity, time, Proxy::default())
    }

    fn start_through(ex: &Tasks, identity: Identity, capacity: usize, time: Time, proxy: Proxy) -> Self {
        let (sender, events) = channel::bounded(capacity);
        let folder = tempfile::tempdir().expect("temp dir");
        let paths = Paths::new(folder.path());
        identity.save(&paths).expect("saved");
        let settings = LinkSettings { identity, time, paths: paths.clone(), status: None, proxy };
        let handle = start(ex, settings, sender);
        Self {
            paths,
            _folder: folder,
            handle,
            events,
            held: BTreeMap::new(),
            position: None,
            cluster: None,
            log: Vec::new(),
        }
    }

    /// Handles one event; returns a short name of it.
    async fn turn(&mut self) -> String {
        let event = self.events.recv().await.expect("the link runs as long as somebody listens");
        let name = match event {
            LinkEvent::Resolved(addresses) => {
                assert!(!addresses.is_empty());
                return Box::pin(self.turn()).await;
            }
            LinkEvent::NeedFacts => {
                let mut facts = EdgeFacts::new("edge-1", "boot");
                facts.held = self.held.values().cloned().collect();
                facts.position = self.position.clone();
                facts.cluster = self.cluster.clone();
                self.handle.facts(facts);
                "facts".to_owned()
            }
            LinkEvent::Connected(welcome) => {
                self.cluster = Some(welcome.cluster);
                format!("connected resume={}", welcome.resume)
            }
            LinkEvent::Changes { stream, changes } => {
                let mut last = 0;
                for change in changes {
                    self.position = change.position(&stream);
                    last = change.seq();
                    match change {
                        Change::Put { object, .. } => {
                            drop(self.held.insert(object.digest.key.clone(), object.digest));
                        }
                        Change::Delete { key, .. } => drop(self.held.remove(&key)),
                        Change::SyncComplete { absent, .. } => self.held.retain(|_, d| !absent.contains(d)),
                    }
                }
                self.handle.committed(last);
                "changes".to_owned()
            }
            LinkEvent::UpAcked(ids) => format!("acked {ids:?}"),
            LinkEvent::UpRefused(id, reason) => format!("refused {id} {reason}"),
            LinkEvent::Token { id, .. } => format!("token {id}"),
            LinkEvent::DevicesAcked { batch, .. } => format!("devices {batch}"),
            LinkEvent::MessagesAcked(ids) => format!("messages {ids:?}"),
            LinkEvent::Call { id, .. } => format!("call {id}"),
            LinkEvent::Response { id, .. } => format!("response {id}"),
            LinkEvent::Stream(StreamEvent::Data { stream, data }) => {
                self.handle.stream_consumed(stream, data.len());
                format!("data {stream} {}", data.len())
            }
            LinkEvent::Stream(event) => format!("{event:?}"),
            LinkEvent::Refused(reason, _) => format!("refused {reason:?}"),
            LinkEvent::Disconnected(reason) => format!("disconnected {reason}"),
        };
        self.log.push(name.clone());
        name
    }

    async fn until(&mut self, wanted: &str) -> String {
        loop {
            let name = self.turn().await;
            if name.starts_with(wanted) {
                return name;
            }
        }
    }
}

#[test]
fn link_resumes_after_a_cut() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        server.set(object("a", 1, 10));
        server.set(object("b", 1, 3 << 20)); // three times the size of a frame
        let mut node = Node::start(&ex, authority.identity("edge-1", server.address()), 16);
        assert_eq!(node.until("connected").await, "connected resume=false");
        while node.held.len() < 2 || node.position.is_none() {
            node.until("changes").await;
        }
        server.until(|s| s.acked() == Some(2)).await;

        let event = Report::Event { event: serde_json::json!({}) };
        node.handle.up(7, event.clone()).expect("room");
        node.handle.up(8, event).expect("room");
        assert!(node.until("acked").await.contains('7'));

        // An idle link is woken by the node loop, not by its next heartbeat.
        Timer::after(Duration::from_millis(100)).await;
        let asked = std::time::Instant::now();
        node.handle.up(9, Report::Event { event: serde_json::json!({}) }).expect("room");
        node.until("acked [9]").await;
        assert!(asked.elapsed() < Duration::from_millis(900), "{:?}", asked.elapsed());

        server.cut();
        node.until("disconnected").await;
        assert!(!node.handle.is_connected());
        server.set(object("a", 2, 10));
        assert_eq!(node.until("connected").await, "connected resume=true");
        node.until("changes").await;
        assert_eq!(node.held.values().next().expect("held").digest, "2");
        server.until(|s| s.acked() == Some(3)).await;
    });
}

#[test]
fn a_busy_node_loop_is_waited_for_and_not_taken_for_dead() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        for n in 0..500 {
            server.set(object(&format!("pod-{n}"), 1, 2_000));
        }
        let mut node = Node::start(&ex, authority.identity("edge-1", server.address()), 1);
        node.until("changes").await;
        Timer::after(Duration::from_millis(2_500)).await; // the server's heartbeat is one second
        while node.held.len() < 500 || node.position.is_none() {
            node.turn().await;
        }
        assert!(!node.log.iter().any(|l| l.starts_with("disconnected")), "{:?}", node.log);
    });
}

#[test]
fn streams_carry_bytes_both_ways_and_end_with_the_connection() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let mut node = Node::start(&ex, authority.identity("edge-1", server.address()), 16);
        node.until("connected").await;
        let stream = server.session(|s, _| s.open_stream(StreamRequest::Unknown).expect("opens"));
        assert!(node.until("Opened").await.contains("Unknown"));
        let data = vec![7; 300_000];
        let mut rest = data.as_slice();
        while !rest.is_empty() {
            let room = node.handle.stream_room(stream).min(rest.len());
            if room == 0 {
                node.until("Room").await;
                continue;
            }
            node.handle.stream_send(stream, &rest[..room]).expect("there is room");
            rest = &rest[room..];
        }
        node.handle.stream_end(stream, None);
        server.until(|s| s.received == data.len() && s.ended == Some(None)).await;

        let other = server.session(|s, _| s.open_stream(StreamRequest::Unknown).expect("opens"));
        node.until("Opened").await;
        server.cut();
        assert!(node.until("Closed").await.contains(&format!("stream: {other}")));
        node.until("disconnected").await;
    });
}

#[test]
fn a_silent_bridge_is_found_dead_within_two_heartbeats() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let mut node = Node::start(&ex, authority.identity("edge-1", server.address()), 16);
        node.until("connected").await;
        server.freeze();
        let started = std::time::Instant::now();
        assert!(node.until("disconnected").await.contains("nothing heard"));
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    });
}

#[test]
fn refusals_and_foreign_bridges_delete_nothing() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let mut node = Node::start(&ex, authority.identity("edge-1", server.address()), 16);
        node.cluster = Some("another".into());
        let held = object("a", 1, 0).digest;
        node.held.insert(held.key.clone(), held);
        assert_eq!(node.until("refused").await, "refused WrongCluster");
        assert!(node.until("disconnected").await.contains("cluster"));

        // A bridge with another authority, under the same address.
        let stranger = Server::start(&ex, &Authority::new()).await;
        let mut lost = Node::start(&ex, authority.identity("edge-1", stranger.address()), 16);
        assert!(lost.until("disconnected").await.contains("tls handshake"));
        assert_eq!(node.held.len(), 1);
        assert!(!node.log.iter().chain(&lost.log).any(|l| l == "changes"));
    });
}

#[test]
fn board_enrols_when_it_is_approved() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let token = Token::parse(&authority.token("good").replace("sampan1", "sampan2")).expect("token");
        let folder = tempfile::tempdir().expect("temp dir");
        let (paths, bridges, direct) = (Paths::new(folder.path()), [server.address()], Proxy::default());
        let board = |serial: &str| Hardware { serial: serial.into(), ..Hardware::default() };
        let waits = enrol(&paths, &token, &bridges, &board("unapproved"), &direct).await.expect_err("it waits");
        assert_eq!(waits.retry_seconds(), Some(30), "{waits}");
        let enrolled = enrol(&paths, &token, &bridges, &board("1"), &direct).await.expect("enrolled");
        assert_eq!((enrolled.identity.node.as_str(), enrolled.labels["a"].as_str()), ("gw-1", "b"));
    });
}

#[test]
fn joins_with_a_token_and_the_identity_works() {
    run(|ex| async move {
        let authority = Authority::new();
        let server = Server::start(&ex, &authority).await;
        let token = Token::parse(&authority.token("good")).expect("token");
        // The first bridge is not there; the second answers.
        let bridges = ["https://127.0.0.1:1".parse().expect("address"), server.address()];
        let folder = tempfile::tempdir().expect("temp dir");
        let paths = Paths::new(folder.path());
        let direct = Proxy::default();
        let identity = join(&paths, &token, &bridges, "edge-1", &direct).await.expect("joins");
        assert_eq!((identity.node.as_str(), identity.cluster.as_str()), ("edge-1", "cluster-1"));
        let mut node = Node::start(&ex, identity, 16);
        assert!(node.until("disconnected").await.contains("127.0.0.1:1"), "the bridges are tried in turn");
        node.until("connected").await;

        let used = Token::parse(&authority.token("bad")).expect("token");
        match join(&paths, &used, &bridges[1..], "edge-1", &direct).await {
            Err(error @ JoinError::Refused { status: 403, .. }) => {
                assert!(error.to_string().contains("Forbidden: the token was used"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let foreign = Token::parse(&Authority::new().token("good")).expect("token");
        let error = join(&paths, &foreign, &bridges[1..], "edge-1", &direct).await.expect_err("another authority");
        let error = error.to_string();
        assert!(error.contains("authority that the token names"), "{error}");
    });
}
