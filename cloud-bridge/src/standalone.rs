//! `cloud-bridge standalone`: the embedded API, its scheduler, and the bridge on it, in one process. Wiring only.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::accept::Gate;
use crate::bridge::clients::{Clients, KUBELET};
use crate::bridge::{BRIDGED_LABEL, Bridge, ServiceScope, Settings};
use crate::certificates;
use crate::flags::{self, NodeFlags};
use crate::info::{self, Info};
use crate::kubeconfig;
use crate::listen::{self, ListenerContext, metrics_port};
use crate::notify::Notify;
use crate::page::{self, Page, PageFlags};
use crate::pki::authority::Authority;
use crate::pki::serving::Serving;
use crate::pki::{keep, tls, token};
use crate::rules::{self, RuleFlags};
use crate::signal;
use crate::steps;
use crate::{api_endpoints, api_port};
use apimachinery::panics;
use apimachinery::user::UserInfo;
use apiserver::{Accounts, Config, Server, ServiceRange};
use controller_manager::load_balancer;
use controller_manager::node_lifecycle::{self, MaskSizes, NodeIpam};
use controller_manager::pods::Pods;
use controller_manager::{local_volumes, podautoscaler, scheduler, workloads};

/// See [`Settings::api_turns`].
const API_TURNS: usize = 16;

/// Flags of `standalone`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Folder of all state: the API's database, the authority, the administrator's kubeconfig.
    #[arg(long, value_name = "FOLDER")]
    pub state: PathBuf,
    /// Where nodes connect.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7443")]
    pub listen: SocketAddr,
    /// Where kubectl connects.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    pub api_listen: SocketAddr,
    /// A name or address under which others reach this machine (repeatable). The first goes into join commands.
    #[arg(long, value_name = "NAME-OR-ADDRESS")]
    pub advertise: Vec<String>,
    /// Addresses that Services get: an IPv4 range.
    #[arg(long, value_name = "RANGE", default_value = "10.96.0.0/16", value_parser = ServiceRange::parse)]
    pub service_range: ServiceRange,
    /// Restore the copy of the state file if that file is damaged or missing. Changes since the copy are lost. While the bridge
    /// runs with this flag, nodes end no pod because it is missing in the copy: start it without the flag when the API is
    /// complete again.
    #[arg(long)]
    pub restore: bool,
    /// Maximum number of terminated pods to keep; the oldest of more are deleted. 0 keeps all.
    #[arg(long, value_name = "COUNT", default_value_t = workloads::Options::default().terminated_pod_gc_threshold)]
    pub terminated_pod_gc_threshold: usize,
    /// Evict pods from a node that is offline, or not ready, for this long: 90s, 30m, 2h, 7d. Replacements start on
    /// other nodes while the pods may still run there. Absent: pods are not evicted from such a node.
    #[arg(long, value_name = "DURATION", value_parser = evict_after)]
    pub evict_after: Option<Duration>,
    /// Maximum lifetime of service account tokens, whatever a TokenRequest asks for: 24h, 30d; at least 1h. Absent: 136
    /// years, as on Kubernetes.
    #[arg(long, value_name = "DURATION", value_parser = token_life)]
    pub service_account_max_token_expiration: Option<Duration>,
    #[command(flatten)]
    pub subnets: SubnetFlags,
    /// Give Services of type LoadBalancer without a class the addresses of the nodes where their ready pods are; a
    /// Service with the label or annotation `sampan.dev/site` gets those of the nodes with that label. Absent: such
    /// Services get no address.
    #[arg(long, value_name = "KIND", value_parser = ["nodes"])]
    pub load_balancer: Option<String>,
    #[command(flatten)]
    pub nodes: NodeFlags,
    #[command(flatten)]
    pub rules: RuleFlags,
    #[command(flatten)]
    pub page: PageFlags,
    #[command(flatten)]
    pub autoscalers: AutoscalerFlags,
}

