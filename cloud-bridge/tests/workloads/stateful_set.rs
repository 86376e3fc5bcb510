//! StatefulSets on the embedded API, without nodes that run anything.

use controller_manager::pods::Pods;
use controller_manager::workloads;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::daemon_set::run_nodes;
use super::{Site, until};

fn db(replicas: i32, policy: &str) -> StatefulSet {
    let set = json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "db"}}, "serviceName": "peers",
            "podManagementPolicy": policy,
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": "one"}]},
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    });
    serde_json::from_value(set).expect("a StatefulSet")
}

/// The pods that stay, as `name image`.
async fn pods(site: &Site) -> Vec<String> {
    let pods = site.pods().list(&ListParams::default()).await.expect("a list").items;
    let stays = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
    stays.map(|pod| format!("{} {}", pod.name_any(), image(&json!(pod)))).collect()
}

fn complete(set: &StatefulSet, replicas: i32) -> bool {
    let status = json!(set.status);
    let counts = ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"];
    status["observedGeneration"] == json!(set.metadata.generation)
        && status["currentRevision"] == status["updateRevision"]
        && counts.iter().all(|name| status[name] == replicas)
}

#[tokio::test]
async fn a_stateful_set_has_its_pods_in_order_with_claims_and_rolls() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let sets: Api<StatefulSet> = Api::namespaced(site.client.clone(), "default");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(site.client.clone(), "default");
    sets.create(&PostParams::default(), &db(2, "OrderedReady")).await.expect("created");
    // It is written when there is nothing to do about pods.
    until("its status", async || json!(sets.get("db").await.expect("it is there").status)["replicas"] == 1).await;
    assert_eq!(pods(&site).await, ["db-0 one"], "the next one waits for it");
    let rolled = async |image: &str| {
        until(&format!("all with image {image}"), async || {
            run_nodes(&site).await;
            let wanted = [format!("db-0 {image}"), format!("db-1 {image}")];
            pods(&site).await == wanted && complete(&sets.get("db").await.expect("it is there"), 2)
        })
        .await;
    };
    rolled("one").await;
    let mut names: Vec<String> = Vec::new();
    for claim in claims.list(&ListParams::default()).await.expect("a list") {
        assert_eq!(claim.owner_references().first().map(|owner| owner.kind.as_str()), Some("StatefulSet"));
        names.push(claim.name_any());
    }
    assert_eq!(names, ["data-db-0", "data-db-1"]);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "db", "image": "two"}]}}}});
    sets.patch("db", &PatchParams::default(), &Patch::Strategic(&image)).await.expect("patched");
    rolled("two").await;
    let revisions: Api<ControllerRevision> = Api::namespaced(site.client.clone(), "default");
    let mut numbers: Vec<i64> =
        revisions.list(&ListParams::default()).await.expect("a list").iter().map(|one| one.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    let events: Api<Event> = Api::namespaced(site.client.clone(), "default");
    until("its events", async || {
        let events = events.list(&ListParams::default()).await.expect("a list").items;
        let messages: Vec<_> = events.into_iter().filter_map(|event| event.message).collect();
        let has = |text: &str| messages.iter().any(|message| message == text);
        has("Create Pod db-0 in StatefulSet db successful")
            && has("Create Claim data-db-1 Pod db-1 in StatefulSet db success")
    })
    .await;
    sets.delete("db", &DeleteParams::background()).await.expect("deleted");
    until("the end of all of it, claims too", async || {
        run_nodes(&site).await;
        pods(&site).await.is_empty() && claims.list(&ListParams::default()).await.expect("a list").items.is_empty()
    })
    .await;
    controllers.abort();
}

/// All at once, while the controllers end and start.
#[tokio::test]
async fn s15_killed_controllers_complete_a_stateful_set() {
    let site = Site::open();
    let sets: Api<StatefulSet> = Api::namespaced(site.client.clone(), "default");
    sets.create(&PostParams::default(), &db(40, "Parallel")).await.expect("created");
    for round in 0..20_u64 {
        let controllers =
            tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
        tokio::time::sleep(std::time::Duration::from_millis(5 + round * 3)).await;
        controllers.abort();
        let _ = controllers.await;
    }
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    until("all of it", async || {
        run_nodes(&site).await;
        complete(&sets.get("db").await.expect("it is there"), 40)
    })
    .await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(site.client.clone(), "default");
    assert_eq!(claims.list(&ListParams::default()).await.expect("a list").items.len(), 40);
    assert_eq!(pods(&site).await.len(), 40);
    controllers.abort();
}
