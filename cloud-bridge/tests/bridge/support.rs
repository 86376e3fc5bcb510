//! A scripted node for tests: real TLS, real websocket, the edge's own session value, no containers.

#![allow(dead_code, unreachable_pub)]

pub mod fixture;
pub mod interpose;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_tungstenite::tokio::TokioAdapter;
use async_tungstenite::tungstenite::{self, Message};
use async_tungstenite::{WebSocketStream, client_async};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::edge::{Change, EdgeEvent, EdgeFacts, EdgeSession};
use edge_protocol::message::{
    DeviceRefusal, DeviceReport, Object, ObjectDigest, ObjectKey, Position, RenewAnswer, Report, StreamId,
    StreamRequest, TokenAnswer,
};
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::{IdentityTerms, ORDERS, RAW_STREAMS, Wants};
use edge_protocol::wire::{self, Content, Wire};
use futures::StreamExt;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

type Socket = WebSocketStream<TokioAdapter<TlsStream<TcpStream>>>;

/// Identity of a node after joining.
#[derive(Clone)]
pub struct Identity {
    pub node: String,
    pub cluster: String,
    pub ca: CertificateDer<'static>,
    pub certificate: CertificateDer<'static>,
    key: Arc<Vec<u8>>,
}

impl Identity {
    /// Returns the same node with a renewed certificate.
    pub fn renewed(&self, certificate: Vec<u8>, key: Vec<u8>) -> Self {
        Self { certificate: certificate.into(), key: Arc::new(key), ..self.clone() }
    }

    /// An identity that is not a node, with a certificate of this authority.
    pub fn of_user(authority: &Authority, user: &str, group: &str) -> Self {
        let signed = authority.client(user, group).unwrap();
        Self {
            node: String::new(),
            cluster: String::new(),
            ca: authority.certificate().clone(),
            certificate: signed.certificate,
            key: Arc::new(signed.key.secret_der().to_vec()),
        }
    }
}

/// One GET over TLS: status and body.
pub async fn get(
    address: SocketAddr,
    ca: &CertificateDer<'static>,
    identity: Option<&Identity>,
    path: &str,
    header: &str,
) -> (u16, String) {
    ask("GET", address, ca, identity, path, header).await
}

/// One request without a body over TLS: status and body.
pub async fn ask(
    method: &str,
    address: SocketAddr,
    ca: &CertificateDer<'static>,
    identity: Option<&Identity>,
    path: &str,
    header: &str,
) -> (u16, String) {
    let mut stream = tls(address, ca, identity).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server may close without a TLS goodbye.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A TLS connection that trusts only this authority.
pub async fn tls(
    address: SocketAddr,
    ca: &CertificateDer<'static>,
    identity: Option<&Identity>,
) -> std::io::Result<TlsStream<TcpStream>> {
    tls_over(TcpStream::connect(address).await?, ca, identity).await
}

/// Same as [`tls`], over this connection.
pub async fn tls_over(
    tcp: TcpStream,
    ca: &CertificateDer<'static>,
    identity: Option<&Identity>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match identity {
        Some(identity) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.to_vec()));
            config.with_client_auth_cert(vec![identity.certificate.clone()], key).unwrap()
        }
        None => config.with_no_client_auth(),
    };
    tcp.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), tcp).await
}

/// Joins as `node`, with a request for `asked` (a common name). The answer of a refusal is its status and message.
pub async fn join(
    address: SocketAddr,
    ca: &CertificateDer<'static>,
    token: &str,
    node: &str,
    asked: &str,
) -> Result<Identity, (u16, String)> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, asked);
    let csr = STANDARD.encode(params.serialize_request(&key).unwrap().der());
    let body = json!({"token": token, "node": node, "csr": csr}).to_string();
    let mut stream = tls(address, ca, None).await.unwrap();
    let head = format!(
        "POST /v1/join HTTP/1.1\r\nHost: bridge\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server may close without a TLS goodbye.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    if status != 200 {
        return Err((status, body["message"].as_str().unwrap_or_default().to_owned()));
    }
    let der = |field: &str| CertificateDer::from(STANDARD.decode(body[field].as_str().unwrap()).unwrap());
    Ok(Identity {
        node: node.to_owned(),
        cluster: body["cluster"].as_str().unwrap().to_owned(),
        ca: der("ca"),
        certificate: der("certificate"),
        key: Arc::new(key.serialize_der()),
    })
}

