//! Hostile and slow clients, at a real socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Instant;

use super::*;

/// Serves at a socket while `clients` runs elsewhere; the loop answers by `ask`.
fn while_served<T: Send + 'static>(ask: Ask, clients: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("health.sock");
    // A socket that a killed daemon left.
    drop(UnixListener::bind(&path).expect("left"));
    let tasks = Tasks::default();
    let serving = tasks.spawn(on_socket(tasks.clone(), path.clone(), ask));
    let done = smol::block_on(tasks.run(async {
        // So that the socket is there.
        smol::future::yield_now().await;
        smol::unblock(move || clients(path)).await
    }));
    drop(serving);
    done
}

fn honest() -> Ask {
    Rc::new(|asked| asked.answer.try_send(Answer::new(asked.what != What::Ready, "text\n")).is_ok())
}

fn connect(path: &Path) -> UnixStream {
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
            return stream;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a request and returns the answer; empty if the connection was refused.
fn say(path: &Path, request: &[u8]) -> String {
    let mut stream = connect(path);
    let mut text = Vec::new();
    // The server may answer before it has read everything.
    let _ = stream.write_all(request);
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn each_path_has_its_answer_and_the_socket_is_private() {
    let (live, ready, metrics, mode) = while_served(honest(), |path| {
        let get = |what: &str| say(&path, format!("GET {what} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let mode = std::fs::metadata(&path).map(|meta| meta.permissions().mode() & 0o777).ok();
        (get("/livez"), get("/readyz"), get("/metrics"), mode)
    });
    assert!(live.starts_with("HTTP/1.1 200 OK\r\n") && live.ends_with("\r\n\r\ntext\n"), "{live}");
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    assert!(metrics.contains("Content-Type: text/plain; version=0.0.4"), "{metrics}");
    assert_eq!(mode, Some(0o600));
}

#[test]
fn garbage_and_huge_heads_are_refused() {
    while_served(honest(), |path| {
        assert!(say(&path, b"\x16\x03\x01\x02\x00\r\n\r\n").starts_with("HTTP/1.1 400 "));
        assert!(say(&path, b"GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        let huge = [b"GET /metrics HTTP/1.1\r\nCookie: ".to_vec(), vec![b'a'; 1 << 20]].concat();
        let answer = say(&path, &huge);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(say(&path, b"GET /livez HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "), "others are answered");
    });
}

#[test]
fn silent_clients_lose_their_places_soon() {
    while_served(honest(), |path| {
        let mut silent: Vec<UnixStream> = (0..MOST * 4).map(|_| connect(&path)).collect();
        for stream in &mut silent {
            let _ = stream.write_all(b"GET /metr");
        }
        // All places are taken; then they are not.
        let since = Instant::now();
        while !say(&path, b"GET /livez HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 ") {
            assert!(since.elapsed() < 6 * PATIENCE, "silent clients keep their places");
            thread::sleep(Duration::from_millis(50));
        }
    });
}

#[test]
fn client_that_does_not_read_delays_no_other() {
    let ask: Ask = Rc::new(|asked| asked.answer.try_send(Answer::new(true, "x".repeat(8 << 20))).is_ok());
    while_served(ask, |path| {
        let mut deaf = connect(&path);
        deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("asked");
        assert!(say(&path, b"GET /metrics HTTP/1.1\r\n\r\n").len() > 8 << 20);
        // It is cut off before all has gone.
        let mut got = 0;
        thread::sleep(PATIENCE + Duration::from_secs(1));
        let mut some = vec![0; 1 << 16];
        while let Ok(length @ 1..) = deaf.read(&mut some) {
            got += length;
        }
        assert!(got < 8 << 20, "{got}");
    });
}

#[test]
fn a_loop_that_does_not_answer_is_seen() {
    let held = Rc::new(std::cell::RefCell::new(Vec::new()));
    let stuck: Ask = Rc::new(move |asked| {
        held.borrow_mut().push(asked);
        true
    });
    let text = while_served(stuck, |path| say(&path, b"GET /livez HTTP/1.1\r\n\r\n"));
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("[-]loop failed"), "{text}");
    let text = while_served(Rc::new(|_| false), |path| say(&path, b"GET /livez HTTP/1.1\r\n\r\n"));
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
}

#[test]
fn a_port_is_served_like_the_socket() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("an address");
    let tasks = Tasks::default();
    let _serving = tasks.spawn(on_port(tasks.clone(), free, honest()));
    let text = smol::block_on(tasks.run(smol::unblock(move || {
        let mut stream = loop {
            match TcpStream::connect(free) {
                Ok(stream) => break stream,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("asked");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answered");
        text
    })));
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
}
