//! A helper on a thread of its own, the daemon at its socket, and pods that connect over TLS.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use edge_protocol::channel::{OPENED, STATUS, STDOUT, records};
use edge_protocol::message::ApiRequest;
use ring::digest::{SHA256, digest};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use sampan_api_control::frame::{self, Frame, Frames};
use sampan_api_control::{FromHelper, Kind, Pod, Settings, ToHelper, VERSION};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) const TOKEN: &str = "a.b.c";

pub(crate) struct Node {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) settings: Settings,
    socket: PathBuf,
    control: BufReader<UnixStream>,
    frames: (UnixStream, Frames),
    tls: TlsConnector,
    helper: Option<JoinHandle<()>>,
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { timeout(Duration::from_secs(60), work).await.expect("in time") })
}

fn run(socket: PathBuf) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(sampan_api::run::run(&socket)).expect("ends well");
    })
}

async fn call(socket: &PathBuf) -> UnixStream {
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return stream,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

fn line(line: &ToHelper) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("JSON");
    text.push(b'\n');
    text
}

async fn hear(control: &mut BufReader<UnixStream>) -> FromHelper {
    let mut text = String::new();
    control.read_line(&mut text).await.expect("a line");
    serde_json::from_str(&text).expect("a line of the helper")
}

impl Node {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("temp dir");
        let port =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let settings = Settings {
            listen: vec![address],
            domain: "cluster.local".into(),
            folder: folder.path().join("api"),
            cache_bytes: 1 << 20,
            secrets_in_memory: false,
        };
        let socket = folder.path().join("api.sock");
        Self::with(folder, socket, address, settings).await
    }

    async fn with(folder: tempfile::TempDir, socket: PathBuf, address: SocketAddr, settings: Settings) -> Self {
        let helper = run(socket.clone());
        let mut control = BufReader::new(call(&socket).await);
        let daemon = ToHelper::Daemon { version: VERSION, node: "n".into(), settings: settings.clone() };
        control.write_all(&line(&daemon)).await.expect("written");
        assert_eq!(hear(&mut control).await, FromHelper::Hello { version: VERSION });
        let FromHelper::Ready { certificate, .. } = hear(&mut control).await else { panic!("not ready") };
        let mut streams = call(&socket).await;
        streams.write_all(&line(&ToHelper::Streams { version: VERSION })).await.expect("written");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let frames = (streams, Frames::default());
        let tls = TlsConnector::from(Arc::new(tls));
        let mut node = Self { folder, address, settings, socket, control, frames, tls, helper: Some(helper) };
        node.link(true).await;
        node.pod("u", &[TOKEN]).await;
        node.say(&ToHelper::Told {}).await;
        node
    }

    /// Another process in place of this one, with the same files.
    pub(crate) async fn restart(mut self) -> Self {
        self.end().await;
        Self::with(self.folder, self.socket, self.address, self.settings).await
    }

    pub(crate) async fn end(&mut self) {
        self.say(&ToHelper::End {}).await;
        self.helper.take().expect("runs").join().expect("ends well");
    }

    /// Says a line, and waits until the helper has read it.
    pub(crate) async fn say(&mut self, what: &ToHelper) {
        self.control.write_all(&line(what)).await.expect("written");
        if matches!(what, ToHelper::End {}) {
            return;
        }
        self.control.write_all(&line(&ToHelper::Ping {})).await.expect("written");
        while hear(&mut self.control).await != (FromHelper::Pong {}) {}
    }

    pub(crate) async fn link(&mut self, up: bool) {
        self.say(&ToHelper::Link { up, since_ms: 1_790_000_000_000 }).await;
    }

    pub(crate) async fn pod(&mut self, uid: &str, tokens: &[&str]) {
        let hex = |token: &&str| {
            let digest = digest(&SHA256, token.as_bytes());
            digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let tokens = tokens.iter().map(hex).collect();
        let pod = Pod { uid: uid.into(), namespace: "ns".into(), name: uid.into(), account: uid.into(), tokens };
        self.say(&ToHelper::Pod(pod)).await;
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        let (stream, frames) = &mut self.frames;
        let mut chunk = vec![0; 65_536];
        loop {
            if let Some(frame) = frames.next_frame().expect("frames") {
                return frame;
            }
            let length = stream.read(&mut chunk).await.expect("read");
            assert!(length > 0, "the helper has gone");
            frames.push(&chunk[..length]);
        }
    }

    pub(crate) async fn send(&mut self, stream: u64, kind: Kind, payload: &[u8]) {
        let mut out = Vec::new();
        frame::write(stream, kind, payload, &mut out);
        self.frames.0.write_all(&out).await.expect("written");
    }

    /// The next request, and its stream.
    pub(crate) async fn opened(&mut self) -> (u64, ApiRequest) {
        loop {
            let frame = self.frame().await;
            if frame.kind == Kind::Open {
                return (frame.stream, serde_json::from_slice(&frame.payload).expect("a request"));
            }
        }
    }

    pub(crate) async fn head(&mut self, stream: u64, status: u16) {
        let head = format!(r#"{{"status":{status},"headers":[["content-type","application/json"]]}}"#);
        self.send(stream, Kind::Data, &records(OPENED, head.as_bytes())).await;
    }

    /// Answers the next request whole.
    pub(crate) async fn answer(&mut self, status: u16, body: &[u8]) -> ApiRequest {
        let (stream, request) = self.opened().await;
        self.head(stream, status).await;
        self.send(stream, Kind::Data, &records(STDOUT, body)).await;
        self.send(stream, Kind::Data, &records(STATUS, b"")).await;
        self.send(stream, Kind::End, b"").await;
        request
    }

    /// A pod connects from an address of the loopback.
    pub(crate) async fn connect(&self, from: u8) -> std::io::Result<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4_096)?;
        socket.bind(SocketAddr::from(([127, 0, 0, from], 0)))?;
        let stream = socket.connect(self.address).await?;
        let name = ServerName::try_from(self.address.ip().to_string()).expect("a name");
        self.tls.connect(name, stream).await
    }

    /// A pod sends a request, and reads the answer to its end.
    pub(crate) async fn ask(&self, method: &str, path: &str, token: &str, body: &str) -> Answer {
        let mut stream = self.connect(1).await.expect("connects");
        stream.write_all(text(method, path, token, body).as_bytes()).await.expect("written");
        Answer::read(&mut stream).await
    }
}

