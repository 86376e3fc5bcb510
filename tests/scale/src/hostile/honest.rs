//! The honest nodes: pods are created on them at a steady rate, and the time is measured until the bridge has
//! acknowledged that they run. Also requests the hostile node's measurements, as metrics-server does.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::fleet::Fleet;

/// Interval of new pods.
const EVERY: Duration = Duration::from_millis(300);
/// Maximum number of pods on all nodes at the same time; a kubelet has room for 110.
const KEPT: usize = 400;
const LABEL: &str = "app=hostile";

/// Creates a pod bound to the node; its containers never run.
pub(crate) async fn create(client: &Client, name: &str, node: &str) -> anyhow::Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "hostile"}},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "busybox", "resources": {"limits": {"memory": "20Mi"}}}],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await.with_context(|| format!("creating pod {name}"))
}

/// Creates pods on the nodes in turn until `end`; returns the sorted times until each was acknowledged.
pub(crate) async fn rounds(
    client: &Client,
    fleet: &Rc<Fleet>,
    nodes: &[String],
    what: &str,
    end: Instant,
    patience: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let mut names: Vec<String> = Vec::new();
    let mut ticks = tokio::time::interval(EVERY);
    for node in nodes.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        ticks.tick().await;
        let name = format!("{what}-{}", names.len());
        fleet.created(&name, Instant::now());
        create(client, &name, node).await?;
        names.push(name);
        if let Some(old) = names.len().checked_sub(KEPT).and_then(|at| names.get(at))
            && fleet.times(old).reported.is_some()
        {
            pods.delete(old, &DeleteParams::default().grace_period(0))
                .await
                .with_context(|| format!("deleting pod {old}"))?;
        }
    }
    let last = Instant::now() + patience;
    let missing = || names.iter().find(|name| fleet.times(name).reported.is_none());
    while let Some(name) = missing() {
        anyhow::ensure!(Instant::now() < last, "pod {name} was not acknowledged within {patience:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let times = names.iter().map(|name| fleet.times(name));
    let mut took: Vec<Duration> = times.filter_map(|times| Some(times.reported? - times.created?)).collect();
    took.sort_unstable();
    Ok(took)
}

/// Requests the node's measurements, without end.
pub(crate) async fn ask_for_stats(client: Client, node: String) {
    loop {
        for path in ["stats/summary?only_cpu_and_memory=true", "metrics/resource"] {
            let path = format!("/api/v1/nodes/{node}/proxy/{path}");
            if let Ok(request) = http::Request::get(path).body(Vec::new()) {
                // It answers nonsense, or nothing.
                let _ = tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Deletes everything on an API server that keeps running.
pub(crate) async fn clear(client: &Client, nodes: &[String]) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for pod in pods.list(&ListParams::default().labels(LABEL)).await.into_iter().flatten() {
        // It may be deleted already.
        let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
    }
    let all: Api<Node> = Api::all(client.clone());
    for node in nodes {
        let _ = all.delete(node, &DeleteParams::default()).await;
    }
}
