//! Hostile and slow clients, at a real socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;

use smol::Async;

use super::*;

/// Serves at a socket while `clients` runs on another thread. Of the content, `a` stays and `b` changes all the time.
fn while_served<T: Send + 'static>(door: Door, clients: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.sock");
    let listener = Rc::new(Async::<UnixListener>::bind(&path).unwrap());
    let tasks = Tasks::default();
    let live = Rc::new(Live::new(|_| ()));
    live.tell(vec![("a", "\"<b>\"".into()), ("b", "0".into())]);
    let accept = move || {
        let listener = Rc::clone(&listener);
        async move { listener.accept().await.map(|(stream, _)| Box::new(stream) as _) }
    };
    let serving = tasks.spawn(serve(tasks.clone(), door, Rc::clone(&live), accept));
    let telling = tasks.spawn(async move {
        for number in 1_u64.. {
            Timer::after(Duration::from_millis(30)).await;
            live.tell(vec![("a", "\"<b>\"".into()), ("b", number.to_string())]);
        }
    });
    let done = smol::block_on(tasks.run(smol::unblock(move || clients(path))));
    drop((serving, telling));
    done
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// Sends a request and returns the answer; empty if the connection was refused.
fn say(path: &Path, request: &[u8]) -> String {
    let mut stream = connect(path);
    let mut text = Vec::new();
    // A server that has heard enough does not read on.
    let _ = stream.write_all(request);
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn get(path: &Path, what: &str) -> String {
    say(path, format!("GET {what} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
}

/// A reader of the stream, after its head.
fn stream(path: &Path) -> BufReader<UnixStream> {
    let mut stream = connect(path);
    stream.write_all(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    reader
}

fn data(reader: &mut BufReader<UnixStream>) -> serde_json::Value {
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream goes on");
    }
    serde_json::from_str(&line[6..]).unwrap()
}

#[test]
fn page_files_and_data_are_served_with_security_headers() {
    while_served(Door::Socket, |path| {
        for (what, kind) in
            [("/", "text/html"), ("/device.js", "text/javascript"), ("/page.css", "text/css"), ("/api/node", JSON)]
        {
            let answer = get(&path, what);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(kind), "{what}: {answer}");
            assert!(HEADERS.iter().all(|(name, value)| answer.contains(&format!("{name}: {value}\r\n"))), "{answer}");
        }
        assert!(get(&path, "/api/node").contains("\"a\":\"<b>\",\"b\":"));
        assert!(get(&path, "/api/other").starts_with("HTTP/1.1 404 "));
        assert!(get(&path, "/../etc/passwd").starts_with("HTTP/1.1 404 "));
        assert!(say(&path, b"\x16\x03\x01\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(say(&path, b"DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 405 "));
    });
    while_served(Door::Port("secret".into()), |path| {
        assert!(get(&path, "/api/node").starts_with("HTTP/1.1 401 "));
        assert!(get(&path, "/api/node?token=secret").starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn stream_sends_everything_once_then_changes() {
    while_served(Door::Socket, |path| {
        let mut reader = stream(&path);
        let first = data(&mut reader);
        assert_eq!(first["a"], "<b>");
        let next = data(&mut reader);
        assert!(next["a"].is_null() && next["b"].as_u64() > first["b"].as_u64(), "{first} {next}");
    });
}

#[test]
fn number_of_streams_is_limited() {
    while_served(Door::Socket, |path| {
        let mut held: Vec<_> = (0..MOST.1).map(|_| stream(&path)).collect();
        assert!(get(&path, "/api/stream").starts_with("HTTP/1.1 429 "));
        assert!(get(&path, "/").starts_with("HTTP/1.1 200 "), "others are answered");
        held.pop();
        while get(&path, "/api/node").is_empty() || !room(&path) {
            thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Whether another stream begins.
fn room(path: &Path) -> bool {
    let mut stream = connect(path);
    stream.write_all(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).is_ok() && status.ends_with(b"200")
}

#[test]
fn huge_and_silent_ones_keep_nobody_waiting_for_long() {
    while_served(Door::Socket, |path| {
        let huge = [b"GET / HTTP/1.1\r\nCookie: ".to_vec(), vec![b'a'; 1 << 20]].concat();
        let answer = say(&path, &huge);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
        let mut silent: Vec<UnixStream> = (0..MOST.0 * 2).map(|_| connect(&path)).collect();
        for stream in &mut silent {
            let _ = stream.write_all(b"GET /api/no");
        }
        // All places are taken; then they are not.
        while !get(&path, "/api/node").starts_with("HTTP/1.1 200 ") {
            thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn files_have_no_inline_code_and_valid_links() {
    for (name, _, text) in OWN {
        assert_eq!(sampan_page::fault(text), None, "{name}");
        for word in text.split(['"', '\'']).map(|word| word.strip_prefix('.').unwrap_or(word)) {
            if word.starts_with('/') && [".js", ".css", ".svg"].iter().any(|end| word.ends_with(end)) {
                assert!(OWN.iter().chain(&FILES).any(|(path, ..)| *path == word), "{word} in {name}");
            }
        }
    }
}
