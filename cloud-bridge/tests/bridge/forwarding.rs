//! Kubelet requests at a bridge that does not have the node: the bridge that has it answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cloud_bridge::accept::Gate;
use cloud_bridge::bridge::{AddressType, KubeletEndpoint, Settings, overview};
use cloud_bridge::kubelet::forward::Forwarder;
use cloud_bridge::kubelet::{Ports, replica_port};
use cloud_bridge::listen;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::tls;
use edge_protocol::channel;
use edge_protocol::message::{Report, StreamRequest};
use kube::api::DeleteParams;
use rustls_pki_types::CertificateDer;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::fixture::{Cluster, TestBridge, eventually, node_object, twins, unique};
use crate::support::{Edge, Identity, Store, ask, get, tls as tls_connection};

/// Two bridges: `has` has the node's connection and takes requests of other bridges, `asked` has the kubelet port.
struct Two {
    has: TestBridge,
    /// Where `has` takes requests of other bridges, and the task.
    place: SocketAddr,
    port: JoinHandle<()>,
    _asked: TestBridge,
    /// The kubelet port, with the authority of its callers.
    address: SocketAddr,
    callers: Authority,
    authority: Arc<Authority>,
}

fn copy(authority: &Authority) -> Arc<Authority> {
    Arc::new(Authority::from_pem("copy", &authority.certificate_pem(), &authority.key_pem()).unwrap())
}

/// A port that was free a moment ago.
async fn free_port() -> u16 {
    listen::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().local_addr().unwrap().port()
}

impl Two {
    async fn start(cluster: &Cluster) -> Self {
        let (one, two) = twins();
        let (authority, callers) = (copy(&one), Authority::create("callers").unwrap());
        let listener = listen::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let place = listener.local_addr().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().await));
        // Both have one kubelet address, and only `asked` listens there.
        let endpoint = KubeletEndpoint { kind: AddressType::InternalIp, address: address.ip(), port: address.port() };
        let settings = Settings {
            kubelet: Some(Arc::new(move |_: &str| Some(endpoint))),
            replica_place: Some(place.to_string()),
            ..Settings::default()
        };
        let has = TestBridge::with_settings(cluster, one, settings).await;
        let (bridge, shared) = (has.bridge.clone(), Arc::clone(&authority));
        let port = tokio::spawn(async move {
            let served = replica_port::serve(Some(listener), bridge, &shared, Vec::new(), Gate::new()).await;
            panic!("it ended: {:?}", served.err());
        });
        let clients = [callers.certificate().clone()];
        let config = tls::server_config(two.certificate(), two.server(&[]).unwrap(), &clients, &[b"http/1.1"]).unwrap();
        let ports = Ports::new(
            (AddressType::InternalIp, address.ip()),
            (address.port(), address.port()),
            config,
            cluster.client.clone(),
            Gate::new(),
        );
        let (kubelet, seen, closing) = (Arc::clone(&ports), Arc::clone(&ports), Arc::clone(&ports));
        let settings = Settings {
            kubelet: Some(Arc::new(move |node| kubelet.endpoint(node))),
            gone: Some(Arc::new(move |node| closing.close(node))),
            node_seen: Some(Arc::new(move |node| seen.seen(node))),
            // A bridge at loopback only asks others there if it is reached there, too.
            replica_place: Some("127.0.0.1:1".to_owned()),
            ..Settings::default()
        };
        let forwarder = Forwarder::new(copy(&two));
        let asked = TestBridge::with_settings(cluster, two, settings).await;
        ports.set_bridge(asked.bridge.clone(), Some(forwarder));
        Self { has, place, port, _asked: asked, address, callers, authority }
    }

    fn ca(&self) -> CertificateDer<'static> {
        self.authority.certificate().clone()
    }

    /// Connects a node to the bridge without open kubelet ports. Its object names the port of the other one.
    async fn edge(&self, cluster: &Cluster, node: &str) -> (Identity, Edge) {
        let identity = self.has.join(cluster, node).await;
        let mut edge = self.has.connect(&identity, Store::default()).await;
        edge.report_and_wait(Report::Node { node: node_object(node) }).await.unwrap();
        (identity, edge)
    }

    /// Asks at the kubelet port as the API server.
    async fn ask(&self, path: &str) -> (u16, String) {
        let master = Identity::of_user(&self.callers, "kube-apiserver", "system:masters");
        get(self.address, &self.ca(), Some(&master), path, "").await
    }

    /// Waits until the request is answered with this status and text.
    async fn until_answered(&self, path: &str, status: u16, text: &str) {
        eventually(text, || async {
            if TcpStream::connect(self.address).await.is_err() {
                return false;
            }
            let (code, body) = self.ask(path).await;
            code == status && body.contains(text)
        })
        .await;
    }
}

