//! CSI: the CSINode that a node reports, and what it gets for the volumes of its pods.

use std::sync::{Arc, Mutex};

use apimachinery::user::{UserInfo, account_groups, account_name};
use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::Report;
use http::{Method, Request};
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::client::Body;
use serde_json::{Value, json};

use crate::support::fixture::{Cluster, TestBridge, eventually, force_delete, node_object, unique};
use crate::support::{Edge, Identity, Store};

const STORAGE: &str = "/apis/storage.k8s.io/v1";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const RIGHTS: &str = include_str!("../../../deploy/bridge/rbac.yaml");

async fn send(client: &kube::Client, method: Method, path: &str, body: Value) -> kube::Result<Value> {
    let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.request(Request::builder().method(method).uri(path).header("content-type", media).body(bytes).unwrap()).await
}

/// A bound claim of a volume of a CSI driver, whose Secret is in another namespace.
struct Volume {
    driver: String,
    name: String,
    claim: String,
    secret: String,
}

impl Volume {
    async fn create(client: &kube::Client, attach: bool) -> Self {
        let driver = format!("{}.example.com", unique("driver"));
        let volume = Self { driver, name: unique("pv"), claim: unique("claim"), secret: unique("stage") };
        let Self { driver, name, claim, secret } = &volume;
        let create = |list: &str, object: Value| {
            let list = list.to_owned();
            async move { send(client, Method::POST, &list, object).await.unwrap() }
        };
        let object = json!({"metadata": {"name": driver}, "spec": {"attachRequired": attach}});
        create(&format!("{STORAGE}/csidrivers"), object).await;
        create("/api/v1/namespaces/kube-system/secrets", json!({"metadata": {"name": secret}})).await;
        let csi = json!({"driver": driver, "volumeHandle": "vol-1",
            "nodeStageSecretRef": {"namespace": "kube-system", "name": secret}});
        let common = json!({"accessModes": ["ReadWriteMany"], "storageClassName": ""});
        let mut spec = common.clone();
        spec["csi"] = csi;
        spec["capacity"] = json!({"storage": "1Gi"});
        spec["claimRef"] = json!({"namespace": "default", "name": claim});
        create("/api/v1/persistentvolumes", json!({"metadata": {"name": name}, "spec": spec})).await;
        let mut spec = common;
        spec["volumeName"] = json!(name);
        spec["resources"] = json!({"requests": {"storage": "1Gi"}});
        create(CLAIMS, json!({"metadata": {"name": claim}, "spec": spec})).await;
        let bound = json!({"status": {"phase": "Bound"}});
        send(client, Method::PATCH, &format!("{CLAIMS}/{claim}/status"), bound).await.unwrap();
        volume
    }

