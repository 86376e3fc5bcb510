//! A bridge in this process, on the API of TEST_KUBECONFIG, otherwise on the embedded one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::user::UserInfo;
use apiserver::{Config, Server};
use bytes::Bytes;
use cloud_bridge::accept::Gate;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::bridge::{Bridge, Settings};
use cloud_bridge::listen::{self, ListenerContext};
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::serving::Serving;
use cloud_bridge::pki::{tls, token};
use cloud_bridge::{flags, info};
use edge_protocol::message::Report;
use futures::{StreamExt, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyDataStream, BodyExt, Full, StreamBody};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Edge, Identity, Store, join};

/// Makes an API return wrong answers for a while.
#[derive(Clone, Default)]
pub struct Saboteur(Arc<std::sync::atomic::AtomicU8>);

impl Saboteur {
    /// 0: none. 1: not JSON. 2: errors of the server. 3: everything expired. 4: empty lists. 5: half an answer.
    pub fn set(&self, kind: u8) {
        self.0.store(kind, std::sync::atomic::Ordering::SeqCst);
    }

    fn answer(&self, uri: &http::Uri) -> Option<http::Response<String>> {
        let lists = uri.path().ends_with("/pods") || uri.query().is_some_and(|query| query.contains("fieldSelector"));
        let (code, body) = match self.0.load(std::sync::atomic::Ordering::SeqCst) {
            1 => (200, "<html>welcome to the hotel's wireless network</html>".to_owned()),
            2 => (500, String::new()),
            3 => {
                let gone = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}"#;
                (410, gone.to_owned())
            }
            4 if lists => {
                (200, r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned())
            }
            5 => (200, r#"{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":"#.to_owned()),
            _ => return None,
        };
        Some(http::Response::builder().status(code).body(body).unwrap())
    }

    /// The client, with wrong answers while sabotaged. Watches under way are cut after a moment, so that they start
    /// again.
    pub fn wrap(&self, client: kube::Client) -> kube::Client {
        let saboteur = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (saboteur, client) = (saboteur.clone(), client.clone());
            async move {
                if let Some(answer) = saboteur.answer(request.uri()) {
                    let full = |text: String| Full::from(text).map_err(|never| match never {}).boxed_unsync();
                    return Ok(answer.map(full));
                }
                let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let response = client.send(request).await?;
                Ok::<http::Response<UnsyncBoxBody<Bytes, kube::Error>>, kube::Error>(response.map(|body| {
                    if !watch {
                        return body.map_err(|error| kube::Error::Service(error.into())).boxed_unsync();
                    }
                    let end = Box::pin(tokio::time::sleep(Duration::from_millis(200)));
                    let frames = BodyDataStream::new(body).take_until(end);
                    let frames = frames.map_ok(hyper::body::Frame::data).map_err(|e| kube::Error::Service(e.into()));
                    StreamBody::new(frames).boxed_unsync()
                }))
            }
        });
        kube::Client::new(service, "default")
    }
}

/// An API for tests.
pub struct Cluster {
    pub clients: Clients,
    pub client: kube::Client,
    /// Keeps an embedded API's files.
    _folder: Option<tempfile::TempDir>,
}

impl Cluster {
    pub async fn open() -> Self {
        tls::install_provider();
        if let Some(kubeconfig) = std::env::var_os("TEST_KUBECONFIG") {
            let client = flags::client(Some(kubeconfig.into())).await.unwrap();
            return Self { clients: Clients::impersonating(client.clone()), client, _folder: None };
        }
        Self::embedded(|api, client| {
            let api = api.clone();
            Clients::new(client, move |node| kube::Client::new(api.service(UserInfo::node(node)), "default"))
        })
    }

    /// The embedded API, whose bridges have the rights of this user, and act as nodes by impersonation.
    pub fn open_as(user: UserInfo) -> Self {
        tls::install_provider();
        Self::embedded(|api, _| Clients::impersonating(kube::Client::new(api.service(user), "default")))
    }

    /// The clients of bridges are created from the API and an administrator's client.
    fn embedded(clients: impl FnOnce(&Server, kube::Client) -> Clients) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cel_helper = cloud_bridge::standalone::cel_helper(env!("CARGO_BIN_EXE_cloud-bridge"));
        let config = Config { cel_helper: Some(cel_helper), ..Config::new(folder.path().join("api.db")) };
        let api = Server::open(config).unwrap();
        let client = kube::Client::new(api.service(UserInfo::master("test")), "default");
        Self { clients: clients(&api, client.clone()), client, _folder: Some(folder) }
    }

    /// An API that the test has opened.
    pub fn over(clients: Clients, client: kube::Client) -> Self {
        Self { clients, client, _folder: None }
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates a pod bound to a node.
    pub async fn create_pod(&self, name: &str, node: &str, spec: Value) -> Pod {
        let pod = json!({"metadata": {"name": name}, "spec": bound(node, spec)});
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    pub async fn create_map(&self, name: &str, value: &str) -> ConfigMap {
        let map = json!({"metadata": {"name": name}, "data": {"key": value}});
        self.maps().create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
    }
}

fn bound(node: &str, mut spec: Value) -> Value {
    spec["nodeName"] = node.into();
    spec["automountServiceAccountToken"] = false.into();
    spec["tolerations"] = json!([{"operator": "Exists"}]);
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "busybox"}]);
    }
    spec
}

