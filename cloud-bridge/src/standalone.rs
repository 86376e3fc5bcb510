//! `cloud-bridge standalone`: the embedded API, its scheduler, and the bridge on it, in one process. Wiring only.

mod controllers;
mod options;

use std::ffi::OsString;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Full};

use crate::accept::Gate;
use crate::bridge::clients::{Clients, KUBELET};
use crate::bridge::upstream::Upstream;
use crate::bridge::{Bridge, ServiceScope, Settings};
use crate::csi;
use crate::info::{self, Info};
use crate::kubeconfig;
use crate::listen::{self, ListenerContext, metrics_port};
use crate::notify::Notify;
use crate::page::{self, Page};
use crate::pki::serving::Serving;
use crate::pki::{claim, keep, tls};
use crate::rules;
use crate::signal;
use crate::state_folder;
use crate::steps;
use crate::{api_endpoints, api_port};
use apimachinery::user::UserInfo;
use apiserver::http::failure;
use apiserver::{Accounts, Config, Server};
use controller_manager::node_lifecycle;
use controllers::Controllers;

pub use options::{AutoscalerFlags, Options, SubnetFlags};

/// See [`Settings::api_turns`].
const API_TURNS: usize = 16;

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
    state_folder::ensure_whole(&options.state)?;
    // Before anything is written: flags that are wrong are a clean failure.
    let lifecycle = node_lifecycle::Settings {
        evicts: options.evict_after.is_some(),
        ipam: options.subnets.ipam(options.service_range)?,
    };
    let authority = Arc::new(keep::in_folder(&options.state)?.with_node_life(options.nodes.certificate_life));
    let key = keep::account_key(&options.state, || Ok(Accounts::new_key()?))?;
    let accounts = Accounts::new(&key, authority.trusted_pem())
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
    let csi_listener = options.csi.bind().await?;
    let page = options.page.bind(false).await?;
    let plain = options.nodes.plain_ports().await?;
    let mut names = info::addresses(&[options.listen, options.api_listen], &options.advertise);
    names.extend(info::service_names(options.service_range.first().into()));
    let serving = Serving::new(Arc::clone(&authority), names)?;
    let link_tls = tls::link_config(&authority, &serving)?;
    let api_tls = tls::lasting_config(&serving, &authority.trusted(), &[b"h2", b"http/1.1"])?;
    let api_url = info::url(calls.local_addr()?, &[]);
    let api_host = info::host(calls.local_addr()?, &options.advertise);
    let about = Info {
        url: info::url(links.local_addr()?, &options.advertise),
        authority: authority.fingerprint(),
        page: page.as_ref().map(|page| page.url(&options.advertise)).transpose()?,
        api: Some(info::https(&api_host, calls.local_addr()?.port())),
    };
    info::write(&client, &about).await?;
    if let Err(error) = claim::clear_expired(&client, apimachinery::clock::timestamp()).await {
        log::warn!("expired tokens were not deleted: {error}");
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
        pod_requests: Some(pod_requests(&api)),
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
    let csi_names = options.csi.names(&options.advertise);
    let of_csi = csi::serve(csi_listener, &bridge, &authority, csi_names, client.clone(), Arc::clone(&gate));
    let page_names = options.page.names(&options.advertise);
    let of_page = page::serve(page, &bridge, &authority, page_names, client.clone(), Arc::clone(&gate));
    let context = Arc::new(ListenerContext::new(bridge.clone(), Arc::clone(&authority), client.clone()));
    tokio::select! {
        never = steps::part("links", listen::accept(links, link_tls, context, Arc::clone(&gate))) => match never {},
        never = steps::part("the API's port", api_port::serve(api.clone(), calls, api_tls, gate)) => match never {},
        failed = of_rules => match failed? {},
        failed = of_csi => match failed? {},
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

/// A client of the API in this process. `agent` names it in `managedFields`, as Kubernetes' parts are named.
fn local(api: &Server, user: &UserInfo, agent: &'static str) -> kube::Client {
    kube::Client::new(api.service(user.clone()).named(agent), "default")
}

/// The API for requests of pods that come by the link: authenticated by their own tokens, and limited like those of any
/// client at the API's port.
pub fn pod_requests(api: &Server) -> Arc<Upstream> {
    let api = api.clone();
    Arc::new(move |request: Request<Bytes>| {
        let api = api.clone();
        async move {
            let answer = match api.bearer(request.headers()) {
                Ok(user) => api.handle_stranger(&user, request.map(Full::new)).await,
                Err(error) => failure(&error),
            };
            Ok::<_, String>(answer.map(|body| body.map_err(|error| error.to_string()).boxed_unsync()))
        }
        .boxed()
    })
}
