//! Large workloads that change all the time, beside a small one.

use controller_manager::pods::Pods;
use controller_manager::workloads;
use futures::future::join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Site, until, web};

/// A Deployment of some 80 KiB.
fn wide(name: &str) -> Deployment {
    let env: Vec<_> = (0..100).map(|at| json!({"name": format!("V{at}"), "value": "x".repeat(800)})).collect();
    let deployment = json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "one", "env": env}]},
            },
        },
    });
    serde_json::from_value(deployment).expect("a Deployment")
}

#[tokio::test]
async fn large_workloads_that_change_stop_no_controller() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let deployments = site.deployments();
    join_all((0..4).map(async |at| {
        let name = format!("wide-{at}");
        deployments.create(&PostParams::default(), &wide(&name)).await.expect("created");
        for round in 0..10 {
            let change = json!({"spec": {"template": {"metadata": {"annotations": {"round": round.to_string()}}}}});
            deployments.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.expect("patched");
        }
    }))
    .await;
    deployments.create(&PostParams::default(), &web(2, "one")).await.expect("created");
    until("the pods of a small one", async || site.count().await == 2).await;
    until("the newest of each large one", async || {
        let all = deployments.list(&ListParams::default()).await.expect("a list").items;
        all.iter()
            .all(|one| one.status.as_ref().and_then(|status| status.observed_generation) == one.metadata.generation)
    })
    .await;
    controllers.abort();
}
