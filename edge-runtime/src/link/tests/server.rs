//! A bridge in small: TLS with client certificates, `/v1/join`, `/v1/enrol`, `/v1/link` with a real `BridgeSession`.

use super::super::address::BridgeAddress;
use super::super::dial::websocket_config;
use super::super::identity::Identity;
use crate::sys::tasks::Tasks;
use async_tungstenite::WebSocketStream;
use async_tungstenite::tungstenite::Message;
use async_tungstenite::tungstenite::handshake::derive_accept_key;
use async_tungstenite::tungstenite::protocol::Role;
use base64::{Engine, engine::general_purpose::STANDARD};
use edge_protocol::bridge::{BridgeEvent, BridgeSession, BridgeSettings};
use edge_protocol::message::{Der, Object, RenewAnswer};
use edge_protocol::state::NodeState;
use edge_protocol::stream::StreamEvent;
use edge_protocol::version::IdentityTerms;
use futures_rustls::TlsAcceptor;
use futures_rustls::server::TlsStream;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};
use ring::digest::{SHA256, digest};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, PrivateKeyDer};
use smol::channel::{self, Receiver, Sender};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::stream::StreamExt;
use smol::{Async, Timer, future};
use std::cell::{Cell, RefCell};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of every server, which no resolver knows (RFC 6761, 6.4).
pub(super) const NAME: &str = "bridge.invalid";

pub(super) struct Authority {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, "ca");
        let certificate = params.self_signed(&key).expect("signed").der().clone();
        Self { certificate, key }
    }

    fn issuer(&self) -> Issuer<'static, &KeyPair> {
        Issuer::from_ca_cert_der(&self.certificate, &self.key).expect("issuer")
    }

    fn sign(&self, names: &[&str], usage: ExtendedKeyUsagePurpose) -> (CertificateDer<'static>, KeyPair) {
        let key = KeyPair::generate().expect("key");
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        // Like the bridge's certificate: issued long ago, and valid for some more years.
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2024, 1, 1), rcgen::date_time_ymd(2035, 1, 1));
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &self.issuer()).expect("signed").der().clone(), key)
    }

    pub(super) fn identity(&self, node: &str, bridge: BridgeAddress) -> Identity {
        let (certificate, key) = self.sign(&[], ExtendedKeyUsagePurpose::ClientAuth);
        let (node, cluster) = (node.to_owned(), "cluster-1".to_owned());
        Identity::new(node, cluster, vec![bridge], &certificate, &self.certificate, &key.serialize_der())
    }

    pub(super) fn token(&self, secret: &str) -> String {
        let hash = digest(&SHA256, &self.certificate);
        let hex: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        format!("sampan1.{hex}.{secret}")
    }

    /// Signs a request as the bridge does.
    fn renew(&self, csr: Vec<u8>) -> CertificateDer<'static> {
        let csr = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr)).expect("csr");
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.signed_by(&csr.public_key, &self.issuer()).expect("signed").der().clone()
    }

    fn server_config(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificate, key) = self.sign(&["127.0.0.1", NAME], ExtendedKeyUsagePurpose::ServerAuth);
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("root");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .expect("verifier");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("key");
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate, self.certificate.clone()], key)
            .expect("certificate")
    }
}

/// What the test may look at.
#[derive(Default)]
pub(super) struct Seen {
    session: Option<BridgeSession>,
    pub(super) received: usize,
    pub(super) ended: Option<Option<String>>,
    /// Certificate of the newest connection.
    pub(super) certificate: Vec<u8>,
    /// Certificates that were shown to prove them.
    pub(super) proven: Vec<Vec<u8>>,
    /// Renewals asked for.
    pub(super) renewals: usize,
}

impl Seen {
    pub(super) fn acked(&self) -> Option<u64> {
        self.session.as_ref().and_then(BridgeSession::acked)
    }
}

struct Inner {
    authority: Authority,
    state: RefCell<NodeState>,
    seen: RefCell<Seen>,
    frozen: Cell<bool>,
    cut: Sender<()>,
    cuts: Receiver<()>,
    wake: Sender<()>,
    woken: Receiver<()>,
    clock: Instant,
    sessions: Cell<u64>,
    terms: Cell<Option<IdentityTerms>>,
    /// Signs renewals instead of the authority.
    signer: RefCell<Option<Authority>>,
}

#[derive(Clone)]
pub(super) struct Server {
    inner: Rc<Inner>,
    port: u16,
}

