//! The API over real TLS: certificates, tokens, and no one else; and `kube` as a client of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apimachinery::user::UserInfo;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloud_bridge::accept::{Gate, Patience};
use cloud_bridge::kubeconfig;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::encoding::to_pem;
use cloud_bridge::pki::tls;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{Api, pod};

struct Listening {
    _api: Api,
    authority: Arc<Authority>,
    address: String,
}

async fn listen() -> Listening {
    listen_with(Gate::new()).await
}

async fn listen_with(gate: Arc<Gate>) -> Listening {
    tls::install_provider();
    let api = Api::embedded(|config| {
        config.tokens = vec![("secret-token".into(), UserInfo::new("robot", ["system:masters"]))]
    });
    let authority = Arc::new(Authority::create("test").unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let signed = authority.server(&["127.0.0.1".into()]).unwrap();
    let ca = authority.certificate();
    let config = tls::server_config(ca, signed, std::slice::from_ref(ca), &[b"h2", b"http/1.1"]).unwrap();
    let server = api.server.clone().unwrap();
    tokio::spawn(async move { cloud_bridge::api_port::serve(server, listener, config, gate).await });
    Listening { _api: api, authority, address }
}

impl Listening {
    fn client(&self, auth: AuthInfo) -> Client {
        let mut config = kube::Config::new(self.address.parse().unwrap());
        config.root_cert = Some(vec![self.authority.certificate().to_vec()]);
        config.auth_info = auth;
        Client::try_from(config).unwrap()
    }

    /// A connection without a certificate.
    async fn stranger(&self) -> TlsStream<TcpStream> {
        self.speaking(b"http/1.1").await
    }

    /// A connection without a certificate, for this protocol.
    async fn speaking(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        let address: SocketAddr = self.address.strip_prefix("https://").unwrap().parse().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate().clone()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let tcp = TcpStream::connect(address).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect("127.0.0.1".try_into().unwrap(), tcp).await.unwrap()
    }

    fn certificate(&self, user: &str, group: &str) -> AuthInfo {
        let signed = self.authority.client(user, group).unwrap();
        AuthInfo {
            client_certificate_data: Some(BASE64_STANDARD.encode(to_pem("CERTIFICATE", &signed.certificate))),
            client_key_data: Some(BASE64_STANDARD.encode(to_pem("PRIVATE KEY", signed.key.secret_der())).into()),
            ..AuthInfo::default()
        }
    }
}

#[tokio::test]
async fn certificates_and_tokens_identify() {
    let api = listen().await;
    let admin = api.client(api.certificate("admin", "system:masters"));
    kube::Api::<Pod>::all(admin).list(&ListParams::default()).await.unwrap();
    let robot = api.client(AuthInfo { token: Some("secret-token".to_owned().into()), ..AuthInfo::default() });
    kube::Api::<Pod>::all(robot).list(&ListParams::default()).await.unwrap();
    let eve = api.client(api.certificate("eve", "people"));
    let error = kube::Api::<Pod>::all(eve).list(&ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("User \"eve\" cannot list resource \"pods\""), "{error}");
    for auth in [AuthInfo::default(), AuthInfo { token: Some("wrong".to_owned().into()), ..AuthInfo::default() }] {
        let error = kube::Api::<Pod>::all(api.client(auth)).list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
    }
}

#[tokio::test]
async fn kubeconfig_of_a_person_identifies_the_person_alone() {
    let api = listen().await;
    let hour = Duration::from_secs(3600);
    let signed = api.authority.user("ann", None, hour).unwrap();
    let document = kubeconfig::document(&api.authority, &api.address, "ann", &signed);
    let file: Kubeconfig = serde_json::from_value(document).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    let pods = kube::Api::<Pod>::all(Client::try_from(config).unwrap());
    let error = pods.list(&ListParams::default()).await.unwrap_err();
    assert!(error.to_string().contains("User \"ann\" cannot list resource \"pods\""), "{error}");
}

#[tokio::test]
async fn nodes_come_by_the_link_alone() {
    let api = listen().await;
    let node = api.certificate("system:node:a", "system:nodes");
    let mut tricks =
        vec![node, api.certificate("system:node:a", "system:masters"), api.certificate("b", "system:nodes")];
    // A token does not help who shows a node's certificate.
    tricks.extend(tricks.clone().into_iter().map(|mut auth| {
        auth.token = Some("secret-token".to_owned().into());
        auth
    }));
    for auth in tricks {
        let error = kube::Api::<Pod>::all(api.client(auth)).list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
    }
}

#[tokio::test]
async fn a_foreign_authority_is_refused() {
    let api = listen().await;
    let other = Authority::create("other").unwrap().client("admin", "system:masters").unwrap();
    let auth = AuthInfo {
        client_certificate_data: Some(BASE64_STANDARD.encode(to_pem("CERTIFICATE", &other.certificate))),
        client_key_data: Some(BASE64_STANDARD.encode(to_pem("PRIVATE KEY", other.key.secret_der())).into()),
        ..AuthInfo::default()
    };
    assert!(kube::Api::<Pod>::all(api.client(auth)).list(&ListParams::default()).await.is_err());
}

#[tokio::test]
async fn kube_watches_patches_and_applies() {
    let api = listen().await;
    let client = api.client(api.certificate("admin", "system:masters"));
    let pods = kube::Api::<Pod>::namespaced(client.clone(), "default");
    let mut seen = watcher(pods.clone(), watcher::Config::default()).applied_objects().boxed();
    let object: Pod = serde_json::from_value(pod("p")).unwrap();
    pods.create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(seen.try_next().await.unwrap().unwrap().name_any(), "p");
    let patch = json!({"status": {"phase": "Running"}});
    pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    let changed = seen.try_next().await.unwrap().unwrap();
    assert_eq!(changed.status.unwrap().phase.as_deref(), Some("Running"));
    let maps = kube::Api::<ConfigMap>::namespaced(client, "default");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
    let made = maps.patch("c", &PatchParams::apply("test").force(), &Patch::Apply(map)).await.unwrap();
    assert_eq!(made.data.unwrap()["a"], "b");
}

/// Reads until the server ends the connection; how long that took, and what came.
async fn rest(mut stream: impl AsyncRead + Unpin) -> (Duration, String) {
    let (started, mut answer) = (Instant::now(), Vec::new());
    let read = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "nobody ended the connection");
    (started.elapsed(), String::from_utf8_lossy(&answer).into_owned())
}

