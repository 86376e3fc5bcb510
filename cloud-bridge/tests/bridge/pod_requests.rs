//! Requests of pods to the API over the link of their node, with tokens of the embedded API.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::user::UserInfo;
use apiserver::{Accounts, Config, Server};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::tls;
use cloud_bridge::standalone::pod_requests;
use edge_protocol::channel::{self, CLOSE, OPENED, Records, STATUS, STDIN, STDOUT};
use edge_protocol::message::{ApiAnswer, ApiRequest, MAX_API_BODY, Report, StreamId};
use edge_protocol::stream::INITIAL_CREDIT;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::support::fixture::{Cluster, TestBridge, force_delete, node_object};
use crate::support::{Edge, Identity, Store};

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(20);

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Lab {
    cluster: Cluster,
    bridge: TestBridge,
    _folder: tempfile::TempDir,
}

impl Lab {
    /// An API whose account `default` may use pods and ConfigMaps of its namespace.
    async fn open() -> Self {
        tls::install_provider();
        let folder = tempfile::tempdir().unwrap();
        let accounts = Accounts::new(&Accounts::new_key().unwrap(), "the authority\n".to_owned()).unwrap();
        let config = Config { accounts: Some(Arc::new(accounts)), ..Config::new(folder.path().join("api.db")) };
        let api = Server::open(config).unwrap();
        let client = kube::Client::new(api.service(UserInfo::master("test")), "default");
        let as_node = api.clone();
        let clients = Clients::new(client.clone(), move |node| {
            kube::Client::new(as_node.service(UserInfo::node(node)), "default")
        });
        let cluster = Cluster::over(clients, client);
        let settings = Settings { pod_requests: Some(pod_requests(&api)), ..Settings::default() };
        let bridge = TestBridge::with_settings(&cluster, Authority::create("test").unwrap(), settings).await;
        let lab = Self { cluster, bridge, _folder: folder };
        let rules = json!([{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["*"]}]);
        let group = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
        lab.create(&format!("{group}/roles"), &json!({"metadata": {"name": "r"}, "rules": rules})).await;
        let binding = json!({
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        });
        lab.create(&format!("{group}/rolebindings"), &binding).await;
        lab
    }

    async fn create(&self, path: &str, body: &Value) -> Value {
        let request = Request::post(path).header("content-type", "application/json");
        self.cluster.client.request(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap()
    }

    async fn edge(&self, node: &str) -> (Identity, Edge) {
        let identity = self.bridge.join(&self.cluster, node).await;
        let mut edge = Edge::connect_with_api(self.bridge.address, &identity, Store::default()).await;
        edge.report_and_wait(Report::Node { node: node_object(node) }).await.unwrap();
        edge.until("the first list", |edge| edge.synced).await;
        (identity, edge)
    }

    /// A pod on the node of this connection, and a token of it.
    async fn pod(&self, edge: &mut Edge, name: &str) -> (Pod, String) {
        let pod = self.cluster.create_pod(name, &edge.name, json!({})).await;
        edge.until("the pod", |edge| edge.object("Pod", "default", name).is_some()).await;
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod.uid().unwrap()});
        let review = self.create(ACCOUNT, &json!({"spec": {"boundObjectRef": bound}})).await;
        (pod, review["status"]["token"].as_str().unwrap().to_owned())
    }
}

fn get(path: &str, token: &str) -> ApiRequest {
    let headers = if token.is_empty() { Vec::new() } else { vec![("authorization".into(), format!("Bearer {token}"))] };
    ApiRequest { method: "GET".into(), path: path.into(), headers, has_body: false }
}

fn post(path: &str, token: &str) -> ApiRequest {
    let mut request = ApiRequest { method: "POST".into(), has_body: true, ..get(path, token) };
    request.headers.push(("content-type".into(), "application/json".into()));
    request
}

/// The pod's end of a request.
struct Asked {
    stream: StreamId,
    records: Records,
    status: Option<u16>,
    body: Vec<u8>,
    /// Content of the last record: empty after a complete answer.
    end: Option<Vec<u8>>,
}

impl Asked {
    fn new(edge: &mut Edge, request: ApiRequest) -> Self {
        let stream = edge.session.open_api(request).unwrap();
        Self { stream, records: Records::default(), status: None, body: Vec::new(), end: None }
    }

    /// Takes what has come, as a pod that reads.
    fn read(&mut self, edge: &mut Edge) {
        let all = std::mem::take(&mut edge.data);
        let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(stream, _)| *stream == self.stream);
        edge.data = others;
        for (_, data) in own {
            edge.session.stream_consumed(self.stream, data.len());
            self.records.push(&data);
        }
        while let Some(record) = self.records.next_record().unwrap() {
            match record.channel {
                OPENED => self.status = Some(serde_json::from_slice::<ApiAnswer>(&record.data).unwrap().status),
                STDOUT => self.body.extend(record.data),
                STATUS => self.end = Some(record.data),
                other => panic!("a record on channel {other}"),
            }
        }
    }

    /// Reads until `done`.
    async fn until(&mut self, edge: &mut Edge, what: &str, done: impl Fn(&Self) -> bool) {
        let reading = async {
            while !done(self) {
                edge.step(Duration::from_millis(20)).await.expect("connected");
                self.read(edge);
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("waited too long for {what}"));
    }

    async fn whole(mut self, edge: &mut Edge) -> (u16, Value) {
        self.until(edge, "the end of an answer", |asked| asked.end.is_some()).await;
        assert_eq!(self.end.as_deref(), Some(&[][..]), "the answer is complete");
        let stream = self.stream;
        edge.until("the end of the stream", |edge| edge.closed.contains(&stream)).await;
        (self.status.unwrap(), serde_json::from_slice(&self.body).unwrap())
    }
}