#[tokio::test]
async fn kubelet_requests_reach_the_node_through_another_bridge() {
    let cluster = Cluster::open().await;
    let two = Two::start(&cluster).await;
    let node = unique("forwarded");
    let (identity, mut edge) = two.edge(&cluster, &node).await;
    two.until_answered("/healthz", 200, "ok").await;
    // Both bridges are in this process.
    let counted = overview::metrics(&[]);
    for name in ["sampan_bridge_kubelet_requests_total ", "sampan_bridge_kubelet_requests_forwarded_total "] {
        assert!(counted.lines().any(|line| line.starts_with(name) && !line.ends_with(" 0")), "{name}{counted}");
    }

    // The caller is checked where it asks.
    let path = "/containerLogs/default/pod/c";
    let stranger = Identity::of_user(&two.callers, "nobody", "nothing");
    assert_eq!(get(two.address, &two.ca(), Some(&stranger), path, "").await.0, 403);
    assert_eq!(get(two.address, &two.ca(), None, path, "").await.0, 401);

    let master = Identity::of_user(&two.callers, "kube-apiserver", "system:masters");
    let stats = json!({"node": {"nodeName": node}, "pods": []}).to_string();
    for (path, answer) in [(path, "one\ntwo\n"), ("/stats/summary", stats.as_str())] {
        let asked = tokio::spawn({
            let (address, ca, master) = (two.address, two.ca(), master.clone());
            async move { get(address, &ca, Some(&master), path, "").await }
        });
        edge.until("the request", |edge| !edge.streams.is_empty()).await;
        let (stream, _) = edge.streams.pop().unwrap();
        edge.session.stream_send(stream, answer.as_bytes()).unwrap();
        edge.session.stream_end(stream, None);
        edge.linger(Duration::from_millis(200)).await;
        let (code, body) = asked.await.unwrap();
        assert!(code == 200 && body.contains(answer.trim_end()), "{path}: {code} {body}");
    }
    assert_eq!(two.ask("/containerLogs/a/b/c?tailLines=x").await.0, 400);
    assert_eq!(two.ask("/nothing").await.0, 404);

    // Only a bridge may forward, and only for nodes that the other bridge has.
    let of_node = format!("x-sampan-node: {node}\r\n");
    let at_place =
        async |identity: Option<&Identity>, header: &str| get(two.place, &two.ca(), identity, "/healthz", header).await;
    assert_eq!(at_place(None, &of_node).await.0, 401);
    let (code, why) = at_place(Some(&identity), &of_node).await;
    assert!(code == 403 && why.contains("no bridge"), "the node itself: {code} {why}");
    let operator = Identity::of_user(&two.authority, "operator", "sampan:operators");
    assert_eq!(at_place(Some(&operator), &of_node).await.0, 403);
    let bridge = Identity::of_user(&two.authority, "sampan:bridge", "sampan:bridges");
    assert_eq!(at_place(Some(&bridge), &of_node).await, (200, "ok".to_owned()));
    assert_eq!(at_place(Some(&bridge), "").await.0, 400);
    assert_eq!(at_place(Some(&bridge), "x-sampan-node: absent\r\n").await.0, 503);

    // The other bridge says that the node is gone; then it is gone itself.
    drop(edge);
    two.until_answered("/healthz", 503, "last seen").await;
    two.port.abort();
    two.until_answered("/healthz", 503, "cannot be reached").await;
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
    eventually("the port to be closed", || async { TcpStream::connect(two.address).await.is_err() }).await;
}