/// State that survives connections.
#[derive(Default)]
pub struct Store {
    pub held: BTreeMap<ObjectKey, Object>,
    pub position: Option<Position>,
}

/// A connected node.
pub struct Edge {
    pub name: String,
    pub session: EdgeSession,
    pub store: Store,
    pub acked: HashSet<u64>,
    pub refused: HashMap<u64, String>,
    pub streams: Vec<(StreamId, StreamRequest)>,
    pub closed: HashSet<StreamId>,
    /// Bytes that arrived on streams and were not taken yet.
    pub data: Vec<(StreamId, Vec<u8>)>,
    pub deleted: Vec<ObjectKey>,
    /// Number of received puts, including those without a change.
    pub puts: usize,
    pub renewed: Option<RenewAnswer>,
    pub terms: Option<IdentityTerms>,
    pub tokens: Vec<TokenAnswer>,
    /// Acknowledged batches of device reports, and the refused reports of each.
    pub devices: HashMap<u64, Vec<DeviceRefusal>>,
    /// Rows of messages that the bridge has handled, and requests of rules to this node.
    pub messages: HashSet<u64>,
    pub calls: Vec<(u64, Value)>,
    /// Results of requests, by number.
    pub responses: HashMap<u64, Value>,
    pub synced: bool,
    pub resumed: bool,
    /// Compressed frames received: how many, and their bytes before they were inflated.
    pub packed: (usize, usize),
    /// Bytes of text frames received, and of compressed ones after they were inflated.
    pub texts: usize,
    /// Binary frames of streams sent and received.
    pub raw: (usize, usize),
    /// Whether it behaves like a build with compressed texts and without binary frames of streams.
    older: bool,
    /// Whether it behaves like a build without jobs.
    orderless: bool,
    next: u64,
    start: Instant,
    socket: Socket,
}

/// Kind of the objects with Services.
const LINKS: &str = "ServiceLinks";

impl Edge {
    /// Connects, with `name` in the hello.
    pub async fn connect(
        address: SocketAddr,
        identity: &Identity,
        name: &str,
        store: Store,
    ) -> Result<Self, tungstenite::Error> {
        Self::connect_as(address, identity, name, store, false, Wants::default()).await
    }

    /// Same as [`connect`](Self::connect), able to read compressed frames.
    pub async fn connect_packed(address: SocketAddr, identity: &Identity, store: Store) -> Self {
        Self::connect_as(address, identity, &identity.node, store, true, Wants::default()).await.unwrap()
    }

    /// Same as [`connect_packed`](Self::connect_packed), for a build without binary frames of streams.
    pub async fn connect_older(address: SocketAddr, identity: &Identity, store: Store) -> Self {
        Self { older: true, ..Self::connect_packed(address, identity, store).await }
    }

    /// Same as [`connect`](Self::connect), for a build without jobs.
    pub async fn connect_without_orders(address: SocketAddr, identity: &Identity, store: Store) -> Self {
        Self { orderless: true, ..Self::connect(address, identity, &identity.node, store).await.unwrap() }
    }

    /// Same as [`connect`](Self::connect), for a node with devices.
    pub async fn connect_with_devices(address: SocketAddr, identity: &Identity, store: Store) -> Self {
        let wants = Wants { devices: true, ..Wants::default() };
        Self::connect_as(address, identity, &identity.node, store, false, wants).await.unwrap()
    }

    /// Same as [`connect`](Self::connect), for a node with a broker for rules.
    pub async fn connect_with_rules(address: SocketAddr, identity: &Identity, store: Store) -> Self {
        let wants = Wants { rules: true, ..Wants::default() };
        Self::connect_as(address, identity, &identity.node, store, false, wants).await.unwrap()
    }

    /// Same as [`connect_packed`](Self::connect_packed), for a node whose pods reach the API.
    pub async fn connect_with_api(address: SocketAddr, identity: &Identity, store: Store) -> Self {
        let wants = Wants { api: true, ..Wants::default() };
        Self::connect_as(address, identity, &identity.node, store, true, wants).await.unwrap()
    }

    /// Same as [`connect`](Self::connect), for a node that mounts volumes of CSI drivers.
    pub async fn connect_with_csi(address: SocketAddr, identity: &Identity, store: Store) -> Self {
        let wants = Wants { csi: true, ..Wants::default() };
        Self::connect_as(address, identity, &identity.node, store, false, wants).await.unwrap()
    }

