//! DaemonSets on the embedded API, with the scheduler, without nodes that run anything.

use controller_manager::pods::Pods;
use controller_manager::{scheduler, workloads};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Site, until};

fn agent() -> DaemonSet {
    let set = json!({
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "agent", "image": "one"}]},
            },
        },
    });
    serde_json::from_value(set).expect("a DaemonSet")
}

async fn add_node(site: &Site, name: &str) {
    let nodes: Api<Node> = Api::all(site.client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a Node");
    nodes.create(&PostParams::default(), &node).await.expect("created");
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4", "memory": "1Gi", "pods": "110"},
    }});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("patched");
}

/// The pods that are not being deleted, as `node image`, in order.
async fn placed(site: &Site) -> Vec<String> {
    let pods = site.pods().list(&ListParams::default()).await.expect("a list").items;
    let stays = pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut placed: Vec<String> = stays
        .map(|pod| pod.spec.expect("a spec"))
        .map(|spec| {
            let image = spec.containers[0].image.clone().unwrap_or_default();
            format!("{} {image}", spec.node_name.unwrap_or_default())
        })
        .collect();
    placed.sort();
    placed
}

/// Acts as nodes: pods run and are ready, and deleted ones are removed.
pub(super) async fn run_nodes(site: &Site) {
    site.run_pods().await;
    for pod in site.pods().list(&ListParams::default()).await.expect("a list") {
        if pod.metadata.deletion_timestamp.is_some() {
            // It may be deleted meanwhile.
            let _ = site.pods().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        }
    }
}

async fn reasons(site: &Site) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.expect("a list").items;
    let own = events.into_iter().filter(|event| event.involved_object.kind.as_deref() == Some("DaemonSet"));
    own.filter_map(|event| event.reason).collect()
}

fn complete(set: &DaemonSet, nodes: i32) -> bool {
    let status = serde_json::to_value(set.status.clone().unwrap_or_default()).expect("JSON");
    let counts = ["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable"];
    status["observedGeneration"] == json!(set.metadata.generation) && counts.iter().all(|name| status[name] == nodes)
}

#[tokio::test]
async fn a_daemon_set_has_a_pod_on_each_node_rolls_and_goes_back() {
    let site = Site::open();
    let pods = Pods::start(&site.client);
    let tasks = [
        tokio::spawn(workloads::run(site.client.clone(), pods.clone(), workloads::Options::default())),
        tokio::spawn(scheduler::run(site.client.clone(), pods)),
    ];
    let sets: Api<DaemonSet> = Api::namespaced(site.client.clone(), "default");
    sets.create(&PostParams::default(), &agent()).await.expect("created");
    add_node(&site, "a").await;
    add_node(&site, "b").await;
    let rolled = async |wanted: &[&str]| {
        until(&format!("{wanted:?}"), async || {
            run_nodes(&site).await;
            let set = sets.get("agent").await.expect("it is there");
            placed(&site).await == wanted && complete(&set, i32::try_from(wanted.len()).expect("a few"))
        })
        .await;
    };
    rolled(&["a one", "b one"]).await;
    let patch =
        |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "agent", "image": image}]}}}});
    for image in ["two", "one"] {
        sets.patch("agent", &PatchParams::default(), &Patch::Strategic(&patch(image))).await.expect("patched");
        add_node(&site, &format!("c-{image}")).await;
        let wanted = ["a", "b", "c-two", "c-one"].iter().filter(|name| image == "one" || **name != "c-one");
        let mut wanted: Vec<String> = wanted.map(|name| format!("{name} {image}")).collect();
        wanted.sort();
        rolled(&wanted.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    // `kubectl rollout history` lists these and `undo` merges them: the first template is the newest revision again.
    let revisions: Api<ControllerRevision> = Api::namespaced(site.client.clone(), "default");
    let mut revisions = revisions.list(&ListParams::default()).await.expect("a list").items;
    revisions.sort_by_key(|revision| revision.revision);
    assert_eq!(revisions.iter().map(|revision| revision.revision).collect::<Vec<_>>(), [2, 3]);
    let data: Vec<Value> = revisions.into_iter().filter_map(|revision| Some(revision.data?.0)).collect();
    assert_eq!(data[1]["spec"]["template"]["$patch"], "replace");
    assert_eq!(data[1]["spec"]["template"]["spec"]["containers"][0]["image"], "one");
    assert!(reasons(&site).await.iter().any(|reason| reason == "SuccessfulCreate"));
    sets.delete("agent", &DeleteParams::background()).await.expect("deleted");
    until("the end of all of it", async || {
        run_nodes(&site).await;
        site.pods().list(&ListParams::default()).await.expect("a list").items.is_empty()
    })
    .await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The pods of many nodes, while the controllers end and start.
#[tokio::test]
async fn s15_killed_controllers_never_put_two_daemon_pods_on_a_node() {
    let site = Site::open();
    for number in 0..40 {
        add_node(&site, &format!("n{number}")).await;
    }
    let sets: Api<DaemonSet> = Api::namespaced(site.client.clone(), "default");
    sets.create(&PostParams::default(), &agent()).await.expect("created");
    let tied = async || {
        let pods = site.pods().list(&ListParams::default()).await.expect("a list").items;
        let mut nodes: Vec<Value> = pods.iter().map(|pod: &Pod| json!(pod.spec)["affinity"].clone()).collect();
        let all = nodes.len();
        nodes.sort_by_key(Value::to_string);
        nodes.dedup();
        assert_eq!(nodes.len(), all, "two on one node");
        all
    };
    for round in 0..30_u64 {
        let controllers =
            tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
        tokio::time::sleep(std::time::Duration::from_millis(5 + round * 3)).await;
        controllers.abort();
        let _ = controllers.await;
        tied().await;
    }
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    until("all pods", async || tied().await == 40).await;
    controllers.abort();
}
