//! Services and their endpoints on the embedded API.

use controller_manager::pods::Pods;
use controller_manager::workloads;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{Site, until};

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// A pod on the node `board`, with an address and ready.
async fn run(site: &Site, name: &str, ip: &str) {
    let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "board", "containers": [{"name": "c", "image": "x"}]}});
    site.pods().create(&PostParams::default(), &object::<Pod>(pod)).await.expect("a pod");
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}]}});
    site.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("a status");
}

fn ready(slices: &[EndpointSlice]) -> Vec<String> {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|one| one.conditions.as_ref().is_some_and(|is| is.ready == Some(true)));
    let mut all: Vec<String> = ready.flat_map(|one| one.addresses.clone()).collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_service_leads_to_its_ready_pods_and_takes_all_with_it() {
    let site = Site::open();
    let controllers =
        tokio::spawn(workloads::run(site.client.clone(), Pods::start(&site.client), workloads::Options::default()));
    let slices: Api<EndpointSlice> = Api::namespaced(site.client.clone(), "default");
    let endpoints: Api<Endpoints> = Api::namespaced(site.client.clone(), "default");
    let services: Api<Service> = Api::namespaced(site.client.clone(), "default");
    let nodes: Api<Node> = Api::all(site.client.clone());
    nodes.create(&PostParams::default(), &object(json!({"metadata": {"name": "board"}}))).await.expect("a node");
    let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "clusterIP": "None", "ipFamilies": ["IPv4"],
        "ports": [{"port": 80}]}});
    services.create(&PostParams::default(), &object(service)).await.expect("a Service");
    until("its empty slice", async || slices.list(&of_service).await.expect("a list").items.len() == 1).await;
    run(&site, "a", "10.0.0.1").await;
    run(&site, "b", "10.0.0.2").await;
    until("both pods", async || {
        let found = endpoints.get("web").await.expect("they are there").subsets.unwrap_or_default();
        let count: usize = found.iter().map(|subset| subset.addresses.as_ref().map_or(0, Vec::len)).sum();
        count == 2 && ready(&slices.list(&of_service).await.expect("a list").items) == ["10.0.0.1", "10.0.0.2"]
    })
    .await;
    let made = slices.list(&of_service).await.expect("a list").items;
    assert_eq!(made.len(), 1);
    let version = made[0].resource_version();
    // The written objects equal the wanted ones when they are read, so nothing is written again.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(slices.list(&of_service).await.expect("a list").items[0].resource_version(), version);
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    site.pods().patch_status("a", &PatchParams::default(), &Patch::Merge(&unready)).await.expect("a status");
    until("the end of one", async || ready(&slices.list(&of_service).await.expect("a list").items) == ["10.0.0.2"])
        .await;
    services.delete("web", &DeleteParams::default()).await.expect("deleted");
    until("the end of all", async || {
        endpoints.get_opt("web").await.expect("an answer").is_none()
            && slices.list(&of_service).await.expect("a list").items.is_empty()
    })
    .await;
    controllers.abort();
}
