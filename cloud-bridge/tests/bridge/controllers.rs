//! Controllers of CSI drivers: calls at the socket of a real `csi-proxy`, over the bridge, at a scripted node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use apimachinery::user::UserInfo;
use apiserver::{Accounts, Config, Server};
use cloud_bridge::accept::Gate;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::tls;
use cloud_bridge::{csi, listen};
use edge_protocol::channel::{self, CLOSE, OPENED, Records, STDIN, STDOUT};
use edge_protocol::message::{StreamId, StreamRequest};
use http::Request;
use rustls_pki_types::CertificateDer;
use sampan_grpc::{Client, Code, Status};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::support::fixture::{Cluster, TestBridge, eventually};
use crate::support::{Edge, ask, tls as tls_connection};

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
const NODE: &str = "node-1";
const DRIVER: &str = "d.example.com";
const CREATE: &str = "/csi.v1.Controller/CreateVolume";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";

/// A bridge with a port for these calls, and a service account with the rights to one driver and one node.
struct Lab {
    cluster: Cluster,
    bridge: TestBridge,
    address: SocketAddr,
    ca: CertificateDer<'static>,
    folder: TempDir,
}

impl Lab {
    async fn open() -> Self {
        tls::install_provider();
        let folder = tempfile::tempdir().unwrap();
        let authority = Arc::new(Authority::create("test").unwrap());
        let accounts = Accounts::new(&Accounts::new_key().unwrap(), authority.certificate_pem()).unwrap();
        let config = Config { accounts: Some(Arc::new(accounts)), ..Config::new(folder.path().join("api.db")) };
        let api = Server::open(config).unwrap();
        let client = kube::Client::new(api.service(UserInfo::master("test")), "default");
        let clients =
            Clients::new(client.clone(), move |node| kube::Client::new(api.service(UserInfo::node(node)), "default"));
        let cluster = Cluster::over(clients, client);
        let copy = Authority::from_pem("copy", &authority.certificate_pem(), &authority.key_pem()).unwrap();
        let bridge = TestBridge::with(&cluster, copy).await;
        let listener = listen::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ca, served, client) = (authority.certificate().clone(), bridge.bridge.clone(), cluster.client.clone());
        std::fs::write(folder.path().join("ca.crt"), authority.certificate_pem()).unwrap();
        tokio::spawn(async move {
            let ended = csi::serve(Some(listener), &served, &authority, Vec::new(), client, Gate::new()).await;
            panic!("it ended: {:?}", ended.err());
        });
        let lab = Self { cluster, bridge, address, ca, folder };
        lab.allow().await;
        let token = lab.create(ACCOUNT, &json!({"spec": {}})).await;
        std::fs::write(lab.token_file(), token["status"]["token"].as_str().unwrap()).unwrap();
        lab
    }

    /// Allows the account of the tests what `docs/csi.md` says, and nothing else.
    async fn allow(&self) {
        let rules = json!([
            {"apiGroups": [""], "resources": ["nodes/csi-controller"], "resourceNames": [NODE], "verbs": ["proxy"]},
            {"apiGroups": ["storage.k8s.io"], "resources": ["csidrivers/controller"], "resourceNames": [DRIVER],
             "verbs": ["proxy"]},
        ]);
        let group = "/apis/rbac.authorization.k8s.io/v1";
        self.create(&format!("{group}/clusterroles"), &json!({"metadata": {"name": "c"}, "rules": rules})).await;
        let binding = json!({
            "metadata": {"name": "c"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "c"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        });
        self.create(&format!("{group}/clusterrolebindings"), &binding).await;
    }

    async fn create(&self, path: &str, body: &Value) -> Value {
        let request = Request::post(path).header("content-type", "application/json");
        self.cluster.client.request(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap()
    }

    fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    fn header(&self) -> String {
        format!("Authorization: Bearer {}\r\n", std::fs::read_to_string(self.token_file()).unwrap())
    }

    async fn edge(&self) -> Edge {
        self.bridge.edge(&self.cluster, NODE).await.1
    }

    /// Starts `cloud-bridge csi-proxy`, and waits for its socket.
    async fn proxy(&self, driver: &str) -> Proxy {
        let socket = self.folder.path().join(format!("{driver}.sock"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-bridge"));
        command.args(["csi-proxy", "--driver", driver, "--node", NODE, "--socket"]).arg(&socket);
        command.args(["--bridge", &format!("https://localhost:{}", self.address.port()), "--bridge-ca"]);
        command.arg(self.folder.path().join("ca.crt")).arg("--token-file").arg(self.token_file());
        let proxy = Proxy { process: command.spawn().unwrap(), socket };
        eventually("the socket of the proxy", || async { proxy.socket.exists() }).await;
        proxy
    }
}

struct Proxy {
    process: Child,
    socket: PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Proxy {
    async fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Status> {
        Client::new(self.socket.clone()).call(path, message, PATIENCE).await
    }

    async fn code(&self, path: &str) -> Code {
        self.call(path, b"x").await.map_or_else(|status| status.code, |_| Code::Ok)
    }
}

/// Takes a call with its message, as a node does.
async fn take(edge: &mut Edge) -> (StreamId, StreamRequest, Vec<u8>) {
    edge.until("a call", |edge| !edge.streams.is_empty()).await;
    let (stream, request) = edge.streams.pop().unwrap();
    edge.session.stream_send(stream, &channel::records(OPENED, b"")).unwrap();
    let (mut records, mut message) = (Records::default(), Vec::new());
    loop {
        edge.until("the message", |edge| !edge.data.is_empty()).await;
        for (_, data) in std::mem::take(&mut edge.data) {
            edge.session.stream_consumed(stream, data.len());
            records.push(&data);
        }
        while let Some(record) = records.next_record().unwrap() {
            match record.channel {
                STDIN => message.extend(record.data),
                CLOSE => return (stream, request, message),
                other => panic!("a record on {other}"),
            }
        }
    }
}

/// Sends bytes as the bridge has room for them.
async fn say(edge: &mut Edge, stream: StreamId, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        edge.until("room", |edge| edge.session.stream_room(stream) > 0).await;
        let (now, later) = rest.split_at(rest.len().min(edge.session.stream_room(stream)));
        edge.session.stream_send(stream, now).unwrap();
        rest = later;
    }
}

/// Answers as a node does that has this answer of its helper.
async fn answer(edge: &mut Edge, stream: StreamId, code: u8, message: &[u8]) {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let whole = [&[code][..], &length, message].concat();
    let records = [channel::records(STDOUT, &whole), channel::records(CLOSE, &[STDOUT])].concat();
    say(edge, stream, &records).await;
    edge.session.stream_end(stream, None);
    edge.linger(Duration::from_millis(200)).await;
}

#[tokio::test]
async fn sidecar_calls_the_controller_on_its_node() {
    let lab = Lab::open().await;
    let mut edge = lab.edge().await;
    let proxy = lab.proxy(DRIVER).await;
    // Larger than what is on the way at once.
    let (asked, told) = (vec![7; 300_000], vec![9; 400_000]);
    let node = async {
        let (stream, request, message) = take(&mut edge).await;
        assert_eq!(request, StreamRequest::Csi { driver: DRIVER.into(), path: CREATE.into() });
        let (length, message) = message.split_first_chunk().unwrap();
        assert_eq!((u32::from_be_bytes(*length), message), (300_000, &asked[..]));
        answer(&mut edge, stream, 0, &told).await;
        let (stream, ..) = take(&mut edge).await;
        answer(&mut edge, stream, 6, b"there is one").await;
    };
    let sidecar = async {
        assert!(proxy.call(CREATE, &asked).await.unwrap() == told);
        assert_eq!(proxy.call(CREATE, b"").await, Err(Status::new(Code::AlreadyExists, "there is one")));
    };
    tokio::join!(node, sidecar);
    for path in ["/csi.v1.Node/NodePublishVolume", "/csi.v1.SnapshotMetadata/GetMetadataAllocated", "/x/y"] {
        assert_eq!(proxy.code(path).await, Code::Unimplemented, "{path}");
    }

    // The node goes, the bridge goes: at once, and the proxy stays.
    drop(edge);
    eventually("the end of the link", || async { proxy.code(CREATE).await == Code::Unavailable }).await;
    let other = lab.proxy("other.example.com").await;
    assert_eq!(other.code(CREATE).await, Code::PermissionDenied, "rights to one driver are none to another");
    std::fs::write(lab.token_file(), "nonsense").unwrap();
    assert_eq!(proxy.code(CREATE).await, Code::Unauthenticated, "the token is read for each call");
    std::fs::remove_file(lab.token_file()).unwrap();
    assert_eq!(proxy.code(CREATE).await, Code::Unavailable);
}

#[tokio::test]
async fn cancelled_call_ends_at_the_node() {
    let lab = Lab::open().await;
    let mut edge = lab.edge().await;
    let proxy = lab.proxy(DRIVER).await;
    let sidecar = async {
        let mut client = Client::new(proxy.socket.clone());
        client.call(CREATE, b"x", Duration::from_secs(4)).await.map_err(|status| status.code)
    };
    let node = async {
        let (stream, ..) = take(&mut edge).await;
        edge.until("the end of the call", |edge| edge.closed.contains(&stream)).await;
    };
    let (called, ()) = tokio::join!(sidecar, node);
    assert_eq!(called, Err(Code::DeadlineExceeded));
}

#[tokio::test]
async fn old_or_hostile_node_gives_unavailable() {
    let lab = Lab::open().await;
    let mut edge = lab.edge().await;
    let proxy = lab.proxy(DRIVER).await;
    let node = async {
        edge.until("a call", |edge| !edge.streams.is_empty()).await;
        let (stream, _) = edge.streams.pop().unwrap();
        // The words of a node from before.
        let why = "this node does not know the request; upgrade edge-runtime".to_owned();
        edge.session.stream_end(stream, Some(why));
        // An answer that is cut off, one that says another length, and one without an end.
        let (stream, ..) = take(&mut edge).await;
        say(&mut edge, stream, &channel::records(STDOUT, b"\0\0\0\0\x09cut")).await;
        edge.session.stream_end(stream, None);
        let (stream, ..) = take(&mut edge).await;
        let short = [channel::records(STDOUT, b"\0\0\0\0\x09short"), channel::records(CLOSE, &[STDOUT])].concat();
        say(&mut edge, stream, &short).await;
        let (stream, ..) = take(&mut edge).await;
        let endless = channel::records(STDOUT, &[0; 30_000]);
        while !edge.closed.contains(&stream) {
            if edge.session.stream_room(stream) >= endless.len() {
                edge.session.stream_send(stream, &endless).unwrap();
            }
            edge.step(Duration::from_millis(5)).await.unwrap();
        }
    };
    let sidecar = async {
        let old = proxy.call(CREATE, b"x").await.unwrap_err();
        assert!(old.code == Code::Unavailable && old.message.contains("upgrade edge-runtime"), "{old}");
        for what in ["cut off", "short", "endless"] {
            assert_eq!(proxy.code(CREATE).await, Code::Unavailable, "{what}");
        }
    };
    tokio::join!(node, sidecar);
}

#[tokio::test]
async fn stranger_gets_no_further_than_the_port() {
    let lab = Lab::open().await;
    let mut edge = lab.edge().await;
    let path = format!("/csi/{NODE}/{DRIVER}{CREATE}");
    let post = async |path: &str, header: &str| ask("POST", lab.address, &lab.ca, None, path, header).await.0;
    let header = lab.header();
    assert_eq!(post(&path, "").await, 401);
    assert_eq!(post(&path, "Authorization: Bearer nonsense\r\n").await, 401);
    for other in [
        format!("/csi/another/{DRIVER}{CREATE}"),
        format!("/csi/{NODE}/other.example.com{CREATE}"),
        format!("/csi/{NODE}/other.example.com/csi.v1.Identity/Probe"),
    ] {
        assert_eq!(post(&other, &header).await, 403, "{other}");
    }
    for wrong in [
        format!("/csi/{NODE}/{DRIVER}/csi.v1.Node/NodePublishVolume"),
        format!("/csi/{NODE}/../{DRIVER}{CREATE}"),
        "/exec/default/pod/c?command=ls".to_owned(),
        "/".to_owned(),
    ] {
        assert_eq!(post(&wrong, &header).await, 404, "{wrong}");
    }
    edge.linger(Duration::from_millis(300)).await;
    assert!(edge.streams.is_empty(), "the node has heard of none");
}

#[tokio::test]
async fn client_that_reads_nothing_holds_little() {
    let lab = Lab::open().await;
    let mut edge = lab.edge().await;
    let mut client = tls_connection(lab.address, &lab.ca, None).await.unwrap();
    let head = format!(
        "POST /csi/{NODE}/{DRIVER}{CREATE} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: 4\r\n\r\n",
        lab.header()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&[0; 4]).await.unwrap();
    let (stream, ..) = take(&mut edge).await;
    let part = channel::records(STDOUT, &[0; 30_000]);
    let mut silent = 0;
    // Sockets take some megabytes, so it has to stop before the end of what an answer may be.
    let mut sent = 0;
    while silent < 20 && !edge.closed.contains(&stream) {
        match edge.session.stream_room(stream) >= part.len() {
            true => {
                edge.session.stream_send(stream, &part).unwrap();
                (silent, sent) = (0, sent + part.len());
            }
            false => silent += 1,
        }
        edge.step(Duration::from_millis(50)).await.unwrap();
    }
    assert!(sent < (4 << 20) + (256 << 10), "the node has sent {sent} bytes");
    drop(client);
    edge.until("the end of the call", |edge| edge.closed.contains(&stream)).await;
}
