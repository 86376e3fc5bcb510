//! Attachments of CSI volumes on the embedded API: made for scheduled pods, and deleted when their node is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use apimachinery::digest::sha256_hex;
use apimachinery::user::UserInfo;
use apiserver::{Config, Server};
use controller_manager::attach_detach;
use controller_manager::pods::Pods;
use http::{Method, Request};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};

/// Timeout for a busy machine; conditions are usually met in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);
const DRIVER: &str = "disks.example.com";
const UNIQUE: &str = "kubernetes.io/csi/disks.example.com^h";

struct Site {
    client: Client,
    nodes: Api<Node>,
    pods: Api<Pod>,
    attachments: Api<VolumeAttachment>,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Site {
    /// An API with the controller, and the nodes `n` and `m`.
    async fn open() -> Self {
        Self::open_over(|client| client).await
    }

    /// Same as [`open`](Self::open), with another client for the controller.
    async fn open_over(controller: impl FnOnce(Client) -> Client) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::open(Config::new(folder.path().join("api.db"))).expect("a server");
        let client = Client::new(server.service(UserInfo::master("test")), "default");
        let own = controller(client.clone());
        tokio::spawn(attach_detach::run(own.clone(), Pods::start(&own)));
        let site = Self {
            nodes: Api::all(client.clone()),
            pods: Api::namespaced(client.clone(), "default"),
            attachments: Api::all(client.clone()),
            client,
            _server: server,
            _folder: folder,
        };
        for name in ["n", "m"] {
            let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
            site.nodes.create(&PostParams::default(), &node).await.expect("created");
        }
        site
    }

    /// A bound claim `data` with a volume of the driver.
    async fn volume(&self) {
        let claim = json!({"metadata": {"name": "data"}, "spec": {"volumeName": "pv", "storageClassName": "",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), "default");
        claims.create(&PostParams::default(), &claim).await.expect("created");
        let volume = json!({"metadata": {"name": "pv"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}, "csi": {"driver": DRIVER, "volumeHandle": "h"}}});
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        volumes.create(&PostParams::default(), &volume).await.expect("created");
        until("the claim is bound", async || {
            let claim = claims.get("data").await.expect("the claim");
            claim.status.and_then(|status| status.phase).as_deref() == Some("Bound")
        })
        .await;
    }