/// How HorizontalPodAutoscalers are looked after; called as the flags of kube-controller-manager are.
#[derive(Debug, Clone, Args)]
pub struct AutoscalerFlags {
    /// Interval between two evaluations of a HorizontalPodAutoscaler.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = flags::period)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Time for which the highest recommendation of a HorizontalPodAutoscaler counts before its target is scaled down.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flags::duration)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Time after its start during which the CPU usage of a pod counts only while it is ready.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flags::duration)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
}

impl AutoscalerFlags {
    fn options(&self) -> podautoscaler::Options {
        podautoscaler::Options {
            sync_period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            ..podautoscaler::Options::default()
        }
    }
}

/// Which addresses the pods of nodes get, for what reads that from Node objects: nodes have subnets of their own.
#[derive(Debug, Clone, Args)]
pub struct SubnetFlags {
    /// Range from which each Node gets its `spec.podCIDRs`: one range, or one of each family with a comma between them.
    /// Absent: Nodes get none.
    #[arg(long, value_name = "RANGE")]
    pub cluster_cidr: Option<String>,
    /// Prefix length of the range of one Node [default: 24 for IPv4, 64 for IPv6].
    #[arg(long, value_name = "BITS", requires = "cluster_cidr")]
    pub node_cidr_mask_size: Option<u32>,
    /// Same as --node-cidr-mask-size, for IPv4.
    #[arg(long, value_name = "BITS", requires = "cluster_cidr")]
    pub node_cidr_mask_size_ipv4: Option<u32>,
    /// Same as --node-cidr-mask-size, for IPv6.
    #[arg(long, value_name = "BITS", requires = "cluster_cidr")]
    pub node_cidr_mask_size_ipv6: Option<u32>,
}

impl SubnetFlags {
    fn ipam(&self, services: ServiceRange) -> anyhow::Result<Option<NodeIpam>> {
        let Some(ranges) = &self.cluster_cidr else { return Ok(None) };
        let masks = MaskSizes {
            any: self.node_cidr_mask_size,
            ipv4: self.node_cidr_mask_size_ipv4,
            ipv6: self.node_cidr_mask_size_ipv6,
        };
        NodeIpam::new(ranges, masks, Some(&services.to_string())).map(Some).map_err(anyhow::Error::msg)
    }
}

/// Bounds are those of kube-apiserver.
fn token_life(text: &str) -> anyhow::Result<Duration> {
    let life = flags::duration(text)?;
    anyhow::ensure!((3600..=1 << 32).contains(&life.as_secs()), "must be between 1h and 2^32 seconds");
    Ok(life)
}

fn evict_after(text: &str) -> anyhow::Result<Duration> {
    let after = flags::duration(text)?;
    // Seconds are signed 64-bit numbers in the API.
    anyhow::ensure!(i64::try_from(after.as_secs()).is_ok(), "is too long");
    Ok(after)
}

/// The one argument of the helper that judges validation rules. No verb for people: only the API starts it.
const CEL_HELPER: &str = "judge-rules";

/// The command that starts the helper for validation rules, with the program at this path.
pub fn cel_helper(program: impl Into<OsString>) -> Vec<OsString> {
    vec![program.into(), CEL_HELPER.into()]
}

/// Whether this process was started as that helper.
pub fn is_cel_helper() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == CEL_HELPER)
}

