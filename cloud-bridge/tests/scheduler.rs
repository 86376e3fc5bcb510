//! The scheduler on the embedded API: pods get nodes, or the reason why not.

use std::time::Duration;

use apimachinery::user::UserInfo;
use apiserver::{Config, Server};
use controller_manager::pods::Pods;
use controller_manager::scheduler;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

/// Timeout for a busy machine; the condition is usually met in milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

async fn pod_until(pods: &Api<Pod>, name: &str, met: impl Fn(&Pod) -> bool) -> Pod {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            let pod = pods.get(name).await.expect("the pod");
            if met(&pod) {
                return pod;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("pod {name} did not get there"))
}

async fn create_pod(pods: &Api<Pod>, name: &str, cpu: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "a", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}});
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod).await.expect("created");
}

async fn create_pod_of_class(pods: &Api<Pod>, name: &str, cpu: &str, class: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"priorityClassName": class, "containers": [
        {"name": "a", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}});
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod).await.expect("created");
}

async fn create_node(client: &Client, name: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
    nodes.create(&PostParams::default(), &node).await.expect("created");
    let status = json!({"status": {
        "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("ready");
}

#[tokio::test]
async fn pods_are_bound_or_told_why_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::open(Config::new(folder.path().join("api.db"))).expect("a server");
    let client = Client::new(server.service(UserInfo::master("test")), "default");
    let scheduling = tokio::spawn(scheduler::run(client.clone(), Pods::start(&client)));
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");

    create_pod(&pods, "first", "600m").await;
    let condition = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|c| c.type_ == "PodScheduled")
    };
    let told = |pod: &Pod, text: &str| condition(pod).is_some_and(|c| c.message.as_deref() == Some(text));
    pod_until(&pods, "first", |pod| told(pod, "no nodes available to schedule pods")).await;

    create_node(&client, "n1").await;
    let bound = pod_until(&pods, "first", |pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some())).await;
    assert_eq!(bound.spec.and_then(|s| s.node_name).as_deref(), Some("n1"));

    create_pod(&pods, "second", "600m").await;
    let full = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims \
                found for incoming pod.";
    let waiting = pod_until(&pods, "second", |pod| told(pod, full)).await;
    assert_eq!(condition(&waiting).and_then(|c| c.reason).as_deref(), Some("Unschedulable"));

    pods.delete("first", &kube::api::DeleteParams::default().grace_period(0)).await.expect("deleted");
    pod_until(&pods, "second", |pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some())).await;
    let scheduled = pod_until(&pods, "second", |pod| condition(pod).is_some_and(|c| c.status == "True")).await;
    assert_eq!(scheduled.name_any(), "second");

    let events: Api<Event> = Api::namespaced(client, "default");
    let reasons = tokio::time::timeout(PATIENCE, async {
        loop {
            let list = events.list(&Default::default()).await.expect("events");
            let of = |reason: &str| list.iter().filter(|e| e.reason.as_deref() == Some(reason)).count();
            if of("Scheduled") == 2 && of("FailedScheduling") >= 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    reasons.await.expect("an event of each decision");
    scheduling.abort();
}

#[tokio::test]
async fn a_more_important_pod_gets_the_place_of_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::open(Config::new(folder.path().join("api.db"))).expect("a server");
    let client = Client::new(server.service(UserInfo::master("test")), "default");
    let scheduling = tokio::spawn(scheduler::run(client.clone(), Pods::start(&client)));
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    let class: PriorityClass = serde_json::from_value(class).expect("a class");
    Api::all(client.clone()).create(&PostParams::default(), &class).await.expect("created");
    create_node(&client, "n1").await;
    create_pod(&pods, "low", "600m").await;
    pod_until(&pods, "low", |pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some())).await;

    create_pod_of_class(&pods, "high", "600m", "high").await;
    let low = pod_until(&pods, "low", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    let conditions = low.status.and_then(|status| status.conditions).unwrap_or_default();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").expect("why it goes");
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("True", Some("PreemptionByScheduler")));
    let message = "default-scheduler: preempting to accommodate a higher priority pod";
    assert_eq!(target.message.as_deref(), Some(message));
    assert_eq!(low.metadata.deletion_grace_period_seconds, Some(30), "it has its time to end");
    let high = pods.get("high").await.expect("the pod").status.unwrap_or_default();
    assert_eq!(high.nominated_node_name.as_deref(), Some("n1"));

    pods.delete("low", &kube::api::DeleteParams::default().grace_period(0)).await.expect("deleted");
    pod_until(&pods, "high", |pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some())).await;
    let events: Api<Event> = Api::namespaced(client, "default");
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let list = events.list(&Default::default()).await.expect("events");
            if let Some(told) = list.into_iter().find(|event| event.reason.as_deref() == Some("Preempted")) {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let told = told.await.expect("an event of it");
    assert_eq!(told.involved_object.name.as_deref(), Some("low"));
    scheduling.abort();
}
