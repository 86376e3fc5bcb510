//! Streams of a server: from this crate's own server, whose answers are streams of one message, and from bytes that a test
//! writes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod grpc_support;

use std::time::{Duration, Instant};

use grpc_support::*;
use sampan_grpc::{Client, Code, Status, Streaming};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::ZERO;

/// A server of one call, which it answers with these pieces, each after a pause. Then it keeps the connection, or not.
struct Scripted {
    _folder: TempDir,
    client: Client,
    /// The client has closed the connection.
    closed: oneshot::Receiver<()>,
}

fn scripted(pieces: Vec<(Duration, Vec<u8>)>, keeps: bool) -> Scripted {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("plugin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (close, closed) = oneshot::channel();
    spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = vec![0; 4_096];
        let _ = stream.read(&mut heard).await;
        for (pause, bytes) in pieces {
            sleep(pause).await;
            let _ = stream.write_all(&bytes).await;
        }
        while keeps && stream.read(&mut heard).await.unwrap_or(0) > 0 {}
        let _ = close.send(());
    });
    Scripted { _folder: folder, client: Client::new(socket), closed }
}

fn head() -> Vec<u8> {
    let fields = block(&[(":status", "200"), ("content-type", "application/grpc")]);
    [frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, ACK, 0, &[]), frame(HEADERS, END_HEADERS, 1, &fields)].concat()
}

fn message(message: &[u8]) -> Vec<u8> {
    frame(DATA, 0, 1, &prefixed(message))
}

fn trailers(code: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END, 1, &block(&[("grpc-status", code)]))
}

/// All messages, and the error at the end.
async fn all(stream: &mut Streaming) -> (Vec<Vec<u8>>, Code) {
    let mut messages = Vec::new();
    loop {
        match stream.next().await {
            Some(Ok(message)) => messages.push(message),
            Some(Err(status)) => {
                assert_eq!(stream.next().await, None, "an error is the last");
                return (messages, status.code);
            }
            None => {
                assert_eq!(stream.next().await, None, "the end stays");
                return (messages, Code::Ok);
            }
        }
    }
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn own_server_answers_with_streams_of_one() {
    run(async {
        let server = Server::start();
        let mut client = Client::new(server.socket());
        let mut echo = client.stream("/t.T/Echo", b"a", SECOND);
        assert_eq!(all(&mut echo).await, (texts(&["a"]), Code::Ok));
        let mut long = client.stream("/t.T/Long", b"3000000", PATIENCE);
        assert_eq!(long.next().await.map(|message| message.map(|message| message.len())), Some(Ok(3_000_000)));
        assert_eq!(long.next().await, None);
        let mut wrong = client.stream("/t.T/NotFound", "Gerät 7".as_bytes(), SECOND);
        assert_eq!(wrong.next().await, Some(Err(Status::new(Code::NotFound, "Gerät 7"))));
        assert_eq!(wrong.next().await, None);
        // Calls go on beside a stream.
        let mut late = client.stream("/t.T/Late", b"500", PATIENCE);
        let (late, echo) = tokio::join!(late.next(), client.call("/t.T/Echo", b"b", SECOND));
        assert_eq!((late, echo), (Some(Ok(Vec::new())), Ok(b"b".to_vec())));
    });
}

#[test]
fn stream_is_not_waited_for_longer_than_its_deadline() {
    run(async {
        let server = Server::start();
        let client = Client::new(server.socket());
        let start = Instant::now();
        let mut kept = client.stream("/t.T/Keep", b"", Duration::from_millis(300));
        assert_eq!(all(&mut kept).await, (Vec::new(), Code::DeadlineExceeded));
        assert!(start.elapsed() < SECOND * 5);
        let mut nowhere = Client::new(server.socket().with_file_name("none.sock")).stream("/t.T/Echo", b"", SECOND);
        assert_eq!(all(&mut nowhere).await, (Vec::new(), Code::Unavailable));
        // A page of text without end is no answer.
        let page = block(&[(":status", "200"), ("content-type", "text/html")]);
        let page = [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, 1, &page), frame(DATA, 0, 1, b"<html>")];
        for bytes in [Vec::new(), head(), page.concat()] {
            let scripted = scripted(vec![(NOW, bytes)], true);
            let mut stream = scripted.client.stream("/t.T/Stream", b"", Duration::from_millis(300));
            assert_eq!(all(&mut stream).await, (Vec::new(), Code::DeadlineExceeded));
        }
    });
}

