//! `cloud-bridge serve`: the bridge on a Kubernetes API that is there already. Wiring only.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;

use crate::accept::Gate;
use crate::bridge::clients::Clients;
use crate::bridge::upstream;
use crate::bridge::{AddressType, Bridge, EndpointOf, Gone, NodeSeen, ServiceScope, Settings};
use crate::csi::{self, CsiFlags};
use crate::flags::{self, NodeFlags, port_range};
use crate::info::{self, Info};
use crate::kubelet::forward::Forwarder;
use crate::kubelet::replica::ReplicaFlags;
use crate::kubelet::{Ports, replica_port};
use crate::listen::{self, ListenerContext, metrics_port};
use crate::notify::Notify;
use crate::page::{self, Page, PageFlags};
use crate::pki::authority::Authority;
use crate::pki::serving::Serving;
use crate::pki::{claim, keep, tls};
use crate::rules::{self, RuleFlags};
use crate::signal;

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Kubeconfig of the API server. Absent: the service account of the pod that the bridge runs in.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where nodes connect.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7443")]
    pub listen: SocketAddr,
    /// A name or address under which others reach this machine (repeatable). The first goes into join commands.
    #[arg(long, value_name = "NAME-OR-ADDRESS")]
    pub advertise: Vec<String>,
    /// Address at which the API server reaches the kubelet API of the nodes, one port for each. It becomes an address of
    /// each Node. Absent: no kubelet API, so no `kubectl logs`.
    #[arg(long, value_name = "ADDRESS")]
    pub kubelet_address: Option<IpAddr>,
    /// Type of the bridge's address among a Node's addresses; it replaces the node's own address of that type. With a
    /// type other than InternalIP the node keeps its InternalIP, where node ports are, and the API server must prefer
    /// this type (--kubelet-preferred-address-types).
    #[arg(long, value_name = "TYPE", value_enum, default_value = "InternalIP")]
    pub kubelet_address_type: AddressType,
    /// Ports for the kubelet API of the nodes.
    #[arg(long, value_name = "FIRST-LAST", default_value = "10360-11360", value_parser = port_range)]
    pub kubelet_ports: (u16, u16),
    /// Authority of the client certificate that the API server shows to kubelets (its --kubelet-client-certificate);
    /// `kubectl logs` and `exec` need it. Absent: only bearer tokens are accepted.
    #[arg(long, value_name = "FILE")]
    pub kubelet_client_ca: Option<PathBuf>,
    #[command(flatten)]
    pub replicas: ReplicaFlags,
    /// Services that nodes get. A node answers only at their node ports and cluster addresses.
    #[arg(long, value_name = "SCOPE", value_enum, default_value = "namespaces")]
    pub service_scope: ServiceScope,
    #[command(flatten)]
    pub nodes: NodeFlags,
    #[command(flatten)]
    pub rules: RuleFlags,
    #[command(flatten)]
    pub csi: CsiFlags,
    #[command(flatten)]
    pub page: PageFlags,
}

