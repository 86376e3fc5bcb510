//! A plain HTTP server for the test: it keeps requests of rules, and gives the answer that the test sets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sampan_tests::wait::until;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Request>>,
    /// The answer: status line and the rest.
    answer: Mutex<String>,
}

/// Runs until the test's process ends.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Target {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let (address, shared) = (listener.local_addr().expect("an address"), Arc::new(Shared::default()));
        let target = Self { address, shared: Arc::clone(&shared) };
        target.answer("204 No Content", "", "");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        target
    }

    /// Sets the answer; `headers` include their line ends.
    pub(crate) fn answer(&self, status: &str, headers: &str, body: &str) {
        let length =
            if status.starts_with("204") { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let text = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{length}{headers}\r\n{body}");
        *self.shared.answer.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.body).collect()
    }

    /// Bodies without duplicates, in order of their first arrival.
    pub(crate) fn messages(&self) -> Vec<String> {
        let mut seen = Vec::new();
        let requests = self.requests().into_iter();
        let new = requests.filter(|request| {
            let key = request.header("x-sampan-message-id").expect("every message has an id").to_owned();
            let new = !seen.contains(&key);
            seen.push(key);
            new
        });
        new.map(|request| request.body).collect()
    }

    pub(crate) fn wait(&self, limit: Duration, what: &str, accept: impl Fn(&[String]) -> bool) {
        until(limit, what, || {
            let bodies = self.messages();
            if accept(&bodies) { Ok(()) } else { Err(format!("{bodies:?}")) }
        });
    }
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    let mut next = || {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    };
    let Some(line) = next().filter(|line| !line.is_empty()) else { return };
    let mut headers = Vec::new();
    while let Some((name, value)) = next().as_deref().and_then(|line| line.split_once(": ")) {
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let request = Request { line, headers, body: String::from_utf8_lossy(&body).into_owned() };
    let answer = shared.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
    shared.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    let mut stream = stream;
    // The client may have been killed.
    let _ = stream.write_all(answer.as_bytes());
}