    /// The name that Kubernetes gives the attachment to a node.
    fn attachment(&self, node: &str) -> String {
        let text = format!("vol-1{}{node}", self.driver);
        let hash = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        format!("csi-{}", hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    async fn attach(&self, client: &kube::Client, node: &str) {
        let (all, name) = (format!("{STORAGE}/volumeattachments"), self.attachment(node));
        let spec = json!({"attacher": self.driver, "nodeName": node, "source": {"persistentVolumeName": self.name}});
        send(client, Method::POST, &all, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
        let status = json!({"status": {"attached": true, "attachmentMetadata": {"device": node}}});
        send(client, Method::PATCH, &format!("{all}/{name}/status"), status).await.unwrap();
        self.list(client, node, true).await;
    }

    /// Does what the attach-detach controller does after an attachment and before a detachment.
    async fn list(&self, client: &kube::Client, node: &str, attached: bool) {
        let volume = json!({"name": self.unique_name(), "devicePath": ""});
        let volumes = if attached { json!([volume]) } else { json!([]) };
        let status = json!({"status": {"volumesAttached": volumes}});
        send(client, Method::PATCH, &format!("/api/v1/nodes/{node}/status"), status).await.unwrap();
    }

    /// Its name in the status of a Node.
    fn unique_name(&self) -> String {
        format!("kubernetes.io/csi/{}^vol-1", self.driver)
    }

    /// The node reports that it uses the volume, or no volume.
    async fn report(&self, edge: &mut Edge, node: &str, used: bool) {
        let mut object = node_object(node);
        object["status"]["volumesInUse"] = if used { json!([self.unique_name()]) } else { json!([]) };
        edge.report_and_wait(Report::Node { node: object }).await.unwrap();
    }

    fn pod(&self) -> Value {
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": self.claim}}]})
    }

    /// The claim that a node holds.
    fn held<'a>(&self, edge: &'a Edge) -> Option<&'a Value> {
        edge.object("PersistentVolumeClaim", "default", &self.claim).map(|claim| &claim.body)
    }

    async fn delete(&self, client: &kube::Client) {
        for path in [
            format!("{CLAIMS}/{}", self.claim),
            format!("/api/v1/persistentvolumes/{}", self.name),
            format!("/api/v1/namespaces/kube-system/secrets/{}", self.secret),
            format!("{STORAGE}/csidrivers/{}", self.driver),
        ] {
            drop(send(client, Method::DELETE, &path, Value::Null).await);
        }
    }
}

/// Joins as a node with CSI, registers and waits for the first list.
async fn edge(bridge: &TestBridge, cluster: &Cluster, node: &str) -> Edge {
    connect(bridge, &bridge.join(cluster, node).await).await
}

async fn connect(bridge: &TestBridge, identity: &Identity) -> Edge {
    let mut edge = Edge::connect_with_csi(bridge.address, identity, Store::default()).await;
    edge.report_and_wait(Report::Node { node: node_object(&identity.node) }).await.unwrap();
    edge.until("the first list", |edge| edge.synced).await;
    edge
}

/// The embedded API with an account that has the bridge's own rights alone; a real one as it is.
async fn cluster() -> Cluster {
    if std::env::var_os("TEST_KUBECONFIG").is_some() {
        return Cluster::open().await;
    }
    let (namespace, account) = ("sampan-system", "cloud-bridge");
    let cluster = Cluster::open_as(UserInfo::new(&account_name(namespace, account), account_groups(namespace)));
    for (kind, list) in [("ClusterRole", "clusterroles"), ("ClusterRoleBinding", "clusterrolebindings")] {
        let line = format!("kind: {kind}");
        let text = RIGHTS.split("\n---\n").find(|text| text.lines().any(|found| found == line)).unwrap();
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{list}/cloud-bridge?fieldManager=test&force=true");
        let request = Request::patch(path).header("content-type", "application/apply-patch+yaml");
        let _: Value = cluster.client.request(request.body(text.as_bytes().to_vec()).unwrap()).await.unwrap();
    }
    cluster
}

#[tokio::test]
async fn drivers_of_a_node_are_in_its_csi_node() {
    let cluster = cluster().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("csi");
    let identity = bridge.join(&cluster, &node).await;
    let mut edge = connect(&bridge, &identity).await;
    let path = format!("{STORAGE}/csinodes/{node}");
    let csi_node = || send(&cluster.client, Method::GET, &path, Value::Null);
    let driver = |name: &str, id: &str| {
        let labels = json!({format!("{name}/site"): "hall"});
        json!({"name": name, "nodeID": id, "labels": labels, "allocatable": {"count": 8}})
    };
    let evil = json!({"name": "evil.example.com", "nodeID": "x",
        "labels": {"node-restriction.kubernetes.io/zone": "vault"}});
    let report = |drivers: Value| Report::CsiNode { drivers };
    edge.report_and_wait(report(json!([driver("a.example.com", "1"), evil]))).await.unwrap();
    let written = csi_node().await.unwrap();
    let object = cluster.nodes().get(&node).await.unwrap();
    assert_eq!(written["metadata"]["ownerReferences"][0]["uid"], json!(object.uid()));
    let a = json!({"name": "a.example.com", "nodeID": "1", "topologyKeys": ["a.example.com/site"],
        "allocatable": {"count": 8}});
    assert_eq!(written["spec"]["drivers"], json!([a]));
    assert_eq!(object.labels().get("a.example.com/site").map(String::as_str), Some("hall"));
    assert!(!object.labels().contains_key("node-restriction.kubernetes.io/zone"));
    let ids = json!({"a.example.com": "1"}).to_string();
    assert_eq!(object.annotations().get("csi.volume.kubernetes.io/nodeid"), Some(&ids));

    // An id that has changed, and one more driver.
    edge.report_and_wait(report(json!([driver("a.example.com", "2"), driver("b.example.com", "1")]))).await.unwrap();
    let drivers = csi_node().await.unwrap()["spec"]["drivers"].clone();
    let ids: Vec<_> = drivers.as_array().unwrap().iter().map(|driver| &driver["nodeID"]).collect();
    assert_eq!(ids, ["2", "1"]);
    let managed = "volumes.kubernetes.io/controller-managed-attach-detach";
    assert_eq!(object.annotations().get(managed).map(String::as_str), Some("true"));
    // The Node's own report takes nothing of it away.
    edge.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
    assert!(cluster.nodes().get(&node).await.unwrap().labels().contains_key("b.example.com/site"));

    edge.report_and_wait(report(json!([]))).await.unwrap();
    assert!(matches!(csi_node().await, Err(kube::Error::Api(status)) if status.is_not_found()));
    let object = cluster.nodes().get(&node).await.unwrap();
    assert_eq!(object.annotations().get("csi.volume.kubernetes.io/nodeid"), None);
    edge.report_and_wait(report(json!([]))).await.expect("a repetition is harmless");
    for odd in [json!(1), json!("x"), Value::Null, json!([1]), vec![driver("d", "1"); 33].into()] {
        edge.report_and_wait(report(odd)).await.unwrap_err();
    }
    // A driver of any shape is left out alone.
    for odd in [json!(1), json!([]), json!("x"), Value::Null, json!([{}]), json!({"count": [1, null]})] {
        let driver_of_odd = json!({"name": odd, "nodeID": odd, "labels": odd, "allocatable": odd});
        let odd_parts = json!({"name": "c.example.com", "nodeID": "3", "labels": {"c/x": odd}, "allocatable": odd});
        edge.report_and_wait(report(json!([driver_of_odd, driver("a.example.com", "1"), odd_parts]))).await.unwrap();
        let names = csi_node().await.unwrap()["spec"]["drivers"].clone();
        assert_eq!(names[0]["name"], "a.example.com", "{odd}: {names}");
    }

    // It is switched off, which the node's hello says.
    edge.report_and_wait(report(json!([driver("a.example.com", "1")]))).await.unwrap();
    drop(edge);
    let mut edge = bridge.connect(&identity, Store::default()).await;
    edge.report_and_wait(report(json!([driver("a.example.com", "1")]))).await.unwrap_err();
    edge.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
    assert!(csi_node().await.is_err());
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn claim_comes_with_its_attachment_driver_and_secret() {
    let cluster = cluster().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, plain, evil) = (unique("csi"), unique("plain"), unique("evil"));
    let volume = Volume::create(&cluster.client, true).await;
    let mut edge_with_csi = edge(&bridge, &cluster, &node).await;
    let (_, mut without) = bridge.edge(&cluster, &plain).await;
    let mut hostile = edge(&bridge, &cluster, &evil).await;
    let pods = [(unique("pod"), &node), (unique("pod"), &plain)];
    for (pod, node) in &pods {
        cluster.create_pod(pod, node, volume.pod()).await;
    }
    edge_with_csi.until("the pod", |edge| edge.object("Pod", "default", &pods[0].0).is_some()).await;
    let claim = volume.held(&edge_with_csi).unwrap();
    assert_eq!(claim["volume"]["spec"]["csi"]["volumeHandle"], "vol-1");
    assert_eq!(claim.get("attachment"), None);
    let driver = edge_with_csi.object("CSIDriver", "", &volume.driver).unwrap();
    assert_eq!(driver.body["spec"]["attachRequired"], true);
    assert!(edge_with_csi.object("Secret", "kube-system", &volume.secret).is_some());

    volume.attach(&cluster.client, &evil).await;
    volume.attach(&cluster.client, &node).await;
    volume.report(&mut hostile, &evil, true).await;
    edge_with_csi.linger(std::time::Duration::from_millis(300)).await;
    assert_eq!(volume.held(&edge_with_csi).unwrap().get("attachment"), None, "it has not said that it uses the volume");
    volume.report(&mut edge_with_csi, &node, true).await;
    let wanted = json!({"attached": true, "attachmentMetadata": {"device": node}});
    let is_attached = |edge: &Edge| volume.held(edge).is_some_and(|claim| claim["attachment"] == wanted);
    let is_detached = |edge: &Edge| volume.held(edge).is_some_and(|claim| claim.get("attachment").is_none());
    edge_with_csi.until("its own attachment", is_attached).await;
    volume.list(&cluster.client, &node, false).await;
    edge_with_csi.until("the controller to begin to detach it", is_detached).await;
    volume.list(&cluster.client, &node, true).await;
    edge_with_csi.until("the controller to see that it is used", is_attached).await;
    volume.report(&mut edge_with_csi, &node, false).await;
    edge_with_csi.until("the end of its own use", is_detached).await;
    volume.report(&mut edge_with_csi, &node, true).await;
    edge_with_csi.until("its next use", is_attached).await;
    without.until("the pod", |edge| edge.object("Pod", "default", &pods[1].0).is_some()).await;
    assert_eq!(volume.held(&without).unwrap().get("attachment"), None, "a node without CSI");
    assert!(without.object("CSIDriver", "", &volume.driver).is_none());
    assert!(without.object("Secret", "kube-system", &volume.secret).is_none());

    // A node gets nothing of a volume that none of its pods has, from the bridge or from the API.
    hostile.linger(std::time::Duration::from_millis(300)).await;
    assert_eq!(hostile.held(), 0);
    let as_evil = cluster.clients.as_node(&evil);
    for path in [
        format!("/api/v1/namespaces/kube-system/secrets/{}", volume.secret),
        format!("{STORAGE}/volumeattachments/{}", volume.attachment(&node)),
        format!("{STORAGE}/volumeattachments"),
        format!("{STORAGE}/csinodes/{node}"),
    ] {
        let answer = send(&as_evil, Method::GET, &path, Value::Null).await;
        assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{path}: {answer:?}");
    }

    let path = format!("{STORAGE}/volumeattachments/{}", volume.attachment(&node));
    send(&cluster.client, Method::DELETE, &path, Value::Null).await.unwrap();
    edge_with_csi.until("its end", is_detached).await;
    for (pod, _) in &pods {
        force_delete(&cluster.pods(), pod).await;
    }
    edge_with_csi.until("the end of all", |edge| edge.held() == 0).await;
    let path = format!("{STORAGE}/volumeattachments/{}", volume.attachment(&evil));
    drop(send(&cluster.client, Method::DELETE, &path, Value::Null).await);
    volume.delete(&cluster.client).await;
}

/// A client that notes the paths of its requests.
fn noting(client: kube::Client, paths: Arc<Mutex<Vec<String>>>) -> kube::Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, path) = (client.clone(), request.uri().path().to_owned());
        paths.lock().unwrap().push(path);
        async move { client.send(request).await }
    });
    kube::Client::new(service, "default")
}