async fn ask(edge: &mut Edge, request: ApiRequest) -> (u16, Value) {
    Asked::new(edge, request).whole(edge).await
}

async fn ask_with(edge: &mut Edge, request: ApiRequest, body: &[u8]) -> (u16, Value) {
    let mut asked = Asked::new(edge, request);
    let mut records = channel::records(STDIN, body);
    records.extend(channel::records(CLOSE, &[STDIN]));
    let mut rest = records.as_slice();
    let sending = async {
        while !rest.is_empty() && asked.end.is_none() {
            let room = edge.session.stream_room(asked.stream).min(rest.len());
            let (now, later) = rest.split_at(room);
            // The bridge may have answered and ended it.
            if edge.session.stream_send(asked.stream, now).is_ok() {
                rest = later;
            }
            edge.step(Duration::from_millis(5)).await.expect("connected");
            asked.read(edge);
        }
    };
    tokio::time::timeout(PATIENCE, sending).await.expect("the body is taken");
    asked.whole(edge).await
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn pod_reads_and_writes_with_its_own_rights() {
    let lab = Lab::open().await;
    let (_, mut edge) = lab.edge("n").await;
    let (_, token) = lab.pod(&mut edge, "p").await;
    let (code, list) = ask(&mut edge, get(PODS, &token)).await;
    assert_eq!((code, names(&list)), (200, vec!["p"]));
    let map = json!({"metadata": {"name": "c"}, "data": {"k": "x".repeat(200_000)}}).to_string();
    let (code, made) = ask_with(&mut edge, post(MAPS, &token), map.as_bytes()).await;
    assert_eq!((code, &made["metadata"]["name"]), (201, &json!("c")), "{made}");
    let (code, refused) = ask(&mut edge, get("/api/v1/namespaces/kube-system/pods", &token)).await;
    assert_eq!((code, &refused["kind"]), (403, &json!("Status")));
    let who = "User \"system:serviceaccount:default:default\" cannot list";
    assert!(refused["message"].as_str().unwrap().contains(who), "{refused}");
    let (code, _) = ask(&mut edge, get("/api/v1/namespaces/default/pods/p/exec?command=sh", &token)).await;
    assert_eq!(code, 501);
    assert_eq!(ask(&mut edge, get("/version", &token)).await.0, 200);
}

#[tokio::test]
async fn body_over_the_limit_is_refused() {
    let lab = Lab::open().await;
    let (_, mut edge) = lab.edge("n").await;
    let (_, token) = lab.pod(&mut edge, "p").await;
    let body = vec![b' '; MAX_API_BODY + 1];
    assert_eq!(ask_with(&mut edge, post(MAPS, &token), &body).await.0, 413);
    assert_eq!(ask(&mut edge, get(PODS, &token)).await.0, 200, "the connection goes on");
}

#[tokio::test]
async fn l1_no_request_is_made_with_other_rights() {
    let lab = Lab::open().await;
    let (_, mut edge) = lab.edge("n").await;
    let (_, mut other) = lab.edge("m").await;
    let (_, own) = lab.pod(&mut edge, "p").await;
    let (_, theirs) = lab.pod(&mut other, "q").await;
    let account = lab.create(ACCOUNT, &json!({"spec": {}})).await;
    let unbound = account["status"]["token"].as_str().unwrap();
    let mut forged = own.clone();
    let at = forged.len() - 5;
    let changed = if forged[at..=at] == *"A" { "B" } else { "A" };
    forged.replace_range(at..=at, changed);
    let node = json!({"kubernetes.io": {"namespace": "default"}, "sub": "system:node:n"}).to_string();
    let node = format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(node));
    for (what, token, wanted) in [
        ("none", "", 401),
        ("garbage", "garbage", 403),
        ("another node's pod", theirs.as_str(), 403),
        ("an account without a pod", unbound, 403),
        ("a node's name", node.as_str(), 403),
        ("a forged signature", forged.as_str(), 401),
        ("its own", own.as_str(), 200),
    ] {
        let (code, answer) = ask(&mut edge, get(PODS, token)).await;
        assert_eq!(code, wanted, "{what}: {answer}");
        if wanted != 200 {
            assert_eq!((&answer["kind"], &answer["code"]), (&json!("Status"), &json!(wanted)), "{what}");
        }
    }
    assert_eq!(ask(&mut other, get(PODS, &theirs)).await.0, 200);

    // A pod that is deleted, and another one of its name.
    force_delete(&lab.cluster.pods(), "p").await;
    edge.until("the end of the pod", |edge| edge.object("Pod", "default", "p").is_none()).await;
    assert_eq!(ask(&mut edge, get(PODS, &own)).await.0, 403);
    let (_, newer) = lab.pod(&mut edge, "p").await;
    assert_eq!(ask(&mut edge, get(PODS, &own)).await.0, 403);
    assert_eq!(ask(&mut edge, get(PODS, &newer)).await.0, 200);
}