/// Runs until a signal.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let config = flags::config(options.kubeconfig.clone()).await?;
    let client = flags::client_of(config.clone())?;
    let cluster = info::cluster(&client).await.context("asking the API which cluster it is")?;
    let authority = Arc::new(keep::in_cluster(&client).await?.with_node_life(options.nodes.certificate_life));
    let listener = listen::bind(options.listen).await?;
    let rules_listener = options.rules.bind().await?;
    let csi_listener = options.csi.bind().await?;
    let replica_listener = options.replicas.bind().await?;
    let page = options.page.bind(true).await?;
    let plain = options.nodes.plain_ports().await?;
    let url = info::url(listener.local_addr()?, &options.advertise);
    let page_url = page.as_ref().map(|page| page.url(&options.advertise)).transpose()?;
    let about = Info { url, authority: authority.fingerprint(), page: page_url, api: None };
    info::write(&client, &about).await?;
    if let Err(error) = claim::clear_expired(&client, apimachinery::clock::timestamp()).await {
        log::warn!("expired tokens were not deleted: {error}");
    }
    let gate = Gate::new();
    let (ports, kubelet_serving) = kubelet_ports(&options, &authority, &client, &gate)?;
    let kubelet = ports.clone().map(|ports| -> Arc<EndpointOf> { Arc::new(move |node| ports.endpoint(node)) });
    let gone = ports.clone().map(|ports| -> Arc<Gone> { Arc::new(move |node| ports.close(node)) });
    // Without other bridges each port is opened when its node connects.
    let other_nodes = ports.clone().filter(|_| replica_listener.is_some());
    let node_seen = other_nodes.map(|ports| -> Arc<NodeSeen> { Arc::new(move |node| ports.seen(node)) });
    let (service_scope, deleted_nodes_return) = (options.service_scope, options.nodes.deleted_nodes_return);
    let settings = Settings {
        kubelet,
        gone,
        service_scope,
        deleted_nodes_return,
        mirror_namespaces: options.nodes.mirror_namespace.clone().into(),
        rules_place: options.rules.place(rules_listener.as_ref())?,
        replica_place: options.replicas.place(replica_listener.as_ref())?,
        node_seen,
        devices_unknown_when_silent: options.nodes.devices_unknown_when_silent,
        rule_authorities: options.rules.authorities()?,
        pods_seen: page.as_ref().map(Page::pods_seen),
        pod_requests: Some(upstream::of_cluster(config)),
        ..Settings::default()
    };
    let bridge = Bridge::start(Clients::impersonating(client.clone()), cluster, settings);
    if let Some(ports) = ports {
        ports.set_bridge(bridge.clone(), Some(Forwarder::new(Arc::clone(&authority))));
    }
    let serving = Serving::new(Arc::clone(&authority), info::addresses(&[options.listen], &options.advertise))?;
    let tls = tls::link_config(&authority, &serving)?;
    log::info!("nodes connect to {}", about.url);
    let rule_names = options.rules.names(&options.advertise);
    let of_rules = rules::serve(rules_listener, &bridge, &authority, rule_names, client.clone(), Arc::clone(&gate));
    let csi_names = options.csi.names(&options.advertise);
    let of_csi = csi::serve(csi_listener, &bridge, &authority, csi_names, client.clone(), Arc::clone(&gate));
    let names = options.replicas.names();
    let of_replicas = replica_port::serve(replica_listener, bridge.clone(), &authority, names, Arc::clone(&gate));
    let page_names = options.page.names(&options.advertise);
    let of_page = page::serve(page, &bridge, &authority, page_names, client.clone(), Arc::clone(&gate));
    let context = Arc::new(ListenerContext::new(bridge.clone(), Arc::clone(&authority), client));
    tokio::select! {
        never = listen::accept(listener, tls, context, gate) => match never {},
        failed = of_rules => match failed? {},
        failed = of_csi => match failed? {},
        failed = of_replicas => match failed? {},
        failed = of_page => match failed? {},
        never = metrics_port::serve(plain, bridge.clone()) => match never {},
        never = Notify::from_env().run() => match never {},
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
    options: &Options,
    authority: &Arc<Authority>,
    client: &kube::Client,
    gate: &Arc<Gate>,
) -> anyhow::Result<KubeletApi> {
    let Some(address) = options.kubelet_address else { return Ok((None, None)) };
    let clients = match &options.kubelet_client_ca {
        Some(path) => flags::authorities("--kubelet-client-ca", path)?,
        None => Vec::new(),
    };
    let serving = Serving::new(Arc::clone(authority), vec![address.to_string()])?;
    let tls = tls::lasting_config(&serving, &clients, &[b"h2", b"http/1.1"])?;
    let ports = Ports::new(
        (options.kubelet_address_type, address),
        options.kubelet_ports,
        tls,
        client.clone(),
        Arc::clone(gate),
    );
    Ok((Some(ports), Some(serving)))
}

async fn fresh(serving: Option<Arc<Serving>>) {
    match serving {
        Some(serving) => serving.keep_fresh().await,
        None => std::future::pending().await,
    }
}