/// Runs until a signal.
pub async fn run(options: Options) -> anyhow::Result<()> {
    // Before anything is written: flags that are wrong are a clean failure.
    let lifecycle = node_lifecycle::Settings {
        evicts: options.evict_after.is_some(),
        ipam: options.subnets.ipam(options.service_range)?,
    };
    let authority = Arc::new(keep::in_folder(&options.state)?.with_node_life(options.nodes.certificate_life));
    let key = keep::account_key(&options.state, || Ok(Accounts::new_key()?))?;
    let accounts = Accounts::new(&key, authority.certificate_pem())
        .with_context(|| format!("{}: delete it to have another made", options.state.join("pki/sa.key").display()))?;
    let api = Server::open(Config {
        restore: options.restore,
        accounts: Some(Arc::new(accounts)),
        services: Some(options.service_range),
        cel_helper: Some(cel_helper("/proc/self/exe")),
        token_life_max: options
            .service_account_max_token_expiration
            .and_then(|life| i64::try_from(life.as_secs()).ok()),
        toleration_seconds: options.evict_after.and_then(|after| i64::try_from(after.as_secs()).ok()),
        ..Config::new(options.state.join("api.db"))
    })?;
    let as_bridge = |agent| local(&api, &UserInfo::master("cloud-bridge"), agent);
    let client = as_bridge("cloud-bridge");
    let clients = {
        let (api, leases) = (api.clone(), api.clone());
        Clients::new(client.clone(), move |node| local(&api, &UserInfo::node(node), KUBELET))
            .with_renewal(move |node, time| leases.renew_lease(node, time))
    };

    // Both ports before anything is written or said: a taken port is a clean failure.
    let (links, calls) = (listen::bind(options.listen).await?, listen::bind(options.api_listen).await?);
    let rules_listener = options.rules.bind().await?;
    let page = options.page.bind(false).await?;
    let plain = options.nodes.plain_ports().await?;
    let mut names = info::addresses(&[options.listen, options.api_listen], &options.advertise);
    names.extend(info::service_names(options.service_range.first().into()));
    let serving = Serving::new(Arc::clone(&authority), names)?;
    let link_tls = tls::link_config(&authority, &serving)?;
    let ca = std::slice::from_ref(authority.certificate());
    let api_tls = tls::lasting_config(&serving, ca, &[b"h2", b"http/1.1"])?;
    let api_url = info::url(calls.local_addr()?, &[]);
    let api_host = info::host(calls.local_addr()?, &options.advertise);
    let about = Info {
        url: info::url(links.local_addr()?, &options.advertise),
        authority: authority.fingerprint(),
        page: page.as_ref().map(|page| page.url(&options.advertise)).transpose()?,
        api: Some(info::https(&api_host, calls.local_addr()?.port())),
    };
    info::write(&client, &about).await?;
    if let Err(error) = token::clear_expired(&client, apimachinery::clock::timestamp()).await {
        log::warn!("expired join tokens were not cleared away: {error}");
    }

    let cluster = info::cluster(&client).await?;
    // Nothing routes the cluster address of the API's Service: clients in pods are told the API's own.
    let own_endpoints = api_endpoints::publish(client.clone(), api_host.clone(), calls.local_addr()?.port());
    let settings = Settings {
        api: Some((api_host, calls.local_addr()?.port())),
        service_scope: ServiceScope::Site,
        deleted_nodes_return: options.nodes.deleted_nodes_return,
        devices_unknown_when_silent: options.nodes.devices_unknown_when_silent,
        replicated: false,
        api_turns: API_TURNS,
        is_master: true,
        mirror_namespaces: options.nodes.mirror_namespace.clone().into(),
        lists_withheld: options.restore,
        toleration_seconds: options.evict_after.map_or(300, |after| after.as_secs()),
        rule_authorities: options.rules.authorities()?,
        pods_seen: page.as_ref().map(Page::pods_seen),
        ..Settings::default()
    };
    let bridge = Bridge::start(clients, cluster, settings);
    api.set_backend(Arc::new(bridge.clone()));
    let (kubeconfig_file, api_address) = (options.state.join("kubeconfig"), calls.local_addr()?);
    kubeconfig::write(&kubeconfig_file, &authority, api_address)?;
    log::info!("nodes connect to {}, kubectl to {api_url}", about.url);
    let mut controllers = Controllers::start(&options, &as_bridge, lifecycle, &authority, &bridge);
    let gate = Gate::new();
    let rule_names = options.rules.names(&options.advertise);
    let of_rules = rules::serve(rules_listener, &bridge, &authority, rule_names, client.clone(), Arc::clone(&gate));
    let page_names = options.page.names(&options.advertise);
    let of_page = page::serve(page, &bridge, &authority, page_names, client.clone(), Arc::clone(&gate));
    let context = Arc::new(ListenerContext {
        bridge: bridge.clone(),
        authority: Arc::clone(&authority),
        client: client.clone(),
        answered: Mutex::default(),
    });
    tokio::select! {
        never = steps::part("links", listen::accept(links, link_tls, context, Arc::clone(&gate))) => match never {},
        never = steps::part("the API's port", api_port::serve(api.clone(), calls, api_tls, gate)) => match never {},
        failed = of_rules => match failed? {},
        failed = of_page => match failed? {},
        never = metrics_port::serve(plain, bridge.clone()) => match never {},
        never = Notify::from_env().run() => match never {},
        () = serving.keep_fresh() => {}
        () = kubeconfig::keep_fresh(&kubeconfig_file, &authority, api_address) => {}
        never = own_endpoints => match never {},
        Some(_) = controllers.0.join_next() => {}
        why = api.lost_disk() => anyhow::bail!("{why}: ending, so that a restart reads what the disk has"),
        signal = signal::wait() => log::info!("{} received, ending", signal?),
    }
    // The bridge no longer reads what they write.
    controllers.0.shutdown().await;
    bridge.close().await;
    api.close().await?;
    Ok(())
}