    async fn connect_as(
        address: SocketAddr,
        identity: &Identity,
        name: &str,
        store: Store,
        compress: bool,
        wants: Wants,
    ) -> Result<Self, tungstenite::Error> {
        let stream = tls(address, &identity.ca, Some(identity)).await?;
        let (socket, _) = client_async("wss://localhost/v1/link", TokioAdapter::new(stream)).await?;
        let mut facts = EdgeFacts::new(name, "boot-1");
        facts.compress = compress;
        facts.wants = wants;
        facts.cluster = Some(identity.cluster.clone());
        facts.position = store.position.clone();
        facts.held = store.held.values().map(|object| object.digest.clone()).collect::<Vec<ObjectDigest>>();
        Ok(Self {
            name: name.to_owned(),
            session: EdgeSession::new(facts, Duration::ZERO),
            store,
            acked: HashSet::new(),
            refused: HashMap::new(),
            streams: Vec::new(),
            closed: HashSet::new(),
            data: Vec::new(),
            deleted: Vec::new(),
            puts: 0,
            renewed: None,
            terms: None,
            tokens: Vec::new(),
            devices: HashMap::new(),
            messages: HashSet::new(),
            calls: Vec::new(),
            responses: HashMap::new(),
            synced: false,
            resumed: false,
            packed: (0, 0),
            texts: 0,
            raw: (0, 0),
            older: false,
            orderless: false,
            next: 1,
            start: Instant::now(),
            socket,
        })
    }

