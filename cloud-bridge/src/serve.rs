//! `cloud-bridge serve`: the bridge on a Kubernetes API that is there already. Wiring only.

use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;

use crate::bridge::clients::Clients;
use crate::bridge::{Bridge, Settings};
use crate::cli::{self, Serve};
use crate::info::{self, Info};
use crate::listen::{self, Door};
use crate::pki::{keep, tls, token};
use crate::signal;

/// Runs until a signal.
pub async fn run(options: Serve) -> anyhow::Result<()> {
    let client = cli::client(options.kubeconfig.clone()).await?;
    let cluster = info::cluster(&client).await.context("asking the API which cluster it is")?;
    let authority = keep::in_cluster(&client).await?;
    let listener = listen::bind(options.listen).await?;
    let url = info::url(listener.local_addr()?, &options.advertise);
    let about = Info { url, authority: authority.fingerprint() };
    info::write(&client, &about).await?;
    if let Err(error) = token::clear_expired(&client, Timestamp::now()).await {
        log::warn!("expired join tokens were not cleared away: {error}");
    }
    let bridge = Bridge::start(Clients::impersonating(client.clone()), cluster, Settings::default());
    let tls = tls::link_config(&authority, &info::addresses(&[options.listen], &options.advertise))?;
    log::info!("nodes connect to {}", about.url);
    let door = Arc::new(Door { bridge, authority, client });
    tokio::select! {
        () = listen::accept(listener, tls, door) => {}
        signal = signal::wait() => log::info!("{} received, ending", signal?),
    }
    Ok(())
}
