//! The transport of DMI with its own client, and with bytes that no library would send.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod grpc_support;

use std::time::{Duration, Instant};

use grpc_support::*;
use sampan_grpc::{Client, Code, MAX_MESSAGE, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn calls_are_answered_over_one_connection() {
    run(async {
        let server = Server::start();
        let mut client = Client::new(server.socket());
        for length in [0, 1, 1_000, 40_000, 3 << 20, MAX_MESSAGE] {
            let message: Vec<u8> = (0..=255).cycle().take(length).collect();
            assert_eq!(client.call("/t.T/Echo", &message, PATIENCE).await, Ok(message), "{length}");
        }
        let peers = server.peers.borrow();
        assert!(peers.iter().all(|peer| peer.pid == std::process::id().try_into().ok()), "{peers:?}");
        assert!(peers.iter().all(|peer| peer.uid == nix::unistd::getuid().as_raw()));
    });
}

#[test]
fn errors_come_with_their_text() {
    run(async {
        let server = Server::start();
        let mut client = Client::new(server.socket());
        for text in ["", "no such device", "Gerät „Ofen“ ist 90 % zu heiß\n🔥"] {
            let expected = Err(Status::new(Code::NotFound, text));
            assert_eq!(client.call("/t.T/NotFound", text.as_bytes(), SECOND).await, expected);
        }
        assert_eq!(code(&client.call("/t.T/Nothing", b"", SECOND).await), Code::Unimplemented);
        assert_eq!(code(&client.call("/t.T/Drop", b"", SECOND).await), Code::Internal);
        assert_eq!(client.call("/t.T/Echo", b"still here", SECOND).await, Ok(b"still here".to_vec()));
    });
}

#[test]
fn too_long_message_is_refused_on_both_sides() {
    run(async {
        let server = Server::start();
        let mut client = Client::new(server.socket());
        let long = vec![0; MAX_MESSAGE + 1];
        assert_eq!(code(&client.call("/t.T/Count", &long, SECOND).await), Code::ResourceExhausted);
        assert_eq!(code(&client.call("/t.T/Long", b"4194305", PATIENCE).await), Code::ResourceExhausted);
        let mut raw = Raw::greeted(&server.socket()).await;
        raw.send(&frame(HEADERS, END_HEADERS, 1, &head("/t.T/Count"))).await;
        // Five MiB, of which the first bytes say so.
        raw.send(&frame(DATA, 0, 1, &[0, 0, 0x50, 0, 0, 1, 2, 3])).await;
        let answer = raw.next(HEADERS).await.unwrap();
        assert_eq!((answer.stream, answer.flags & END), (1, END));
        let reset = raw.next(RST_STREAM).await.unwrap();
        assert_eq!((reset.stream, &reset.payload[..]), (1, &[0; 4][..]), "NO_ERROR");
        raw.send(&request(3, "/t.T/Echo", b"goes on")).await;
        assert_eq!(raw.next(DATA).await.unwrap().payload, prefixed(b"goes on"));
    });
}

#[test]
fn deadlines_hold_on_both_sides() {
    run(async {
        let server = Server::start();
        let mut client = Client::new(server.socket());
        let start = Instant::now();
        let late = client.call("/t.T/Keep", b"", Duration::from_millis(300)).await;
        assert_eq!(code(&late), Code::DeadlineExceeded);
        assert!(start.elapsed() < SECOND * 5);
        assert_eq!(client.call("/t.T/Echo", b"a", SECOND).await, Ok(b"a".to_vec()));
        // A server that keeps time by itself, for a client that does not.
        let mut raw = Raw::greeted(&server.socket()).await;
        raw.send(&frame(HEADERS, END_HEADERS, 1, &head_with("/t.T/Late", &[("grpc-timeout", "200m")]))).await;
        raw.send(&frame(DATA, END, 1, &prefixed(b"1500"))).await;
        let answer = raw.next(HEADERS).await.unwrap();
        assert!(String::from_utf8_lossy(&answer.payload).contains("grpc-status") || answer.flags & END == END);
        assert!(start.elapsed() < SECOND * 5);
        // A late answer goes to no client.
        sleep(SECOND * 2).await;
        raw.send(&frame(PING, 0, 0, &[7; 8])).await;
        assert_eq!(raw.frame().await.map(|frame| frame.kind), Some(PING));
    });
}

#[test]
fn requests_come_through_byte_by_byte() {
    run(async {
        let server = Server::start();
        let mut raw = Raw::connect(&server.socket()).await;
        let mut bytes = greeting();
        bytes.extend(request(1, "/t.T/Echo", b"slowly"));
        for byte in bytes {
            raw.send(&[byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(
            raw.frame().await.map(|frame| (frame.kind, frame.flags)),
            Some((SETTINGS, 0)),
            "settings come first"
        );
        assert_eq!(raw.next(DATA).await.unwrap().payload, prefixed(b"slowly"));
        let trailers = raw.next(HEADERS).await.unwrap();
        assert_eq!(trailers.flags & END, END);
    });
}

#[test]
fn settings_are_sent_before_the_first_input() {
    run(async {
        let server = Server::start();
        let mut raw = Raw::connect(&server.socket()).await;
        assert_eq!(raw.frame().await.map(|frame| (frame.kind, frame.flags)), Some((SETTINGS, 0)));
    });
}

#[test]
fn a_reset_ends_one_call_and_no_other() {
    run(async {
        let server = Server::start();
        let mut raw = Raw::greeted(&server.socket()).await;
        raw.send(&frame(HEADERS, END_HEADERS, 1, &head("/t.T/Echo"))).await;
        raw.send(&frame(DATA, 0, 1, &prefixed(&[0; 1_000])[..500])).await;
        raw.send(&request(3, "/t.T/Keep", b"")).await;
        raw.send(&frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes())).await;
        raw.send(&frame(RST_STREAM, 0, 3, &8_u32.to_be_bytes())).await;
        raw.send(&request(5, "/t.T/Echo", b"after")).await;
        let answer = raw.next(DATA).await.unwrap();
        assert_eq!((answer.stream, answer.payload), (5, prefixed(b"after")));
    });
}

#[test]
fn request_without_grpc_gets_an_error() {
    run(async {
        let server = Server::start();
        let mut raw = Raw::greeted(&server.socket()).await;
        // Three digits are as short as they are: HPACK leaves them in ASCII.
        let says = |frame: Frame, text: &[u8]| {
            let found = frame.payload.windows(text.len()).any(|part| part == text);
            assert!(found && frame.flags & END == END, "{frame:?}");
        };
        let usual = [(":method", "POST"), (":scheme", "http"), (":path", "/t.T/Echo"), (":authority", "x")];
        let json = block(&[&usual[..], &[("content-type", "application/json")]].concat());
        raw.send(&frame(HEADERS, END_HEADERS | END, 1, &json)).await;
        says(raw.next(HEADERS).await.unwrap(), b"415");
        let get = block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")]);
        raw.send(&frame(HEADERS, END_HEADERS | END, 3, &get)).await;
        says(raw.next(HEADERS).await.unwrap(), b"405");
        // Compressed, though nothing was agreed on.
        raw.send(&frame(HEADERS, END_HEADERS, 5, &head("/t.T/Echo"))).await;
        raw.send(&frame(DATA, END, 5, &[1, 0, 0, 0, 1, 9])).await;
        // `grpc-status`.
        says(raw.next(HEADERS).await.unwrap(), b"12");
        raw.send(&request(7, "/t.T/Echo", b"after")).await;
        assert_eq!(raw.next(DATA).await.unwrap().payload, prefixed(b"after"));
    });
}

#[test]
fn a_client_comes_back_when_its_server_does() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mapper.sock");
        let mut client = Client::new(socket.clone());
        assert_eq!(code(&client.call("/t.T/Echo", b"", SECOND).await), Code::Unavailable);
        let server = Server::start();
        std::fs::hard_link(server.socket(), &socket)
            .or_else(|_| std::os::unix::fs::symlink(server.socket(), &socket))
            .unwrap();
        assert_eq!(client.call("/t.T/Echo", b"1", SECOND).await, Ok(b"1".to_vec()));
        let other = Server::start();
        std::fs::rename(other.socket(), &socket).unwrap();
        // The connection it has still works: it is not made again.
        assert_eq!(client.call("/t.T/Echo", b"2", SECOND).await, Ok(b"2".to_vec()));
        assert_eq!((server.peers.borrow().len(), other.peers.borrow().len()), (2, 0));
    });
}

