//! Follows the Node objects of bridged nodes. One that is deleted sends its node away; while a node is connected its
//! object is what it reported last: one that a controller took for dead is called alive. Also reads how long a node's
//! pods are to be left alone when it is silent.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Weak};

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use super::Shared;
use super::members::{self, Membership};
use super::reports::BRIDGED_LABEL;
use super::watched::WatchedNode;

/// Follows until the bridge is gone.
pub(super) async fn run(shared: Weak<Shared>, client: Client) {
    let nodes: Api<WatchedNode> = Api::all(client);
    let config = watcher::Config::default().labels(BRIDGED_LABEL);
    let mut events = pin!(watcher(nodes, config).default_backoff());
    // Names of a list that is being read.
    let mut listed = HashSet::new();
    while let Some(event) = events.next().await {
        let Some(shared) = shared.upgrade() else { return };
        match event {
            Ok(Event::Apply(node)) => apply(&shared, &node),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(node)) => {
                listed.insert(node.name().to_owned());
                apply(&shared, &node);
            }
            // A deletion that no event told: the watch was interrupted.
            Ok(Event::InitDone) => {
                for name in shared.members.names() {
                    if !listed.contains(&name) {
                        gone(&shared, &name).await;
                    }
                }
                listed = HashSet::new();
                shared.autonomy.listed();
            }
            Ok(Event::Delete(node)) => gone(&shared, node.name()).await,
            Err(error) => log::warn!("watching nodes: {error}"),
        }
    }
}

fn apply(shared: &Arc<Shared>, node: &WatchedNode) {
    shared.member(node.name(), Membership::of(&node.metadata));
    if let Some(session) = node.session() {
        shared.session_seen(node.name(), session);
    }
    if shared.autonomy.node(node) {
        shared.uphold(node.name());
    }
    if node.ready() == "Unknown" {
        shared.known(node.name()).map(|node| node.rewrite());
    }
}

/// The watch shows a node no more. One that only lost its label is there all the same, and what cannot be asked is not
/// concluded: the next list tells.
async fn gone(shared: &Arc<Shared>, name: &str) {
    match members::look_up(shared.clients.own(), name).await {
        Ok(None) => {
            log::info!("node {name} was deleted");
            shared.autonomy.forget(name);
            shared.deleted(name);
        }
        Ok(Some(membership)) => shared.member(name, membership),
        Err(error) => log::warn!("{error}"),
    }
}