#[tokio::test]
async fn nodes_without_csi_cost_no_request() {
    let cluster = Cluster::open().await;
    let paths = Arc::new(Mutex::new(Vec::new()));
    let (clients, noted) = (cluster.clients.clone(), Arc::clone(&paths));
    let clients = Clients::new(noting(clients.own().clone(), Arc::clone(&paths)), move |node| {
        noting(clients.as_node(node), Arc::clone(&noted))
    });
    let authority = Authority::create("test").unwrap();
    let bridge = TestBridge::over(clients, &cluster.client, authority, Settings::default()).await;
    let asked = |part: &str| paths.lock().unwrap().iter().any(|path| path.contains(part));
    let (node, other, pod) = (unique("off"), unique("on"), unique("pod"));
    // A driver that attaches nothing, and one that does.
    let (mounted, attached) =
        (Volume::create(&cluster.client, false).await, Volume::create(&cluster.client, true).await);
    let (_, mut edge_without) = bridge.edge(&cluster, &node).await;
    cluster.create_pod(&pod, &node, mounted.pod()).await;
    edge_without.until("the pod", |edge| edge.object("Pod", "default", &pod).is_some()).await;
    assert!(mounted.held(&edge_without).is_some() && asked("persistentvolumes"));
    assert!(!asked("storage.k8s.io"), "{:?}", paths.lock().unwrap());

    let mut edge_with_csi = edge(&bridge, &cluster, &other).await;
    let pods = [unique("pod"), unique("pod")];
    cluster.create_pod(&pods[0], &other, mounted.pod()).await;
    edge_with_csi.until("its driver", |edge| edge.object("CSIDriver", "", &mounted.driver).is_some()).await;
    edge_with_csi.until("the pod", |edge| edge.object("Pod", "default", &pods[0]).is_some()).await;
    assert!(!asked("volumeattachments"), "the driver says that nothing is attached");
    cluster.create_pod(&pods[1], &other, attached.pod()).await;
    edge_with_csi.until("the pod", |edge| edge.object("Pod", "default", &pods[1]).is_some()).await;
    eventually("the watch", || async { asked("volumeattachments") }).await;
    for pod in [&pod, &pods[0], &pods[1]] {
        force_delete(&cluster.pods(), pod).await;
    }
    mounted.delete(&cluster.client).await;
    attached.delete(&cluster.client).await;
}