#[tokio::test]
async fn who_is_nobody_or_idle_is_sent_away() {
    let patience = Patience { arrival: Duration::from_secs(2), idle: Duration::from_secs(2), ..Patience::default() };
    let api = listen_with(Gate::with(patience)).await;
    let address: SocketAddr = api.address.strip_prefix("https://").unwrap().parse().unwrap();
    let tls = || api.stranger();
    // Neither client sends anything; hyper would wait for the first byte forever.
    let (silent, spoken) = (TcpStream::connect(address).await.unwrap(), tls().await);
    let (one, other) = futures::join!(rest(silent), rest(spoken));
    assert!(one.0 > Duration::from_secs(1) && other.0 > Duration::from_secs(1), "not before its time");
    // An answer, and the end: no second guess at a token.
    let mut nobody = tls().await;
    let guess = "GET /version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer guess\r\n\r\n";
    nobody.write_all(guess.repeat(2).as_bytes()).await.unwrap();
    assert_eq!(rest(nobody).await.1.matches("HTTP/1.1 401").count(), 1);
    // A body that never comes is not waited for, and not read: who asks is looked at first.
    for token in ["", "Authorization: Bearer guess\r\n"] {
        let mut nobody = tls().await;
        let path = "/api/v1/namespaces/default/configmaps";
        let ask = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{token}Content-Length: 1000000\r\n\r\n");
        nobody.write_all(ask.as_bytes()).await.unwrap();
        let (took, answer) = rest(nobody).await;
        assert!(answer.contains("HTTP/1.1 401") && took < Duration::from_secs(2), "{took:?} {answer}");
    }
    let mut known = tls().await;
    let ask = "GET /version HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret-token\r\n\r\n";
    known.write_all(ask.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    known.write_all(ask.as_bytes()).await.unwrap();
    let (took, answer) = rest(known).await;
    assert!(took > Duration::from_secs(1) && answer.matches("HTTP/1.1 200").count() == 2, "{took:?} {answer}");
}

#[tokio::test]
async fn watch_over_a_websocket_is_a_text_message_per_event() {
    let api = listen().await;
    let maps = kube::Api::<ConfigMap>::namespaced(api.client(api.certificate("admin", "system:masters")), "default");
    let map = |name: &str| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    maps.create(&PostParams::default(), &map("before")).await.unwrap();
    let mut socket = api.stranger().await;
    let ask = "GET /api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=3 HTTP/1.1\r\nHost: a\r\n\
        Authorization: Bearer secret-token\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    socket.write_all(ask.as_bytes()).await.unwrap();
    let mut first = vec![0; 4096];
    let read = socket.read(&mut first).await.unwrap();
    assert!(first[..read].starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&first[..read]));
    maps.create(&PostParams::default(), &map("after")).await.unwrap();
    let (_, events) = rest(socket).await;
    let events = String::from_utf8_lossy(&first[..read]).into_owned() + &events;
    assert_eq!(events.matches("{\"type\":\"ADDED\"").count(), 2, "{events}");
    assert!(events.contains("\"name\":\"before\"") && events.contains("\"name\":\"after\""), "{events}");
}