/// Results of two calls: one to a server that sends these bytes after some input, and the next one to a proper server.
async fn says(hostile: Vec<u8>) -> (Result<Vec<u8>, Status>, Result<Vec<u8>, Status>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mapper.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (over, is_over) = oneshot::channel::<()>();
    spawn_local(async move {
        let mut heard = vec![0; 4_096];
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut heard).await;
        let _ = stream.write_all(&hostile).await;
        is_over.await.unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut heard).await;
        stream.write_all(&answer(b"well")).await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut client = Client::new(socket);
    let first = client.call("/t.T/Echo", b"a", SECOND).await;
    over.send(()).unwrap();
    sleep(Duration::from_millis(50)).await;
    (first, client.call("/t.T/Echo", b"a", SECOND * 5).await)
}

fn settings() -> Vec<u8> {
    [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[])].concat()
}

fn answer(message: &[u8]) -> Vec<u8> {
    let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
    let trailers = block(&[("grpc-status", "0")]);
    [
        settings(),
        frame(HEADERS, END_HEADERS, 1, &head),
        frame(DATA, 0, 1, &prefixed(message)),
        frame(HEADERS, END_HEADERS | END, 1, &trailers),
    ]
    .concat()
}

#[test]
fn a_hostile_server_harms_one_call_only() {
    let head = |fields: &[(&str, &str)]| [settings(), frame(HEADERS, END_HEADERS | END, 1, &block(fields))].concat();
    let huge = "x".repeat(9_000);
    let pings: Vec<u8> = std::iter::repeat_n(frame(PING, 0, 0, &[1; 8]), 100_000).flatten().collect();
    let page = [
        settings(),
        frame(HEADERS, END_HEADERS, 1, &block(&[(":status", "503"), ("content-type", "text/html")])),
        frame(DATA, END, 1, b"<html>"),
    ]
    .concat();
    let long = [
        settings(),
        frame(HEADERS, END_HEADERS, 1, &block(&[(":status", "200"), ("content-type", "application/grpc")])),
        frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff]),
    ]
    .concat();
    let cases = [
        ("silence", Vec::new(), Code::DeadlineExceeded),
        ("settings alone", settings(), Code::DeadlineExceeded),
        ("garbage", b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(100), Code::Unavailable),
        ("a flood", [settings(), pings].concat(), Code::Unavailable),
        ("a page", page, Code::Unavailable),
        ("not gRPC", head(&[(":status", "200"), ("content-type", "text/plain")]), Code::Unknown),
        ("no status", head(&[(":status", "200"), ("content-type", "application/grpc")]), Code::Internal),
        (
            "fields without end",
            head(&[(":status", "200"), ("grpc-status", "5"), ("x", &huge)]),
            Code::ResourceExhausted,
        ),
        ("a long answer", long, Code::ResourceExhausted),
        ("a reset", [settings(), frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes())].concat(), Code::Cancelled),
        ("goes away", [settings(), frame(GOAWAY, 0, 0, &[0; 8])].concat(), Code::Unavailable),
        ("two messages", answer(&[0; 3]).into_iter().chain(frame(DATA, 0, 1, b"x")).collect(), Code::Ok),
    ];
    run(async {
        for (name, hostile, expected) in cases {
            let (result, next) = says(hostile).await;
            assert_eq!(code(&result), expected, "{name}: {result:?}");
            assert_eq!(next, Ok(b"well".to_vec()), "after {name}");
        }
    });
}

#[test]
fn a_call_that_a_kept_connection_does_not_take_is_made_again() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mapper.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        spawn_local(async move {
            for turn in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut heard = vec![0; 4_096];
                let _ = stream.read(&mut heard).await;
                stream.write_all(&answer(if turn == 0 { b"first" } else { b"second" })).await.unwrap();
                loop {
                    // The next call on this connection: the last one that was taken is the first.
                    if stream.read(&mut heard).await.unwrap_or(0) == 0 {
                        break;
                    }
                    if heard.windows(3).any(|part| part == [0, 0, 3]) {
                        let away = [1_u32.to_be_bytes(), 0_u32.to_be_bytes()].concat();
                        stream.write_all(&frame(GOAWAY, 0, 0, &away)).await.unwrap();
                        break;
                    }
                }
            }
            std::future::pending::<()>().await;
        });
        let mut client = Client::new(socket);
        assert_eq!(client.call("/t.T/Echo", b"a", SECOND).await, Ok(b"first".to_vec()));
        assert_eq!(client.call("/t.T/Echo", b"b", SECOND * 5).await, Ok(b"second".to_vec()));
    });
}
