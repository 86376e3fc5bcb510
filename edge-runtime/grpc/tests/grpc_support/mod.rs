//! A server whose answers depend on the path of the call, and handmade HTTP/2 that proper clients do not send.

#![allow(clippy::unwrap_used, dead_code, reason = "a test that cannot go on fails; each test file uses its part")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sampan_grpc::{Call, Client, Code, Peer, Status, serve};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

/// Timeout for an expected event, on a slow machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const DATA: u8 = 0;
pub(crate) const END: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Runs like the helper: one thread, tasks that stay on it.
pub(crate) fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async { timeout(PATIENCE * 4, work).await.expect("the test hangs") })
}

pub(crate) struct Server {
    folder: TempDir,
    pub(crate) peers: std::rc::Rc<std::cell::RefCell<Vec<Peer>>>,
}

impl Server {
    /// Answers until the test ends.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("dmi.sock")).unwrap();
        let (calls, mut waiting) = mpsc::channel::<Call>(8);
        spawn_local(serve(listener, calls));
        let peers = std::rc::Rc::default();
        let server = Self { folder, peers: std::rc::Rc::clone(&peers) };
        spawn_local(async move {
            let mut kept = Vec::new();
            while let Some(call) = waiting.recv().await {
                peers.borrow_mut().push(call.peer);
                answer(call, &mut kept);
            }
        });
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("dmi.sock")
    }
}

fn answer(call: Call, kept: &mut Vec<Call>) {
    let text = || String::from_utf8_lossy(&call.message).into_owned();
    let number = || text().parse().unwrap_or(0);
    let answer = match call.path.as_str() {
        "/t.T/Echo" => Ok(call.message),
        "/t.T/Count" => Ok(call.message.len().to_string().into_bytes()),
        "/t.T/Long" => Ok(vec![b'x'; number()]),
        "/t.T/NotFound" => Err(Status::new(Code::NotFound, text())),
        "/t.T/Drop" => return,
        "/t.T/Keep" => return kept.push(call),
        "/t.T/Late" => {
            let pause = Duration::from_millis(number().try_into().unwrap());
            spawn_local(async move {
                tokio::time::sleep(pause).await;
                let _ = call.reply.send(Ok(Vec::new()));
            });
            return;
        }
        _ => Err(Status::new(Code::Unimplemented, "no such method")),
    };
    let _ = call.reply.send(answer);
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Literal fields without indexing and without Huffman (RFC 7541 section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    fn integer(block: &mut Vec<u8>, mut value: usize) {
        if value < 127 {
            return block.push(value.try_into().unwrap());
        }
        block.push(127);
        value -= 127;
        while value >= 128 {
            block.push((value % 128 + 128).try_into().unwrap());
            value /= 128;
        }
        block.push(value.try_into().unwrap());
    }
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend(text.bytes());
        }
    }
    block
}

/// The head as grpc-go sends it, with its `:authority`.
pub(crate) fn head(path: &str) -> Vec<u8> {
    head_with(path, &[])
}

pub(crate) fn head_with(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "%2Fetc%2Fkubeedge%2Fdmi.sock"),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-go/1.67.1"),
        ("te", "trailers"),
    ];
    fields.extend(more);
    block(&fields)
}

pub(crate) fn prefixed(message: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    out.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend(message);
    out
}

/// A short request as a whole.
pub(crate) fn request(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let mut out = frame(HEADERS, END_HEADERS, stream, &head(path));
    out.extend(frame(DATA, END, stream, &prefixed(message)));
    out
}

/// First bytes of a client.
pub(crate) fn greeting() -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    out.extend(frame(SETTINGS, 0, 0, &[]));
    out.extend(frame(SETTINGS, ACK, 0, &[]));
    out
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A connection of which every byte is the test's.
pub(crate) struct Raw(pub(crate) UnixStream);

impl Raw {
    pub(crate) async fn connect(socket: &Path) -> Self {
        Self(UnixStream::connect(socket).await.unwrap())
    }

    pub(crate) async fn greeted(socket: &Path) -> Self {
        let mut raw = Self::connect(socket).await;
        raw.send(&greeting()).await;
        raw
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The next frame; none at the end.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        timeout(PATIENCE, self.0.read_exact(&mut head)).await.expect("a frame or the end").ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length.try_into().unwrap()];
        self.0.read_exact(&mut payload).await.ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of this kind; none if the connection ends before.
    pub(crate) async fn next(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.frame().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// All frames until the server ends the connection.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        frames
    }
}

pub(crate) fn code<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().err().map_or(Code::Ok, |status| status.code)
}

/// Asserts that a proper client gets its answer within this time.
pub(crate) async fn serves(server: &Server, within: Duration) {
    let mut client = Client::new(server.socket());
    let start = Instant::now();
    while client.call("/t.T/Echo", b"a", Duration::from_secs(1)).await != Ok(b"a".to_vec()) {
        assert!(start.elapsed() < within, "nobody else is served");
    }
}