    /// Requests another certificate, for this common name.
    pub async fn renew(&mut self, asked: &str) -> (RenewAnswer, Vec<u8>) {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, asked);
        assert!(self.session.renew(params.serialize_request(&key).unwrap().der().to_vec()), "the bridge renews");
        self.until("an answer to a renewal", |edge| edge.renewed.is_some()).await;
        (self.renewed.take().unwrap(), key.serialize_der())
    }

    /// Queues a report and returns its id.
    pub fn report(&mut self, report: Report) -> u64 {
        let id = self.next;
        self.next += 1;
        self.session.up(id, report).expect("room in the window");
        id
    }

    /// Reports, and waits until the bridge answers. A refusal is an error.
    pub async fn report_and_wait(&mut self, report: Report) -> Result<(), String> {
        let id = self.report(report);
        self.until("an answer to a report", |edge| edge.acked.contains(&id) || edge.refused.contains_key(&id)).await;
        self.refused.get(&id).cloned().map_or(Ok(()), Err)
    }

    /// Sends a batch of device reports, and waits until it is acknowledged. Returns the refused ones.
    pub async fn report_devices(&mut self, devices: Vec<DeviceReport>) -> Vec<DeviceRefusal> {
        let batch = self.next;
        self.next += 1;
        assert!(self.session.devices(batch, devices.iter().map(Value::from).collect()), "no batch is under way");
        self.until("an answer about devices", |edge| edge.devices.contains_key(&batch)).await;
        self.devices.remove(&batch).unwrap()
    }

    /// The object held under this key.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<&Object> {
        let key = ObjectKey { kind: kind.into(), namespace: namespace.into(), name: name.into() };
        self.store.held.get(&key)
    }

    /// Runs until `done`; panics with `what` if that takes too long or the connection ends.
    pub async fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "waited too long for {what}");
            if let Err(error) = self.step(Duration::from_millis(50)).await {
                assert!(done(self), "connection ended while waiting for {what}: {error}");
            }
        }
    }

    /// Sends this message unchanged.
    pub async fn send_raw(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    /// Runs for this time.
    pub async fn linger(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step(Duration::from_millis(20)).await.expect("connected");
        }
    }

    /// Runs until the connection ends, and returns the reason.
    pub async fn until_ended(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "the connection does not end");
            if let Err(error) = self.step(Duration::from_millis(50)).await {
                return error;
            }
        }
    }

    /// Sends what is queued and receives one frame, if one arrives within `pause`.
    pub async fn step(&mut self, pause: Duration) -> Result<(), String> {
        let now = self.start.elapsed();
        self.session.on_timeout(now).map_err(|e| e.to_string())?;
        while let Some(frame) = self.session.poll_frame(now) {
            let message = match frame.wire() {
                // An older build: it compresses, and has no other extension.
                Wire::Text(hello) if self.older => Message::text(hello.replacen(&format!(",\"{RAW_STREAMS}\""), "", 1)),
                Wire::Text(hello) if self.orderless => Message::text(hello.replacen(&format!(",\"{ORDERS}\""), "", 1)),
                Wire::Text(text) => Message::text(text),
                Wire::Binary(bytes) => {
                    self.raw.0 += usize::from(matches!(bytes[0], 6 | 7));
                    Message::binary(bytes)
                }
                Wire::Shared(_) => unreachable!("only a bridge shares"),
            };
            self.socket.send(message).await.map_err(|e| e.to_string())?;
        }
        match tokio::time::timeout(pause, self.socket.next()).await {
            Err(_) => return Ok(()),
            Ok(None) => return Err("closed".into()),
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(Some(Ok(Message::Text(text)))) => {
                self.texts += text.len();
                let now = self.start.elapsed();
                self.session.handle(&text, now).map_err(|e| e.to_string())?;
            }
            Ok(Some(Ok(Message::Binary(packed)))) => {
                assert!(self.session.compresses(), "nothing is compressed for who cannot read it");
                match wire::read(&packed, !self.older).map_err(|e| e.to_string())? {
                    Content::Text(text) => {
                        self.packed = (self.packed.0 + 1, self.packed.1 + packed.len());
                        self.texts += text.len();
                    }
                    Content::Data { .. } => self.raw.1 += 1,
                }
                let now = self.start.elapsed();
                self.session.handle_binary(&packed, now).map_err(|e| e.to_string())?;
            }
            Ok(Some(Ok(Message::Close(_)))) => return Err("closed".into()),
            Ok(Some(Ok(_))) => {}
        }
        while let Some(event) = self.session.poll_event() {
            self.take(event);
        }
        Ok(())
    }

    /// Number of held objects, without those that the bridge makes of Services for every pod.
    pub fn held(&self) -> usize {
        self.store.held.keys().filter(|key| key.kind != LINKS).count()
    }

    fn take(&mut self, event: EdgeEvent) {
        match event {
            EdgeEvent::Welcome(welcome) => (self.resumed, self.terms) = (welcome.resume, welcome.identity),
            EdgeEvent::Renewed(answer) => self.renewed = Some(answer),
            EdgeEvent::Token { answer, .. } => self.tokens.push(answer),
            EdgeEvent::DevicesAcked { batch, refused } => drop(self.devices.insert(batch, refused)),
            EdgeEvent::MessagesAcked(ids) => self.messages.extend(ids),
            EdgeEvent::Call { id, call } => self.calls.push((id, call)),
            EdgeEvent::Response { id, response } => drop(self.responses.insert(id, response)),
            EdgeEvent::Change(change) => {
                self.store.position = change.position(self.session.stream());
                let seq = change.seq();
                match change {
                    Change::Put { object, .. } => {
                        self.puts += usize::from(object.digest.key.kind != LINKS);
                        self.store.held.insert(object.digest.key.clone(), object);
                    }
                    Change::Delete { key, uid, .. } => self.delete(&key, &uid),
                    Change::SyncComplete { absent, .. } => {
                        for gone in absent {
                            self.delete(&gone.key, &gone.uid);
                        }
                        self.synced = true;
                    }
                }
                self.session.committed(seq);
            }
            EdgeEvent::UpAcked(id) => drop(self.acked.insert(id)),
            EdgeEvent::UpRefused(id, reason) => drop(self.refused.insert(id, reason)),
            EdgeEvent::Stream(StreamEvent::Opened { stream, request }) => self.streams.push((stream, request)),
            EdgeEvent::Stream(StreamEvent::Closed { stream, .. }) => drop(self.closed.insert(stream)),
            EdgeEvent::Stream(StreamEvent::Data { stream, data }) => self.data.push((stream, data)),
            EdgeEvent::Stream(StreamEvent::Room { .. }) => {}
        }
    }

    fn delete(&mut self, key: &ObjectKey, uid: &str) {
        if self.store.held.get(key).is_some_and(|object| object.digest.uid == uid) {
            self.store.held.remove(key);
            if key.kind != LINKS {
                self.deleted.push(key.clone());
            }
        }
    }
}