    async fn pod(&self, name: &str, node: &str) {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node,
            "containers": [{"name": "a", "image": "x"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("created");
    }

    async fn delete(&self, pod: &str) {
        self.pods.delete(pod, &DeleteParams::default().grace_period(0)).await.expect("deleted");
    }

    /// What a node reports.
    async fn in_use(&self, node: &str, names: &[&str]) {
        let status = json!({"status": {"volumesInUse": names}});
        self.nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await.expect("told");
    }

    async fn attached_to(&self, node: &str) -> Vec<String> {
        let status = self.nodes.get(node).await.expect("the node").status.unwrap_or_default();
        status.volumes_attached.into_iter().flatten().map(|one| one.name).collect()
    }

    async fn has_attachment(&self, node: &str) -> bool {
        self.attachments.get_opt(&attachment(node)).await.expect("an answer").is_some()
    }

    /// What the driver reports.
    async fn status(&self, node: &str, status: Value) {
        let patch = json!({ "status": status });
        let name = attachment(node);
        self.attachments.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("told");
    }

    async fn has_event(&self, pod: &str, reason: &str, part: &str) -> bool {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let list = events.list(&ListParams::default()).await.expect("events");
        list.iter().any(|event| {
            event.involved_object.name.as_deref() == Some(pod)
                && event.reason.as_deref() == Some(reason)
                && event.message.as_deref().is_some_and(|message| message.contains(part))
        })
    }
}

/// A client that gets no answer about single attachments while `lost`, and counts requests to create one.
fn losing(client: Client, lost: Arc<AtomicBool>, requested: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let creates = request.method() == Method::POST && request.uri().path().ends_with("/volumeattachments");
        if creates {
            requested.fetch_add(1, Ordering::Relaxed);
        }
        let is_lost = lost.load(Ordering::Relaxed) && (creates || request.uri().path().contains("/volumeattachments/"));
        let client = client.clone();
        async move {
            if is_lost {
                return Err(kube::Error::Service("no answer".into()));
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

fn attachment(node: &str) -> String {
    format!("csi-{}", sha256_hex(&format!("h{DRIVER}{node}")))
}

async fn until(what: &str, met: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not within {} s: {what}", PATIENCE.as_secs()));
}

#[tokio::test]
async fn volume_follows_its_pod_from_node_to_node() {
    let site = Site::open().await;
    site.volume().await;
    site.pod("first", "n").await;
    until("an attachment is made", async || site.has_attachment("n").await).await;
    let made = site.attachments.get(&attachment("n")).await.expect("the attachment");
    assert_eq!((made.spec.attacher.as_str(), made.spec.node_name.as_str()), (DRIVER, "n"));
    assert_eq!(made.spec.source.persistent_volume_name.as_deref(), Some("pv"));
    assert!(site.attached_to("n").await.is_empty(), "the driver has not attached it");

    site.status("n", json!({"attachError": {"message": "no such disk"}})).await;
    let failed = "AttachVolume.Attach failed for volume \"pv\" : no such disk";
    until("the pod hears why", async || site.has_event("first", "FailedAttachVolume", failed).await).await;
    site.status("n", json!({"attached": true, "attachError": null})).await;
    until("the node hears of it", async || site.attached_to("n").await == [UNIQUE]).await;
    let attached = "AttachVolume.Attach succeeded for volume \"pv\"";
    until("the pod hears of it", async || site.has_event("first", "SuccessfulAttachVolume", attached).await).await;

    site.in_use("n", &[UNIQUE]).await;
    site.pod("second", "m").await;
    let used = "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) first";
    until("the other pod hears why", async || site.has_event("second", "FailedAttachVolume", used).await).await;
    site.delete("first").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(site.has_attachment("n").await && !site.has_attachment("m").await, "the node still uses it");
    assert_eq!(site.attached_to("n").await, [UNIQUE]);

    site.in_use("n", &[]).await;
    until("it is detached", async || !site.has_attachment("n").await).await;
    until("it is attached to the other node", async || site.has_attachment("m").await).await;
    assert!(site.attached_to("n").await.is_empty());
}

#[tokio::test]
async fn silent_node_keeps_its_volume_until_it_is_out_of_service() {
    let site = Site::open().await;
    site.volume().await;
    site.pod("first", "n").await;
    until("an attachment is made", async || site.has_attachment("n").await).await;
    site.status("n", json!({"attached": true})).await;
    site.in_use("n", &[UNIQUE]).await;
    let away = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    site.nodes.patch_status("n", &PatchParams::default(), &Patch::Merge(&away)).await.expect("told");
    site.delete("first").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(site.has_attachment("n").await, "it may still write");
    let off = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}});
    site.nodes.patch("n", &PatchParams::default(), &Patch::Merge(&off)).await.expect("tainted");
    until("it is detached", async || !site.has_attachment("n").await).await;
}

#[tokio::test]
async fn volume_is_not_attached_elsewhere_while_an_answer_is_missing() {
    let (lost, requested) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let site = Site::open_over(|client| losing(client, Arc::clone(&lost), Arc::clone(&requested))).await;
    site.volume().await;
    site.pod("first", "n").await;
    until("an attachment is requested", async || requested.load(Ordering::Relaxed) > 0).await;
    site.pod("second", "m").await;
    let used = "Volume is already used by pod(s) first";
    until("the other pod waits", async || site.has_event("second", "FailedAttachVolume", used).await).await;
    assert_eq!(requested.load(Ordering::Relaxed), 1, "the first one may exist");
    // It does not exist, and no pod needs it: the other node gets the volume.
    site.delete("first").await;
    lost.store(false, Ordering::Relaxed);
    until("it is attached to the other node", async || site.has_attachment("m").await).await;
    assert!(!site.has_attachment("n").await);
}

#[tokio::test]
async fn driver_without_attachments_gets_none() {
    let site = Site::open().await;
    let driver = json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": false}});
    let driver = serde_json::from_value(driver).expect("a driver");
    let drivers: Api<k8s_openapi::api::storage::v1::CSIDriver> = Api::all(site.client.clone());
    drivers.create(&PostParams::default(), &driver).await.expect("created");
    site.volume().await;
    site.pod("first", "n").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!site.has_attachment("n").await);
    drivers.delete(DRIVER, &DeleteParams::default()).await.expect("deleted");
    until("an unknown driver attaches", async || site.has_attachment("n").await).await;
}