#[tokio::test]
async fn streams_through_another_bridge_end_with_their_client() {
    let cluster = Cluster::open().await;
    let two = Two::start(&cluster).await;
    let node = unique("switched");
    let (_, mut edge) = two.edge(&cluster, &node).await;
    two.until_answered("/healthz", 200, "ok").await;
    let master = Identity::of_user(&two.callers, "kube-apiserver", "system:masters");
    let socket = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                  Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n";
    let spdy = "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    for (method, upgrade) in [("GET", socket), ("POST", spdy)] {
        let mut client = tls_connection(two.address, &two.ca(), Some(&master)).await.unwrap();
        let path = "/exec/default/pod/c?output=1&command=ls";
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n{upgrade}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        edge.until("the request", |edge| !edge.streams.is_empty()).await;
        let (stream, request) = edge.streams.pop().unwrap();
        assert!(matches!(request, StreamRequest::Exec { .. }), "{request:?}");
        edge.session.stream_send(stream, &channel::records(channel::OPENED, b"")).unwrap();
        edge.session.stream_send(stream, &channel::records(channel::STDOUT, b"hello")).unwrap();
        edge.linger(Duration::from_millis(200)).await;
        // Over SPDY the client begins the streams, so nothing follows the head.
        let last = if method == "GET" { "hello" } else { "\r\n\r\n" };
        let mut read = Vec::new();
        while !read.windows(last.len()).any(|bytes| bytes == last.as_bytes()) {
            let more =
                tokio::time::timeout(Duration::from_secs(10), client.read_buf(&mut read)).await.unwrap().unwrap();
            assert!(more > 0, "{upgrade}: {}", String::from_utf8_lossy(&read));
        }
        let head = String::from_utf8_lossy(&read).to_lowercase();
        assert!(head.starts_with("http/1.1 101 ") && head.contains("v4.channel.k8s.io"), "{head}");
        drop(client);
        edge.until("the end of the stream", |edge| edge.closed.contains(&stream)).await;
    }
}

#[tokio::test]
async fn forwarded_call_of_a_controller_reaches_its_node() {
    let cluster = Cluster::open().await;
    let two = Two::start(&cluster).await;
    let node = unique("controller");
    let (_, mut edge) = two.edge(&cluster, &node).await;
    let bridge = Identity::of_user(&two.authority, "sampan:bridge", "sampan:bridges");
    let path = format!("/csi/{node}/d.example.com/csi.v1.Identity/Probe");
    let (place, ca, header) = (two.place, two.ca(), format!("x-sampan-node: {node}\r\n"));
    let other = "x-sampan-node: absent\r\n";
    assert_eq!(ask("POST", place, &ca, Some(&bridge), &path, other).await.0, 404, "the path names another node");
    let asked = tokio::spawn(async move { ask("POST", place, &ca, Some(&bridge), &path, &header).await });
    edge.until("the call", |edge| !edge.streams.is_empty()).await;
    let (stream, request) = edge.streams.pop().unwrap();
    let called = StreamRequest::Csi { driver: "d.example.com".into(), path: "/csi.v1.Identity/Probe".into() };
    assert_eq!(request, called);
    let answer = channel::records(channel::STDOUT, b"\0\0\0\0\x02ok");
    let end = channel::records(channel::CLOSE, &[channel::STDOUT]);
    edge.session.stream_send(stream, &[channel::records(channel::OPENED, b""), answer, end].concat()).unwrap();
    edge.linger(Duration::from_millis(200)).await;
    let (code, body) = asked.await.unwrap();
    assert!(code == 200 && body.contains("\x02ok"), "{code} {body:?}");
}