/// A running bridge with its listener.
pub struct TestBridge {
    pub bridge: Bridge,
    pub address: SocketAddr,
    pub ca: CertificateDer<'static>,
    pub fingerprint: String,
    task: JoinHandle<std::convert::Infallible>,
}

/// The shared authority of two replicas.
pub fn twins() -> (Authority, Authority) {
    let one = Authority::create("twins").unwrap();
    let two = Authority::from_pem("twin", &one.certificate_pem(), &one.key_pem()).unwrap();
    (one, two)
}

impl TestBridge {
    pub async fn start(cluster: &Cluster) -> Self {
        Self::with(cluster, Authority::create("test").unwrap()).await
    }

    pub async fn with(cluster: &Cluster, authority: Authority) -> Self {
        Self::with_settings(cluster, authority, Settings::default()).await
    }

    pub async fn with_settings(cluster: &Cluster, authority: Authority, settings: Settings) -> Self {
        Self::over(cluster.clients.clone(), &cluster.client, authority, settings).await
    }

    pub async fn over(clients: Clients, client: &kube::Client, authority: Authority, settings: Settings) -> Self {
        let id = info::cluster(client).await.unwrap();
        let listener = listen::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let authority = Arc::new(authority);
        let serving = Serving::new(Arc::clone(&authority), Vec::new()).unwrap();
        let tls = tls::link_config(&authority, &serving).unwrap();
        let bridge = Bridge::start(clients, id, settings);
        let (ca, fingerprint) = (authority.certificate().clone(), authority.fingerprint());
        let context = ListenerContext::new(bridge.clone(), authority, client.clone());
        let task = tokio::spawn(listen::accept(listener, tls, Arc::new(context), Gate::new()));
        Self { bridge, address, ca, fingerprint, task }
    }

    pub async fn token(&self, cluster: &Cluster, node: &str) -> String {
        let hour = Duration::from_secs(3600);
        token::create(&cluster.client, &self.fingerprint, node, hour, Timestamp::now()).await.unwrap().text()
    }

    pub async fn join(&self, cluster: &Cluster, node: &str) -> Identity {
        let token = self.token(cluster, node).await;
        join(self.address, &self.ca, &token, node, &format!("system:node:{node}")).await.unwrap()
    }

    /// Joins, connects, registers and waits for the first list.
    pub async fn edge(&self, cluster: &Cluster, node: &str) -> (Identity, Edge) {
        let identity = self.join(cluster, node).await;
        let mut edge = self.connect(&identity, Store::default()).await;
        edge.report_and_wait(Report::Node { node: node_object(node) }).await.unwrap();
        edge.until("the first list", |edge| edge.synced).await;
        (identity, edge)
    }

    pub async fn connect(&self, identity: &Identity, store: Store) -> Edge {
        Edge::connect(self.address, identity, &identity.node, store).await.unwrap()
    }

    /// Ends it like a crash.
    pub fn kill(self) {
        self.task.abort();
    }
}

/// The object that a small node reports.
pub fn node_object(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/arch": "arm64"}},
        "status": {
            "capacity": {"cpu": "2", "memory": "1Gi", "pods": "110"},
            "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "110"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": name}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                            "lastHeartbeatTime": "1970-01-01T00:00:00Z", "lastTransitionTime": "1970-01-01T00:00:00Z"}],
            "nodeInfo": {"kubeletVersion": "v1.36.0", "architecture": "arm64", "operatingSystem": "linux",
                         "machineID": "", "systemUUID": "", "bootID": "b", "kernelVersion": "6", "osImage": "test",
                         "containerRuntimeVersion": "runc://1", "kubeProxyVersion": ""}
        }
    })
}

/// A name that no other test uses.
pub fn unique(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Deletes a pod as `kubectl delete --force` does, if it is there.
pub async fn force_delete(api: &Api<Pod>, name: &str) {
    let _ = api.delete(name, &DeleteParams::default().grace_period(0)).await;
}

/// Repeats the check until it succeeds.
pub async fn eventually<F, Fut>(what: &str, mut check: F)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    for _ in 0..400 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited too long for {what}");
}

/// The report of a pod's status.
pub fn status(pod: &Pod, status: Value) -> Report {
    Report::PodStatus { namespace: "default".into(), name: pod.name_any(), uid: pod.uid().unwrap(), status }
}

/// The report that a pod is gone.
pub fn gone(pod: &Pod) -> Report {
    Report::PodGone { namespace: "default".into(), name: pod.name_any(), uid: pod.uid().unwrap() }
}

/// The status of a pod that runs and is ready.
pub fn running() -> Value {
    json!({
        "phase": "Running", "podIP": "10.1.0.2", "podIPs": [{"ip": "10.1.0.2"}], "hostIP": "192.0.2.7",
        "hostIPs": [{"ip": "192.0.2.7"}], "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "c", "image": "busybox", "imageID": "sha256:0", "ready": true, "started": true,
            "restartCount": 0, "containerID": "runc://0", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
    })
}
