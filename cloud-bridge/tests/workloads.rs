//! The controllers of workloads on the embedded API, without nodes: what they create, and how they continue after an
//! end at any time.

#[path = "workloads/autoscaler.rs"]
mod autoscaler;
#[path = "workloads/daemon_set.rs"]
mod daemon_set;
#[path = "workloads/endpoints.rs"]
mod endpoints;
#[path = "workloads/jobs.rs"]
mod jobs;
#[path = "workloads/large.rs"]
mod large;
#[path = "workloads/scripts.rs"]
mod scripts;
#[path = "workloads/stateful_set.rs"]
mod stateful_set;

use std::time::Duration;

use apimachinery::user::UserInfo;
use apiserver::{Config, Server};
use controller_manager::pods::Pods;
use controller_manager::workloads;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// Timeout for a busy machine; conditions are usually met in milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    _folder: tempfile::TempDir,
    server: Server,
    client: Client,
}

impl Site {
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::open(Config::new(folder.path().join("api.db"))).expect("a server");
        let client = Client::new(server.service(UserInfo::master("test")), "default");
        Self { _folder: folder, server, client }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn sets(&self) -> Api<ReplicaSet> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn count(&self) -> usize {
        let pods = self.pods().list(&ListParams::default()).await.expect("a list").items;
        pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count()
    }

    /// Reports all pods as running and ready, as a node would.
    async fn run_pods(&self) {
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        for pod in self.pods().list(&ListParams::default()).await.expect("a list") {
            // It may be deleted meanwhile.
            let _ = self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await;
        }
    }
}

async fn until(what: &str, mut met: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what} did not come"));
}

fn web(replicas: i32, image: &str) -> Deployment {
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    });
    serde_json::from_value(deployment).expect("a Deployment")
}

fn complete(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let all = [status.replicas, status.updated_replicas, status.available_replicas];
    status.observed_generation == deployment.metadata.generation && all == [Some(replicas); 3]
}

#[tokio::test]
async fn a_deployment_becomes_pods_rolls_and_goes() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let deployments = site.deployments();
    deployments.create(&PostParams::default(), &web(3, "one")).await.expect("created");
    until("three pods", async || site.count().await == 3).await;
    until("a complete Deployment", async || {
        site.run_pods().await;
        complete(&deployments.get("web").await.expect("it is there"), 3)
    })
    .await;
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "two"}]}}}});
    deployments.patch("web", &PatchParams::default(), &Patch::Strategic(&image)).await.expect("patched");
    until("the roll-out", async || {
        site.run_pods().await;
        let pods = site.pods().list(&ListParams::default()).await.expect("a list").items;
        let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
        complete(&deployments.get("web").await.expect("it is there"), 3)
            && pods.len() == 3
            && pods.iter().all(|pod| image(pod).as_deref() == Some("two"))
    })
    .await;
    let sets = site.sets().list(&ListParams::default()).await.expect("a list").items;
    let mut sizes: Vec<_> = sets.iter().filter_map(|set| set.spec.as_ref()?.replicas).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 3]);
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    until("its events", async || {
        let events = events.list(&ListParams::default()).await.expect("a list").items;
        let scaled = events.iter().filter(|event| event.reason.as_deref() == Some("ScalingReplicaSet")).count();
        let made = events.iter().filter(|event| event.reason.as_deref() == Some("SuccessfulCreate")).count();
        scaled >= 5 && made == 6
    })
    .await;
    deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    until("the end of all of it", async || {
        site.count().await == 0 && site.sets().list(&ListParams::default()).await.expect("a list").items.is_empty()
    })
    .await;
    controllers.abort();
}

/// S15: after an end at any time the next start completes the work, without extra pods.
#[tokio::test]
async fn s15_controllers_that_end_at_any_time_make_no_pod_twice() {
    let site = Site::open();
    site.deployments().create(&PostParams::default(), &web(40, "one")).await.expect("created");
    for round in 0..30_u64 {
        let controllers =
            tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
        tokio::time::sleep(Duration::from_millis(5 + round * 3)).await;
        controllers.abort();
        let _ = controllers.await;
        assert!(site.count().await <= 40, "{} pods", site.count().await);
    }
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let status = async || json!(site.deployments().get("web").await.expect("it is there").status);
    until("a status with all pods", async || status().await["replicas"] == 40).await;
    assert_eq!(site.count().await, 40);
    controllers.abort();
}

/// A refusal by a quota or admission is shown in the ReplicaSet and the Deployment.
#[tokio::test]
async fn pods_that_cannot_be_made_are_told_of() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let mut deployment = web(2, "one");
    let spec = deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a spec");
    spec.service_account_name = Some("nobody".into());
    site.deployments().create(&PostParams::default(), &deployment).await.expect("created");
    until("the condition", async || {
        let status = site.deployments().get("web").await.expect("it is there").status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let failure = conditions.iter().find(|one| one.type_ == "ReplicaFailure");
        failure.is_some_and(|one| {
            one.reason.as_deref() == Some("FailedCreate")
                && one.message.as_deref().is_some_and(|text| text.contains("serviceaccount \"nobody\" not found"))
        })
    })
    .await;
    assert_eq!(site.count().await, 0);
    controllers.abort();
}

/// The only way of removing a pod at once without a long wait: the writes are the same for all.
#[tokio::test]
async fn a_deleted_pod_goes_from_a_node_that_is_out_of_service() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]);
    let node = serde_json::from_value(json!({"metadata": {"name": "off"}, "spec": {"taints": taint}})).expect("a node");
    Api::all(site.client.clone()).create(&PostParams::default(), &node as &Node).await.expect("created");
    for name in ["stays", "goes"] {
        let spec = json!({"nodeName": "off", "containers": [{"name": "web", "image": "x"}]});
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a pod");
        site.pods().create(&PostParams::default(), &pod).await.expect("created");
    }
    site.run_pods().await;
    site.pods().delete("goes", &DeleteParams::default()).await.expect("deleted");
    until("the end of the pod", async || site.pods().get_opt("goes").await.expect("an answer").is_none()).await;
    let stays = site.pods().get("stays").await.expect("it is there");
    assert_eq!(stays.status.and_then(|status| status.phase).as_deref(), Some("Running"));
    controllers.abort();
}