#[test]
fn stream_that_has_begun_has_no_deadline() {
    run(async {
        let pieces = vec![
            (NOW, [head(), message(b"a")].concat()),
            (SECOND, message(b"")),
            (SECOND, [message(b"c"), message(b"d"), trailers("0")].concat()),
        ];
        let scripted = scripted(pieces, true);
        let mut stream = scripted.client.stream("/t.T/Stream", b"", SECOND / 2);
        assert_eq!(all(&mut stream).await, (texts(&["a", "", "c", "d"]), Code::Ok));
    });
}

#[test]
fn messages_before_the_end_of_a_stream_count() {
    let half = &prefixed(b"half a message")[..9];
    let reset = |code: u32| frame(RST_STREAM, 0, 1, &code.to_be_bytes());
    let cases = [
        ("its status", trailers("5"), true, Code::NotFound),
        ("a reset", reset(8), true, Code::Cancelled),
        ("a reset without an error", reset(0), true, Code::Internal),
        ("its end, and a reset after it", [trailers("0"), reset(0)].concat(), true, Code::Ok),
        ("no status", frame(DATA, END, 1, &[]), true, Code::Internal),
        ("half a message", [frame(DATA, 0, 1, half), trailers("0")].concat(), true, Code::Internal),
        ("half a message and no more", frame(DATA, 0, 1, half), false, Code::Unavailable),
        ("a hang-up", Vec::new(), false, Code::Unavailable),
        ("a long message", frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff]), true, Code::ResourceExhausted),
        ("a compressed message", frame(DATA, 0, 1, &[1, 0, 0, 0, 1, 9]), true, Code::Unimplemented),
    ];
    run(async {
        for (name, end, keeps, code) in cases {
            // Once at once, and once in its own time.
            for pause in [NOW, Duration::from_millis(50)] {
                let begin = [head(), message(b"a"), message(b"b")].concat();
                let pieces = if pause.is_zero() {
                    vec![(NOW, [begin, end.clone()].concat())]
                } else {
                    vec![(NOW, begin), (pause, end.clone())]
                };
                let scripted = scripted(pieces, keeps);
                let mut stream = scripted.client.stream("/t.T/Stream", b"", PATIENCE);
                assert_eq!(all(&mut stream).await, (texts(&["a", "b"]), code), "{name}");
            }
        }
    });
}

#[test]
fn dropping_a_stream_closes_its_connection() {
    run(async {
        let Scripted { _folder, client, closed } = scripted(vec![(NOW, [head(), message(b"a")].concat())], true);
        let mut stream = client.stream("/t.T/Stream", b"", PATIENCE);
        assert_eq!(stream.next().await, Some(Ok(b"a".to_vec())));
        drop(stream);
        timeout(PATIENCE, closed).await.unwrap().unwrap();
    });
}

#[test]
fn waiting_for_a_message_can_be_interrupted() {
    run(async {
        let bytes = [head(), message(b"slowly"), message(b"but surely"), trailers("0")].concat();
        let pieces = bytes.into_iter().map(|byte| (Duration::from_millis(2), vec![byte])).collect();
        let scripted = scripted(pieces, true);
        let mut stream = scripted.client.stream("/t.T/Stream", b"", PATIENCE);
        let mut heard = Vec::new();
        loop {
            match timeout(Duration::from_millis(3), stream.next()).await {
                Err(_) => {}
                Ok(Some(message)) => heard.push(message.unwrap()),
                Ok(None) => break,
            }
        }
        assert_eq!(heard, texts(&["slowly", "but surely"]));
    });
}

#[test]
fn server_that_floods_waits() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("plugin.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (report, taken) = oneshot::channel();
        spawn_local(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut vec![0; 4_096]).await;
            stream.write_all(&head()).await.unwrap();
            let (piece, mut sent) = (message(&[b'x'; 1_000]), 0);
            // Whatever the window is.
            while let Ok(Ok(())) = timeout(SECOND, stream.write_all(&piece)).await {
                sent += piece.len();
            }
            let _ = report.send(sent);
            std::future::pending::<()>().await;
        });
        let client = Client::new(socket);
        let mut stream = client.stream("/t.T/Stream", b"", PATIENCE);
        for _ in 0..3 {
            assert_eq!(stream.next().await, Some(Ok(vec![b'x'; 1_000])));
        }
        let sent = taken.await.unwrap();
        assert!(sent < 4 << 20, "{sent} bytes were taken for three messages");
        assert_eq!(stream.next().await, Some(Ok(vec![b'x'; 1_000])));
    });
}
