//! Honest users with their own namespace: one writes all the time, one lists, one watches. Owns their latencies.

use std::io::{BufRead, BufReader, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Endpoint};
use crate::table::{Row, Times};

/// Interval of writes, and of lists.
const WRITE: Duration = Duration::from_millis(10);
const LIST: Duration = Duration::from_millis(100);
/// Number of requests after which a new connection is opened: an existing one may be served while new ones are refused.
const RENEW: usize = 50;
const MERGE: &str = "application/merge-patch+json";

#[derive(Debug, Default)]
struct Waited {
    writes: Vec<Duration>,
    lists: Vec<Duration>,
    watch: Vec<Duration>,
    failed: usize,
    why: String,
}

/// Users of `namespace`, until `stop`.
pub(crate) struct Honest {
    endpoint: Endpoint,
    maps: String,
    start: Instant,
    stop: AtomicBool,
    waited: Mutex<Waited>,
}

impl Honest {
    pub(crate) fn new(endpoint: Endpoint, namespace: &str) -> Self {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let body = b"{\"metadata\":{\"name\":\"kept\"}}";
        let made = Client::new(endpoint.clone()).send("POST", &maps, "application/json", body);
        assert_eq!(made.expect("an answer").map(|answer| answer.code), Some(201), "{maps}");
        Self { endpoint, maps, start: Instant::now(), stop: AtomicBool::new(false), waited: Mutex::default() }
    }

    /// Runs until [`Honest::stop`].
    pub(crate) fn run(&self) {
        std::thread::scope(|scope| {
            scope.spawn(|| self.write());
            scope.spawn(|| self.list());
            scope.spawn(|| self.watch());
        });
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Their latencies since the last call.
    pub(crate) fn take(&self) -> Row {
        let waited = std::mem::take(&mut *self.waited.lock().expect("nobody panics"));
        Row {
            writes: Times::new(waited.writes),
            lists: Times::new(waited.lists),
            watch: Times::new(waited.watch),
            failed: (waited.failed, waited.why),
            ..Row::default()
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn note(&self, note: impl FnOnce(&mut Waited)) {
        note(&mut self.waited.lock().expect("nobody panics"));
    }

    fn failed(&self, why: String) {
        self.note(|waited| {
            waited.failed += 1;
            if waited.why.is_empty() {
                waited.why = why;
            }
        });
    }

    /// Returns how long the answer took, which must have one of these codes.
    fn ask(&self, client: &mut Client, request: (&str, &str, &str, &str), codes: &[u16]) -> Duration {
        let (method, path, kind, body) = request;
        let start = Instant::now();
        match client.send(method, path, kind, body.as_bytes()) {
            Ok(Some(answer)) if codes.contains(&answer.code) => {}
            Ok(Some(answer)) => {
                let said = String::from_utf8_lossy(&answer.body).chars().take(200).collect::<String>();
                self.failed(format!("{method} {path}: {} {said}", answer.code));
            }
            Ok(None) => self.failed(format!("{method} {path}: hung up")),
            Err(error) => self.failed(format!("{method} {path}: {error}")),
        }
        start.elapsed()
    }

    fn write(&self) {
        let mut client = Client::new(self.endpoint.clone());
        let kept = format!("{}/kept", self.maps);
        for turn in 0_usize.. {
            if !self.goes_on() {
                break;
            }
            if turn.is_multiple_of(RENEW) {
                client = Client::new(self.endpoint.clone());
            }
            let body = format!("{{\"data\":{{\"at\":\"at-{}-at\"}}}}", self.start.elapsed().as_micros());
            let mut took = vec![self.ask(&mut client, ("PATCH", &kept, MERGE, &body), &[200])];
            if turn.is_multiple_of(10) {
                let made = "{\"metadata\":{\"name\":\"short\"}}";
                took.push(self.ask(&mut client, ("POST", &self.maps, "application/json", made), &[201]));
                let gone = format!("{}/short", self.maps);
                took.push(self.ask(&mut client, ("DELETE", &gone, "", ""), &[200]));
            }
            self.note(|waited| waited.writes.extend(took));
            std::thread::sleep(WRITE);
        }
    }

    fn list(&self) {
        let mut client = Client::new(self.endpoint.clone());
        while self.goes_on() {
            let took = self.ask(&mut client, ("GET", &self.maps, "", ""), &[200]);
            self.note(|waited| waited.lists.push(took));
            std::thread::sleep(LIST);
        }
    }

    fn watch(&self) {
        while self.goes_on() {
            if let Err(error) = self.watch_once()
                && self.goes_on()
            {
                self.failed(format!("watch: {error}"));
                std::thread::sleep(LIST);
            }
        }
    }

    fn watch_once(&self) -> std::io::Result<()> {
        let mut stream = self.endpoint.connect()?;
        let token = self.endpoint.token();
        let path = format!("{}?watch=1&fieldSelector=metadata.name%3Dkept", self.maps);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n")?;
        stream.flush()?;
        let mut lines = BufReader::new(stream);
        let (mut line, mut first) = (Vec::new(), true);
        while self.goes_on() {
            line.clear();
            if lines.read_until(b'\n', &mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            // The last chunk: a watch ends after 45 minutes, and a client resumes it. The connection stays open.
            if line == b"0\r\n" {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&line);
            let at = text.split("at-").nth(1).and_then(|rest| rest.split("-at").next()?.parse().ok());
            if let Some(at) = at.map(Duration::from_micros) {
                // The first is the state at the start, which was written long ago.
                if !std::mem::take(&mut first) {
                    let lag = self.start.elapsed().saturating_sub(at);
                    self.note(|waited| waited.watch.push(lag));
                }
            }
        }
        Ok(())
    }
}
