//! `cloud-bridge serve`: the bridge on a Kubernetes API that is there already. Wiring only.

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;

use crate::accept::Gate;
use crate::bridge::clients::Clients;
use crate::bridge::{Bridge, EndpointOf, Gone, Settings};
use crate::cli::{self, Serve};
use crate::info::{self, Info};
use crate::kubelet::Ports;
use crate::listen::{self, ListenerContext};
use crate::pki::authority::{self, Authority};
use crate::pki::serving::Serving;
use crate::pki::{keep, tls, token};
use crate::signal;

/// Runs until a signal.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    let client = cli::client(options.kubeconfig.clone()).await?;
    let cluster = info::cluster(&client).await.context("asking the API which cluster it is")?;
    let authority = Arc::new(keep::in_cluster(&client).await?.with_node_life(options.nodes.certificate_life));
    let listener = listen::bind(options.listen).await?;
    let url = info::url(listener.local_addr()?, &options.advertise);
    let about = Info { url, authority: authority.fingerprint() };
    info::write(&client, &about).await?;
    if let Err(error) = token::clear_expired(&client, Timestamp::now()).await {
        log::warn!("expired join tokens were not cleared away: {error}");
    }
    let gate = Gate::new();
    let (ports, kubelet_serving) = kubelet_ports(&options, &authority, &client, &gate)?;
    let kubelet = ports.clone().map(|ports| -> Arc<EndpointOf> { Arc::new(move |node| ports.endpoint(node)) });
    let gone = ports.clone().map(|ports| -> Arc<Gone> { Arc::new(move |node| ports.close(node)) });
    let deleted_nodes_return = options.nodes.deleted_nodes_return;
    let settings = Settings { kubelet, gone, deleted_nodes_return, ..Settings::default() };
    let bridge = Bridge::start(Clients::impersonating(client.clone()), cluster, settings);
    if let Some(ports) = ports {
        ports.set_bridge(bridge.clone());
    }
    let serving = Serving::new(Arc::clone(&authority), info::addresses(&[options.listen], &options.advertise))?;
    let tls = tls::link_config(&authority, &serving)?;
    log::info!("nodes connect to {}", about.url);
    let context = Arc::new(ListenerContext { bridge: bridge.clone(), authority, client });
    tokio::select! {
        never = listen::accept(listener, tls, context, gate) => match never {},
        () = serving.keep_fresh() => {}
        () = fresh(kubelet_serving) => {}
        signal = signal::wait() => log::info!("{} received, ending", signal?),
    }
    bridge.close().await;
    Ok(())
}

/// The ports of the nodes, and the certificate that they show.
type KubeletApi = (Option<Arc<Ports>>, Option<Arc<Serving>>);

/// The kubelet API of the nodes, if an address for it was given.
fn kubelet_ports(
    options: &Serve,
    authority: &Arc<Authority>,
    client: &kube::Client,
    gate: &Arc<Gate>,
) -> anyhow::Result<KubeletApi> {
    let Some(address) = options.kubelet_address else { return Ok((None, None)) };
    let clients = match &options.kubelet_client_ca {
        Some(path) => {
            let pem = std::fs::read(path).with_context(|| format!("--kubelet-client-ca {}", path.display()))?;
            authority::certificates(&path.display().to_string(), &pem)?
        }
        None => Vec::new(),
    };
    let serving = Serving::new(Arc::clone(authority), vec![address.to_string()])?;
    let tls = tls::lasting_config(&serving, &clients, &[b"h2", b"http/1.1"])?;
    let ports = Ports::new(address, options.kubelet_ports, tls, client.clone(), Arc::clone(gate));
    Ok((Some(ports), Some(serving)))
}

async fn fresh(serving: Option<Arc<Serving>>) {
    match serving {
        Some(serving) => serving.keep_fresh().await,
        None => std::future::pending().await,
    }
}