pub(crate) fn text(method: &str, path: &str, token: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: kubernetes\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) async fn read(stream: &mut TlsStream<TcpStream>) -> Self {
        let mut all = Vec::new();
        let mut chunk = [0; 4_096];
        // A cut without a close alert ends it, too.
        while let Ok(length @ 1..) = stream.read(&mut chunk).await {
            all.extend_from_slice(&chunk[..length]);
        }
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = if head.contains("transfer-encoding: chunked") { plain(&all[end..]) } else { all[end..].to_vec() };
        Self { status, head, body }
    }
}

fn plain(mut chunked: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = chunked.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(&String::from_utf8_lossy(&chunked[..end]), 16).expect("a length");
        out.extend_from_slice(&chunked[end + 2..end + 2 + length]);
        chunked = &chunked[end + 4 + length..];
    }
    out
}

/// Reads until a text has come.
pub(crate) async fn until(stream: &mut TlsStream<TcpStream>, what: &str) -> String {
    let (mut all, mut chunk) = (String::new(), [0; 4_096]);
    while !all.contains(what) {
        let length = stream.read(&mut chunk).await.expect("read");
        assert!(length > 0, "ends after {all:?}");
        all.push_str(&String::from_utf8_lossy(&chunk[..length]).to_lowercase());
    }
    all
}