impl local_volumes::Nodes for Bridge {
    fn delete_volume<'a>(&'a self, node: &'a str, volume: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move { Self::delete_volume(self, node, volume).await.map_err(|error| error.to_string()) })
    }
}

/// The controllers of the embedded API, each in its own task: the work of one delays no other. Dropping this stops
/// them.
struct Controllers(JoinSet<()>);

impl Controllers {
    fn start(
        options: &Options,
        client: &impl Fn(&'static str) -> kube::Client,
        lifecycle: node_lifecycle::Settings,
        authority: &Arc<Authority>,
        bridge: &Bridge,
    ) -> Self {
        let mut all = Self(JoinSet::new());
        let workloads = workloads::Options { terminated_pod_gc_threshold: options.terminated_pod_gc_threshold };
        let (authority, bridge, autoscalers) = (Arc::clone(authority), bridge.clone(), options.autoscalers.options());
        let manager = client("kube-controller-manager");
        let pods = Pods::start(&manager);
        let followed = pods.clone();
        let of_workloads = move |client| workloads::run(client, followed.clone(), workloads.clone());
        all.keep("the controllers of workloads", &manager, of_workloads);
        all.keep("the signer", &manager, move |client| certificates::run(client, Arc::clone(&authority)));
        all.keep("the end of volumes", &manager, move |client| local_volumes::run(client, Arc::new(bridge.clone())));
        if options.load_balancer.is_some() {
            all.keep("load balancers", &manager, load_balancer::run);
        }
        all.keep("the autoscaler", &manager, move |client| podautoscaler::run(client, autoscalers));
        all.keep("the scheduler", &client("kube-scheduler"), move |client| scheduler::run(client, pods.clone()));
        let lifecycle = move |client| node_lifecycle::run(client, BRIDGED_LABEL, lifecycle.clone());
        all.keep("the node lifecycle", &manager, lifecycle);
        all
    }

    /// Same as [`panics::keep`], measured by its name.
    fn keep<F>(
        &mut self,
        work: &'static str,
        client: &kube::Client,
        mut begin: impl FnMut(kube::Client) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let client = client.clone();
        self.0.spawn(steps::part(work, panics::keep(work, move || begin(client.clone()))));
    }
}

/// A client of the API in this process. `agent` names it in `managedFields`, as Kubernetes' parts are named.
fn local(api: &Server, user: &UserInfo, agent: &'static str) -> kube::Client {
    kube::Client::new(api.service(user.clone()).named(agent), "default")
}
