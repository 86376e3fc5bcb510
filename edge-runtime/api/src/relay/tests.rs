use std::future::poll_fn;

use edge_protocol::channel::{STDOUT, records};
use tokio::io::{DuplexStream, duplex, split};
use tokio::task::LocalSet;

use super::*;

fn request() -> ApiRequest {
    ApiRequest { method: "GET".into(), path: "/api".into(), headers: Vec::new(), has_body: false }
}

/// The daemon's end.
struct Daemon {
    socket: DuplexStream,
    frames: Frames,
}

impl Daemon {
    async fn next(&mut self) -> Frame {
        let mut chunk = [0; 4_096];
        loop {
            if let Some(frame) = self.frames.next_frame().expect("frames") {
                return frame;
            }
            let length = self.socket.read(&mut chunk).await.expect("read");
            assert!(length > 0, "the helper has gone");
            self.frames.push(&chunk[..length]);
        }
    }

    async fn say(&mut self, stream: u64, kind: Kind, payload: &[u8]) {
        let mut out = Vec::new();
        frame::write(stream, kind, payload, &mut out);
        self.socket.write_all(&out).await.expect("written");
    }
}

fn test<F: Future<Output = ()>>(body: impl FnOnce(Rc<Relay>, Daemon) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(LocalSet::new().run_until(async {
        let (own, socket) = duplex(1 << 20);
        let relay = Rc::new(Relay::default());
        let runs = Rc::clone(&relay);
        tokio::task::spawn_local(async move {
            let (read, write) = split(own);
            let ended = runs.run(read, write, b"").await;
            runs.close(&ended.expect_err("ends with a reason").to_string());
        });
        body(relay, Daemon { socket, frames: Frames::default() }).await;
    }));
}

async fn record(stream: &Stream) -> Result<Record, String> {
    poll_fn(|context| stream.poll_record(context)).await
}

#[test]
fn request_and_answer_are_frames() {
    test(async |relay, mut daemon| {
        let stream = relay.open(&request(), true).expect("room");
        let opened = daemon.next().await;
        assert_eq!((opened.stream, opened.kind), (1, Kind::Open));
        assert_eq!(serde_json::from_slice::<ApiRequest>(&opened.payload).expect("JSON"), request());
        daemon.say(1, Kind::Data, &records(STDOUT, b"abc")).await;
        assert_eq!(record(&stream).await.map(|record| record.data), Ok(b"abc".to_vec()));
        daemon.say(1, Kind::End, b"why").await;
        assert_eq!(record(&stream).await, Err("why".into()));
        drop(stream);
        assert_eq!(relay.len(), 0);
        let stream = relay.open(&request(), true).expect("room");
        assert_eq!(daemon.next().await.stream, 2, "no second end of the first");
        drop(stream);
        assert_eq!(daemon.next().await.kind, Kind::End);
    });
}

#[test]
fn answer_that_is_not_taken_gets_no_credit() {
    test(async |relay, mut daemon| {
        let stream = relay.open(&request(), true).expect("room");
        daemon.next().await;
        for _ in 0..4 {
            daemon.say(1, Kind::Data, &records(STDOUT, &[0; 16_000])).await;
        }
        for _ in 0..3 {
            record(&stream).await.expect("a record");
        }
        let grant = daemon.next().await;
        assert_eq!((grant.kind, frame::credit(&grant.payload)), (Kind::Credit, Some(3 * 16_005)));
        // More than was granted ends the connection.
        for _ in 0..8 {
            daemon.say(1, Kind::Data, &records(STDOUT, &[0; 16_000])).await;
        }
        while record(&stream).await.is_ok() {}
        assert!(relay.open(&request(), true).is_none());
    });
}

#[test]
fn body_waits_for_credit() {
    test(async |relay, mut daemon| {
        let stream = relay.open(&request(), true).expect("room");
        daemon.next().await;
        let body = vec![1; 100_000];
        let sent = async { stream.send(&body).await };
        let seen = async {
            let mut seen = 0;
            while seen < 65_536 {
                seen += daemon.next().await.payload.len();
            }
            assert_eq!(seen, 65_536);
            daemon.say(1, Kind::Credit, &50_000_u32.to_be_bytes()).await;
            while seen < 100_000 {
                seen += daemon.next().await.payload.len();
            }
            seen
        };
        let (sent, seen) = tokio::join!(sent, seen);
        assert_eq!((sent, seen), (Ok(()), 100_000));
    });
}

#[test]
fn requests_have_a_limit() {
    test(async |relay, daemon| {
        let all: Vec<_> = (0..100).filter_map(|_| relay.open(&request(), true)).collect();
        assert_eq!(all.len(), MAX_REQUESTS);
        drop(daemon);
        assert!(record(&all[0]).await.is_err());
    });
}

#[test]
fn last_streams_are_for_pods_without_any() {
    test(async |relay, _daemon| {
        let all: Vec<_> = (0..100).filter_map(|_| relay.open(&request(), false)).collect();
        assert_eq!(all.len(), MAX_REQUESTS - RESERVED);
        assert!(relay.open(&request(), true).is_some());
    });
}

/// A daemon that hangs: nothing is taken from what waits.
#[test]
fn cancelled_requests_do_not_gather() {
    let relay = Rc::new(Relay::default());
    let long = ApiRequest { path: format!("/api?{}", "x".repeat(8_000)), ..request() };
    let opened = (0..10_000).filter(|_| relay.open(&long, true).map(drop).is_some()).count();
    assert!(opened < 20 && relay.out.borrow().len() < 2 * FULL, "{opened} opened");
}
