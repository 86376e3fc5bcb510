//! Follows the Node objects of bridged nodes. While a node is connected its object is what it reported last: a
//! deleted one is registered again, one that a controller took for dead is called alive.

use std::pin::pin;
use std::sync::Weak;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use super::Shared;
use super::reports::BRIDGED_LABEL;
use super::watched::WatchedNode;

/// Follows until the bridge is gone.
pub(super) async fn run(shared: Weak<Shared>, client: Client) {
    let nodes: Api<WatchedNode> = Api::all(client);
    let config = watcher::Config::default().labels(BRIDGED_LABEL);
    let mut events = pin!(watcher(nodes, config).default_backoff());
    while let Some(event) = events.next().await {
        let Some(shared) = shared.upgrade() else { return };
        match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => {
                if let Some(session) = node.session() {
                    shared.session_seen(node.name(), session);
                }
                if node.ready() == "Unknown" {
                    shared.known(node.name()).map(|node| node.rewrite());
                }
            }
            Ok(Event::Delete(node)) => shared.deleted(node.name()),
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => log::warn!("watching nodes: {error}"),
        }
    }
}
