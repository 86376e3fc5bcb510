//! Cost of hostile clients for the DMI server and its other clients.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod grpc_support;

use std::time::{Duration, Instant};

use grpc_support::*;
use sampan_grpc::{fuzz_client, fuzz_server, fuzz_stream};
use tokio::io::AsyncWriteExt;

const SECOND: Duration = Duration::from_secs(1);

/// Bytes to send in each turn.
type Flood = Box<dyn Fn(u32) -> Vec<u8>>;

#[test]
fn floods_end_the_connection() {
    run(async {
        let server = Server::start();
        let open: Vec<u8> = frame(HEADERS, END_HEADERS, 1, &head("/t.T/Echo"));
        let reset = |stream: u32| {
            let head = frame(HEADERS, END_HEADERS, stream, &head("/t.T/Echo"));
            [head, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        };
        let get = |stream: u32| {
            let head = block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")]);
            frame(HEADERS, END_HEADERS | END, stream, &head)
        };
        let floods: [(&str, Flood); 8] = [
            ("PING", Box::new(|_| frame(PING, 0, 0, &[1; 8]))),
            ("SETTINGS", Box::new(|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]))),
            ("WINDOW_UPDATE", Box::new(|_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))),
            ("empty DATA", Box::new(|_| frame(DATA, 0, 1, &[]))),
            (
                "CONTINUATION",
                Box::new(|turn| match turn {
                    0 => frame(HEADERS, 0, 3, &head("/t.T/Echo")),
                    _ => frame(CONTINUATION, 0, 3, &[]),
                }),
            ),
            ("RST_STREAM", Box::new(move |turn| reset(3 + 2 * turn))),
            ("requests that are none", Box::new(move |turn| get(3 + 2 * turn))),
            ("unknown frames", Box::new(|_| frame(0x42, 0, 0, &[0; 8]))),
        ];
        for (name, flood) in floods {
            let mut raw = Raw::greeted(&server.socket()).await;
            raw.send(&open).await;
            let mut ended = false;
            for turn in 0..20_000 {
                // Reads the answers; otherwise the connection would end.
                let mut bytes = [0; 16_384];
                while raw.0.try_read(&mut bytes).is_ok_and(|count| count > 0) {}
                if raw.0.write_all(&flood(turn)).await.is_err() {
                    ended = true;
                    break;
                }
            }
            assert!(ended, "{name} goes on");
            serves(&server, SECOND * 10).await;
        }
    });
}

#[test]
fn ping_with_each_call_is_not_a_flood() {
    run(async {
        let server = Server::start();
        let mut raw = Raw::greeted(&server.socket()).await;
        for number in 0..4_000 {
            raw.send(&[request(1 + 2 * number, "/t.T/Echo", b""), frame(PING, 0, 0, &[1; 8])].concat()).await;
            assert_eq!(raw.next(DATA).await.map(|frame| frame.payload), Some(prefixed(b"")), "{number}");
        }
    });
}

#[test]
fn garbage_ends_the_connection() {
    run(async {
        let server = Server::start();
        for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 100], &[0xff; 100]] {
            let mut raw = Raw::connect(&server.socket()).await;
            raw.send(garbage).await;
            raw.rest().await;
            let mut raw = Raw::greeted(&server.socket()).await;
            raw.send(garbage).await;
            raw.rest().await;
        }
        // Fields without end: the stream is reset, the connection goes on.
        let mut raw = Raw::greeted(&server.socket()).await;
        let long = "x".repeat(9_000);
        raw.send(&frame(HEADERS, END_HEADERS | END, 1, &head_with("/t.T/Echo", &[("x", &long)]))).await;
        assert_eq!(raw.next(RST_STREAM).await.map(|frame| frame.stream), Some(1));
        raw.send(&request(3, "/t.T/Echo", b"after")).await;
        assert_eq!(raw.next(DATA).await.unwrap().payload, prefixed(b"after"));
    });
}