#[tokio::test]
async fn request_over_http_1_1_names_its_host_once() {
    let api = listen().await;
    for (hosts, code) in [("", 400), ("Host: a\r\nHost: b\r\n", 400), ("Host: a\r\n", 200)] {
        let mut socket = api.stranger().await;
        let ask =
            format!("GET /version HTTP/1.1\r\n{hosts}Connection: close\r\nAuthorization: Bearer secret-token\r\n\r\n");
        socket.write_all(ask.as_bytes()).await.unwrap();
        let (_, answer) = rest(socket).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{hosts:?}: {answer}");
    }
}

/// A frame of HTTP/2 (RFC 9113 section 4.1) on stream `stream`.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// A field whose name is in the static table of HPACK, as a literal without indexing (RFC 7541 section 6.2.2).
fn field(name: &[u8], value: &str) -> Vec<u8> {
    [name, &[u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
}

/// Length of the body of the first answer on a connection of HTTP/2.
async fn body_of_first(method: &str, socket: &mut TlsStream<TcpStream>) -> usize {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    // `:method`, `:scheme https`, `:authority`, `:path`, `authorization`.
    let fields = [
        field(&[2], method),
        vec![0x87],
        field(&[1], "a"),
        field(&[4], "/version"),
        field(&[0x0f, 8], "Bearer secret-token"),
    ];
    let ask = frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields.concat());
    let all = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[]), ask].concat();
    socket.write_all(&all).await.unwrap();
    let (mut length, mut answered) = (0, false);
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.unwrap();
        let [a, b, c, kind, flags, .., stream] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        socket.read_exact(&mut payload).await.unwrap();
        if stream != 1 || !matches!(kind, DATA | HEADERS) {
            assert!(stream == 0 || kind != RST_STREAM, "the server resets the stream");
            continue;
        }
        answered |= kind == HEADERS;
        length += if kind == DATA { payload.len() } else { 0 };
        if flags & END_STREAM != 0 {
            assert!(answered);
            return length;
        }
    }
}

#[tokio::test]
async fn head_over_http_2_has_no_body() {
    let api = listen().await;
    for (method, has_body) in [("GET", true), ("HEAD", false)] {
        let mut socket = api.speaking(b"h2").await;
        let answer = tokio::time::timeout(Duration::from_secs(15), body_of_first(method, &mut socket)).await;
        assert_eq!(answer.expect("an answer") > 0, has_body, "{method}");
    }
}