impl Server {
    pub(super) async fn start(ex: &Tasks, authority: &Authority) -> Self {
        let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0)).expect("bound");
        let port = listener.get_ref().local_addr().expect("address").port();
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config()));
        let (cut, cuts) = channel::bounded(1);
        let (wake, woken) = channel::bounded(1);
        let mut state = NodeState::new(format!("stream-{port}"));
        state.listed(0);
        let inner = Rc::new(Inner {
            authority: Authority {
                certificate: authority.certificate.clone(),
                key: KeyPair::try_from(authority.key.serialize_der()).expect("key"),
            },
            state: RefCell::new(state),
            seen: RefCell::default(),
            frozen: Cell::new(false),
            cut,
            cuts,
            wake,
            woken,
            clock: Instant::now(),
            sessions: Cell::new(0),
            terms: Cell::new(None),
            signer: RefCell::default(),
        });
        let server = Self { inner: Rc::clone(&inner), port };
        let spawner = ex.clone();
        ex.spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.expect("accepted");
                let (acceptor, inner) = (acceptor.clone(), Rc::clone(&inner));
                let serve = async move {
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        inner.serve(tls).await;
                    }
                };
                spawner.spawn(serve).detach();
            }
        })
        .detach();
        server
    }

    pub(super) fn address(&self) -> BridgeAddress {
        format!("https://127.0.0.1:{}", self.port).parse().expect("address")
    }

    /// Address of this server by its name.
    pub(super) fn named(&self) -> BridgeAddress {
        BridgeAddress { host: NAME.to_owned(), port: self.port }
    }

    pub(super) fn set(&self, object: Object) {
        self.inner.state.borrow_mut().set(object).expect("fits");
        let _ = self.inner.wake.try_send(());
    }

    pub(super) fn session<R>(&self, act: impl FnOnce(&mut BridgeSession, &mut NodeState) -> R) -> R {
        let mut seen = self.inner.seen.borrow_mut();
        let session = seen.session.as_mut().expect("a connection");
        let result = act(session, &mut self.inner.state.borrow_mut());
        let _ = self.inner.wake.try_send(());
        result
    }

    /// Certificate terms in the welcome.
    pub(super) fn set_terms(&self, terms: IdentityTerms) {
        self.inner.terms.set(Some(terms));
    }

    /// Makes another authority renew certificates from now on.
    pub(super) fn set_signer(&self, signer: Authority) {
        *self.inner.signer.borrow_mut() = Some(signer);
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&Seen) -> R) -> R {
        look(&self.inner.seen.borrow())
    }

    /// Closes the connection without a word.
    pub(super) fn cut(&self) {
        self.inner.cut.try_send(()).expect("one at a time");
    }

    /// Stops reading and writing, but keeps the socket open.
    pub(super) fn freeze(&self) {
        self.inner.frozen.set(true);
    }

    pub(super) async fn until(&self, reached: impl Fn(&Seen) -> bool) {
        while !reached(&self.inner.seen.borrow()) {
            Timer::after(Duration::from_millis(5)).await;
        }
    }
}

type Tls = TlsStream<Async<TcpStream>>;

impl Inner {
    async fn serve(self: Rc<Self>, mut tls: Tls) {
        let certificate = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(|der| der.to_vec());
        let Some(certificate) = certificate else {
            return self.join(&mut tls).await;
        };
        let Some(head) = read_head(&mut tls).await else { return };
        let Some(key) = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")) else {
            assert!(head.starts_with("POST /v1/identity "), "{head}");
            self.seen.borrow_mut().proven.push(certificate);
            let body = r#"{"node":"edge-1"}"#;
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            tls.write_all(text.as_bytes()).await.expect("written");
            return tls.flush().await.expect("flushed");
        };
        let accept = derive_accept_key(key.trim().as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        tls.write_all(answer.as_bytes()).await.expect("written");
        tls.flush().await.expect("flushed");
        let socket = WebSocketStream::from_raw_socket(tls, Role::Server, Some(websocket_config())).await;
        self.seen.borrow_mut().certificate = certificate;
        let mut settings = BridgeSettings::new("edge-1", "cluster-1", self.sessions.get() + 1);
        self.sessions.set(settings.session);
        settings.heartbeat = Duration::from_secs(1);
        settings.identity = self.terms.get();
        let session = BridgeSession::new(settings, &mut self.state.borrow_mut(), self.clock.elapsed());
        self.seen.borrow_mut().session = Some(session);
        self.link(socket).await;
    }

