//! The node lifecycle on the embedded API: taints follow from the state of nodes, and taints evict pods.

use std::time::Duration;

use apimachinery::user::UserInfo;
use apiserver::{Config, Server};
use controller_manager::node_lifecycle::{self, MaskSizes, NodeIpam, Settings};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Timeout for a busy machine; the condition is usually met in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

struct Site {
    client: Client,
    nodes: Api<Node>,
    pods: Api<Pod>,
    _folder: tempfile::TempDir,
}

impl Site {
    async fn new(settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::open(Config::new(folder.path().join("api.db"))).expect("a server");
        let client = Client::new(server.service(UserInfo::master("test")), "default");
        tokio::spawn(node_lifecycle::run(client.clone(), "bridged", settings));
        let site = Self {
            nodes: Api::all(client.clone()),
            pods: Api::namespaced(client.clone(), "default"),
            client,
            _folder: folder,
        };
        for name in ["n1", "n2"] {
            let node = json!({"metadata": {"name": name, "labels": {"bridged": "true"}}});
            let node: Node = serde_json::from_value(node).expect("a node");
            site.nodes.create(&PostParams::default(), &node).await.expect("created");
            site.ready(name, "True").await;
        }
        site
    }

    async fn ready(&self, node: &str, status: &str) {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        self.nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(&status)).await.expect("told");
    }

    async fn spec(&self, node: &str, spec: Value) {
        let patch = json!({ "spec": spec });
        self.nodes.patch(node, &PatchParams::default(), &Patch::Strategic(&patch)).await.expect("changed");
    }

    async fn pod(&self, name: &str, node: &str, tolerations: Value) {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "tolerations": tolerations,
            "containers": [{"name": "a", "image": "x"}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("created");
    }

    async fn tainted(&self, node: &str, wanted: &[&str]) {
        let mut seen = Vec::new();
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let spec = self.nodes.get(node).await.expect("the node").spec.unwrap_or_default();
                let taints = spec.taints.unwrap_or_default();
                seen = taints.iter().map(|one| format!("{}:{}", one.key, one.effect)).collect();
                if seen == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(waited.await.is_ok(), "{node} has {seen:?}, not {wanted:?}");
    }

    async fn leaves(&self, name: &str) -> Pod {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let pod = self.pods.get(name).await.expect("the pod");
                if pod.metadata.deletion_timestamp.is_some() {
                    return pod;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("pod {name} stays"))
    }

    async fn stays(&self, name: &str) -> bool {
        self.pods.get(name).await.expect("the pod").metadata.deletion_timestamp.is_none()
    }
}

#[tokio::test]
async fn taints_follow_a_node_and_silence_evicts_nobody() {
    let site = Site::new(Settings::default()).await;
    site.pod("p", "n1", json!([])).await;
    site.spec("n1", json!({"unschedulable": true})).await;
    site.tainted("n1", &["node.kubernetes.io/unschedulable:NoSchedule"]).await;
    site.spec("n1", json!({"unschedulable": false})).await;
    site.tainted("n1", &[]).await;
    site.ready("n1", "Unknown").await;
    let silent = ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];
    site.tainted("n1", &silent).await;
    // If no node is ready, the cause is not the nodes.
    site.ready("n2", "False").await;
    site.tainted("n1", &silent[..1]).await;
    site.tainted("n2", &["node.kubernetes.io/not-ready:NoSchedule"]).await;
    site.ready("n2", "True").await;
    site.tainted("n1", &silent).await;
    site.tainted("n2", &[]).await;
    assert!(site.stays("p").await);
    site.ready("n1", "True").await;
    site.tainted("n1", &[]).await;
}

#[tokio::test]
async fn manual_taint_evicts_pods_and_so_does_silence_where_enabled() {
    let site = Site::new(Settings { evicts: true, ..Settings::default() }).await;
    site.pod("p", "n1", json!([])).await;
    site.pod("tolerant", "n1", json!([{"operator": "Exists"}])).await;
    site.pod("later", "n1", json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]))
        .await;
    site.pod(
        "away",
        "n2",
        json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 0}]),
    )
    .await;
    site.spec("n1", json!({"taints": [{"key": "k", "effect": "NoExecute"}]})).await;
    let pod = site.leaves("p").await;
    let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").expect("why it goes");
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("True", Some("DeletionByTaintManager")));
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(30), "never by force");
    site.leaves("later").await;
    assert!(site.stays("tolerant").await && site.stays("away").await);
    // A new pod on the node is evicted too.
    site.pod("new", "n1", json!([])).await;
    site.leaves("new").await;
    site.ready("n2", "Unknown").await;
    site.leaves("away").await;
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let list = events.list(&Default::default()).await.expect("events");
            let of = |event: &&Event| event.reason.as_deref() == Some("TaintManagerEviction");
            if let Some(told) = list.iter().filter(of).find(|one| one.involved_object.name.as_deref() == Some("p")) {
                return told.message.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert_eq!(told.await.expect("an event").as_deref(), Some("Marking for deletion Pod default/p"));
}

#[tokio::test]
async fn nodes_get_subnets_where_a_range_is_given() {
    let ipam = NodeIpam::new("10.0.0.0/23,fd00::/63", MaskSizes::default(), Some("10.96.0.0/16")).expect("ranges");
    let site = Site::new(Settings { ipam: Some(ipam), ..Settings::default() }).await;
    let subnets = async |name: &str| {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let spec = site.nodes.get(name).await.expect("the node").spec.unwrap_or_default();
                if let Some(cidrs) = spec.pod_cidrs.filter(|cidrs| !cidrs.is_empty()) {
                    assert_eq!(spec.pod_cidr.as_ref(), cidrs.first());
                    return cidrs;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{name} has none"))
    };
    let mut both = [subnets("n1").await, subnets("n2").await];
    both.sort();
    assert_eq!(both, [["10.0.0.0/24", "fd00::/64"], ["10.0.1.0/24", "fd00:0:0:1::/64"]]);
    // The range is used up: that is reported, and the next node gets the range of a deleted one.
    let third: Node = serde_json::from_value(json!({"metadata": {"name": "n3"}})).expect("a node");
    site.nodes.create(&PostParams::default(), &third).await.expect("created");
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let list = events.list(&Default::default()).await.expect("events");
            if list.iter().any(|event| event.reason.as_deref() == Some("CIDRNotAvailable")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    told.await.expect("an event");
    let freed = subnets("n1").await;
    site.nodes.delete("n1", &Default::default()).await.expect("deleted");
    assert_eq!(subnets("n3").await, freed);
}