#[tokio::test]
async fn watch_is_a_long_answer_and_ends_with_its_pod() {
    let lab = Lab::open().await;
    let (identity, mut edge) = lab.edge("n").await;
    let (_, token) = lab.pod(&mut edge, "p").await;
    let path = format!("{MAPS}?watch=true");
    let mut watch = Asked::new(&mut edge, get(&path, &token));
    watch.until(&mut edge, "the head", |watch| watch.status.is_some()).await;
    lab.cluster.create_map("first", "x").await;
    let has =
        |watch: &Asked, name: &str| String::from_utf8_lossy(&watch.body).contains(&format!("\"name\":\"{name}\""));
    watch.until(&mut edge, "an event", |watch| has(watch, "first")).await;
    lab.cluster.create_map("second", "x").await;
    watch.until(&mut edge, "another event", |watch| has(watch, "second")).await;
    assert_eq!((watch.status, &watch.end), (Some(200), &None));

    // A pod has eight at a time; one that ends makes room.
    for _ in 1..8 {
        let mut more = Asked::new(&mut edge, get(&path, &token));
        more.until(&mut edge, "the head", |watch| watch.status.is_some()).await;
        assert_eq!(more.status, Some(200));
    }
    assert_eq!(ask(&mut edge, get(PODS, &token)).await.0, 429);
    let (_, second) = lab.pod(&mut edge, "q").await;
    assert_eq!(ask(&mut edge, get(PODS, &second)).await.0, 200, "another pod has its own");
    edge.session.stream_end(watch.stream, None);
    edge.linger(Duration::from_millis(200)).await;
    assert_eq!(ask(&mut edge, get(PODS, &token)).await.0, 200);

    // The requests of a connection end with it.
    drop(edge);
    let mut edge = Edge::connect_with_api(lab.bridge.address, &identity, Store::default()).await;
    edge.until("the list", |edge| edge.synced).await;
    for _ in 0..8 {
        assert_eq!(ask(&mut edge, get(PODS, &token)).await.0, 200);
    }
}

#[tokio::test]
async fn l3_watch_of_a_deleted_pod_ends() {
    let lab = Lab::open().await;
    let (_, mut edge) = lab.edge("n").await;
    let (_, token) = lab.pod(&mut edge, "p").await;
    let (_, second) = lab.pod(&mut edge, "q").await;
    let path = format!("{MAPS}?watch=true");
    let mut watches = Vec::new();
    for bearer in [&token, &second] {
        let mut watch = Asked::new(&mut edge, get(&path, bearer));
        watch.until(&mut edge, "the head", |watch| watch.status.is_some()).await;
        watches.push(watch.stream);
    }
    force_delete(&lab.cluster.pods(), "p").await;
    edge.until("the end of the watch", |edge| edge.closed.contains(&watches[0])).await;
    assert!(!edge.closed.contains(&watches[1]), "another pod's goes on");
}

#[tokio::test]
async fn answer_that_is_not_read_holds_its_credit_only() {
    let lab = Lab::open().await;
    let (_, mut edge) = lab.edge("n").await;
    let (_, token) = lab.pod(&mut edge, "p").await;
    // Not to be compressed: what is sent is what counts.
    let value: String = (0..900_000_u64).map(|n| char::from(b'a' + (n * n % 7919 % 26).to_le_bytes()[0])).collect();
    lab.cluster.create_map("large", &value).await;
    let mut large = Asked::new(&mut edge, get(&format!("{MAPS}/large"), &token));
    edge.linger(Duration::from_millis(500)).await;
    let came: usize = edge.data.iter().map(|(_, data)| data.len()).sum();
    assert!(came as u64 <= INITIAL_CREDIT && came > 0, "{came}");
    let unread = std::mem::take(&mut edge.data);
    assert_eq!(ask(&mut edge, get(PODS, &token)).await.0, 200, "others go on");
    edge.data = unread;
    large.until(&mut edge, "the whole answer", |large| large.end.is_some()).await;
    let object: Value = serde_json::from_slice(&large.body).unwrap();
    assert_eq!(object["data"]["key"].as_str(), Some(value.as_str()));
}

#[tokio::test]
async fn bridge_without_an_api_for_pods_says_so() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let identity = bridge.join(&cluster, "n").await;
    let mut edge = Edge::connect_with_api(bridge.address, &identity, Store::default()).await;
    edge.until("the welcome", |edge| edge.session.is_welcome()).await;
    assert_eq!(ask(&mut edge, get(PODS, "x")).await.0, 503);
}