    async fn link(&self, mut socket: WebSocketStream<Tls>) {
        loop {
            while let Some(frame) = self.next_frame() {
                if socket.send(Message::text(frame)).await.is_err() {
                    return;
                }
            }
            if self.frozen.get() {
                return future::pending().await;
            }
            let message = future::or(async { socket.next().await }, async {
                let cut = async { self.cuts.recv().await.ok().map(|()| true) };
                let woken = async { self.woken.recv().await.ok().map(|()| false) };
                match future::or(cut, woken).await {
                    Some(true) => None,
                    _ => Some(Ok(Message::Pong(Vec::new().into()))),
                }
            });
            match message.await {
                Some(Ok(Message::Text(text))) if !self.frozen.get() => {
                    let mut seen = self.seen.borrow_mut();
                    let session = seen.session.as_mut().expect("set before");
                    let _ = session.handle(&mut self.state.borrow_mut(), &text, self.clock.elapsed());
                    drop(seen);
                    self.drain();
                }
                Some(Ok(_)) => {}
                _ => return,
            }
        }
    }

    fn next_frame(&self) -> Option<String> {
        if self.frozen.get() {
            return None;
        }
        let mut seen = self.seen.borrow_mut();
        seen.session.as_mut()?.poll_transmit(&self.state.borrow(), self.clock.elapsed())
    }

    fn drain(&self) {
        let mut seen = self.seen.borrow_mut();
        let Seen { session, received, ended, renewals, .. } = &mut *seen;
        let session = session.as_mut().expect("set before");
        while let Some(event) = session.poll_event() {
            match event {
                BridgeEvent::Connected { resumed: false, .. } => self.state.borrow_mut().listed(session.session()),
                BridgeEvent::Report { id, .. } => session.reported(id),
                BridgeEvent::Renew(csr) => {
                    *renewals += 1;
                    let signer = self.signer.borrow();
                    let certificate = Der(signer.as_ref().unwrap_or(&self.authority).renew(csr.0).to_vec());
                    let authorities = vec![Der(self.authority.certificate.to_vec())];
                    session.renewed(RenewAnswer::Issued { certificate, authorities });
                }
                BridgeEvent::Stream(StreamEvent::Data { stream, data }) => {
                    *received += data.len();
                    session.stream_consumed(stream, data.len());
                }
                BridgeEvent::Stream(StreamEvent::Closed { error, .. }) => *ended = Some(error),
                _ => {}
            }
        }
    }

    /// Reads one small POST, and answers as a bridge does.
    async fn join(&self, tls: &mut Tls) {
        let mut bytes = vec![0; 8192];
        let mut length = 0;
        let request = loop {
            length += tls.read(&mut bytes[length..]).await.expect("read");
            let text = std::str::from_utf8(&bytes[..length]).expect("text");
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && let Ok(request) = serde_json::from_str::<serde_json::Value>(body)
            {
                break request;
            }
        };
        let field = |name: &str| request[name].as_str().expect("a text").to_owned();
        let serial = request["hardware"]["serial"].as_str().unwrap_or_default();
        let (status, answer) = if serial == "unapproved" {
            let answer = serde_json::json!({"request": "enrol-1", "node": "gw-unapproved", "retrySeconds": 30});
            ("202 Accepted", answer)
        } else if field("token").ends_with(".good") {
            let signed = self.authority.renew(STANDARD.decode(field("csr")).expect("base64"));
            let answer = serde_json::json!({
                "certificate": STANDARD.encode(signed),
                "ca": STANDARD.encode(&self.authority.certificate),
                "cluster": "cluster-1",
                "node": format!("gw-{serial}"),
                "labels": {"a": "b"},
            });
            ("200 OK", answer)
        } else {
            ("403 Forbidden", serde_json::json!({"reason": "Forbidden", "message": "the token was used"}))
        };
        let body = answer.to_string();
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        tls.write_all(text.as_bytes()).await.expect("written");
        tls.flush().await.expect("flushed");
    }
}

/// Up to the empty line, and what follows a small POST with it. None for a client that leaves.
async fn read_head(tls: &mut Tls) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let length = tls.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&buffer[..length]);
        let text = String::from_utf8(bytes.clone()).expect("text");
        if text.starts_with("POST") && text.ends_with("{}") || text.starts_with("GET") && text.ends_with("\r\n\r\n") {
            return Some(text);
        }
    }
}