#[test]
fn silent_client_is_disconnected() {
    run(async {
        let server = Server::start();
        let start = Instant::now();
        let mut silent = Raw::connect(&server.socket()).await;
        let mut slow = Raw::greeted(&server.socket()).await;
        slow.send(&frame(HEADERS, END_HEADERS, 1, &head("/t.T/Echo"))).await;
        silent.rest().await;
        assert!(start.elapsed() < SECOND * 10);
        // A request that is not finished is answered in time, and the connection goes on.
        assert_eq!(slow.next(HEADERS).await.map(|frame| frame.flags & END), Some(END));
        assert!(start.elapsed() < SECOND * 15);
        slow.send(&request(3, "/t.T/Echo", b"after")).await;
        assert_eq!(slow.next(DATA).await.unwrap().payload, prefixed(b"after"));
    });
}

#[test]
fn idle_connections_make_room_for_others() {
    run(async {
        let server = Server::start();
        let mut idle = Vec::new();
        for _ in 0..256 {
            let mut raw = Raw::greeted(&server.socket()).await;
            raw.send(&request(1, "/t.T/Echo", b"once")).await;
            idle.push(raw);
        }
        serves(&server, SECOND * 5).await;
        // They get GOAWAY, as gRPC clients expect.
        let mut told = false;
        for raw in &mut idle {
            told |= raw.next(GOAWAY).await.is_some();
            if told {
                break;
            }
        }
        assert!(told);
    });
}

/// A small, reproducible source of chance (xorshift).
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % below
    }
}

fn mutated(chance: &mut Chance, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..chance.next(8) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = chance.next(bytes.len());
        match chance.next(4) {
            0 => bytes[at] = chance.next(256).try_into().unwrap(),
            1 => drop(bytes.remove(at)),
            2 => bytes.truncate(at + 1),
            _ => {
                let to = (at + chance.next(40)).min(bytes.len());
                let again = bytes[at..to].to_vec();
                bytes.splice(at..at, again);
            }
        }
    }
    bytes
}

#[test]
fn any_bytes_are_handled() {
    let mut server = vec![40];
    server.extend(greeting());
    for (stream, path) in [(1, "/t.T/Echo"), (3, "/t.T/Even"), (5, "/x")] {
        server.extend(request(stream, path, &[7; 3_001]));
    }
    server.extend(frame(HEADERS, END_HEADERS, 7, &head("/t.T/Echo")));
    server.extend(frame(RST_STREAM, 0, 7, &[0, 0, 0, 8]));
    server.extend(frame(PING, 0, 0, &[0; 8]));
    assert_eq!(fuzz_server(&server), 3);
    let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
    let mut client = vec![200];
    client.extend(frame(SETTINGS, 0, 0, &[]));
    client.extend(frame(SETTINGS, ACK, 0, &[]));
    client.extend(frame(HEADERS, END_HEADERS, 1, &head));
    client.extend(frame(DATA, 0, 1, &prefixed(&[1; 100])));
    client.extend(frame(HEADERS, END_HEADERS | END, 1, &block(&[("grpc-status", "0"), ("grpc-message", "a%20b")])));
    assert_eq!(fuzz_client(&client), 1);
    let mut stream = vec![200];
    stream.extend(frame(SETTINGS, 0, 0, &[]));
    stream.extend(frame(HEADERS, END_HEADERS, 1, &head));
    for length in [100, 0, 1] {
        stream.extend(frame(DATA, 0, 1, &prefixed(&vec![1; length])));
    }
    stream.extend(frame(HEADERS, END_HEADERS | END, 1, &block(&[("grpc-status", "0")])));
    assert_eq!(fuzz_stream(&stream), 3);
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let (mut calls, mut answers, mut messages) = (0, 0, 0);
    for _ in 0..20_000 {
        calls += fuzz_server(&mutated(&mut chance, server.clone()));
        answers += fuzz_client(&mutated(&mut chance, client.clone()));
        messages += fuzz_stream(&mutated(&mut chance, stream.clone()));
    }
    // Most slightly changed inputs are still valid.
    assert!(calls > 10_000 && answers > 2_000, "{calls} calls, {answers} answers");
    assert!(messages > 5_000, "{messages} messages");
}
