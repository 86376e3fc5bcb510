//! Endpoints of the API's own Service: an EndpointSlice and its Endpoints in `default`, as each API server of a cluster
//! writes them (K8s pkg/controlplane/reconcilers).

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

const NAME: &str = "kubernetes";
const NAMESPACE: &str = "default";
/// Interval of a check: a client may have changed them, and a name may have another address (the interval of
/// Kubernetes).
const AGAIN: Duration = Duration::from_secs(60);

/// Keeps the endpoints up to date while it runs. Removes them while `host` is not an address that pods can reach:
/// Kubernetes allows no loopback there.
pub async fn publish(client: Client, host: String, port: u16) -> Infallible {
    let mut said = None;
    loop {
        let address = address_of(&host, port).await;
        if address.is_none() && said != Some(None) {
            log::info!("the Service {NAMESPACE}/{NAME} leads nowhere: pods cannot reach {host}; see --advertise");
        }
        // The store is read each time, and written only if it differs.
        if let Some(ip) = address
            && let Err(error) = apply(&client, ip, port).await
        {
            log::warn!("endpoints of {NAMESPACE}/{NAME}: {error}");
        }
        said = Some(address);
        tokio::time::sleep(AGAIN).await;
    }
}

async fn address_of(host: &str, port: u16) -> Option<IpAddr> {
    let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await.ok()?;
    found.map(|at| at.ip()).find(|ip| ip.is_ipv4() && !ip.is_loopback() && !ip.is_unspecified())
}

async fn apply(client: &Client, ip: IpAddr, port: u16) -> Result<(), kube::Error> {
    let params = PatchParams::apply("cloud-bridge").force();
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4", "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    slices.patch(NAME, &params, &Patch::Apply(slice)).await?;
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": NAME, "namespace": NAMESPACE,
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": ip}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
    });
    let all: Api<Endpoints> = Api::namespaced(client.clone(), NAMESPACE);
    all.patch(NAME, &params, &Patch::Apply(endpoints)).await?;
    Ok(())
}
