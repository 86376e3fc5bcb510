//! Follows the Node objects of bridged nodes. Deleting one revokes the node. While a node is connected its object is
//! kept as it reported last: if a controller has marked it as dead, it is marked ready again. Also reads how long pods
//! of a silent node stay.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};

use super::node_access::{self, Access};
use super::shared::Shared;
use super::sites::Neighbour;
use super::slim::SlimNode;
use super::well_known::BRIDGED_LABEL;
use apimachinery::pace::in_slices;
use apimachinery::well_known::PAGE;

/// Pause before an unanswered question is repeated: a revoked node must be disconnected within ten seconds.
const AGAIN: Duration = Duration::from_secs(1);

/// Follows until the bridge ends.
pub(super) async fn run(shared: Weak<Shared>, client: Client) {
    let nodes: Api<SlimNode> = Api::all(client);
    let config = watcher::Config::default().page_size(PAGE).labels(BRIDGED_LABEL);
    let mut events = pin!(in_slices(watcher(nodes, config).default_backoff()));
    // Names in the list that is being read.
    let mut listed = HashSet::new();
    // Questions about nodes that the watch no longer shows; each is repeated until it is answered, and delays no other.
    let mut questions = FuturesUnordered::new();
    loop {
        let event = tokio::select! {
            event = events.next() => match event {
                Some(event) => event,
                None => return,
            },
            Some(()) = questions.next(), if !questions.is_empty() => continue,
        };
        let weak = Weak::clone(&shared);
        let Some(shared) = shared.upgrade() else { return };
        match event {
            Ok(Event::Apply(node)) => apply(&shared, &node),
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(node)) => {
                listed.insert(node.name().to_owned());
                apply(&shared, &node);
            }
            // A deletion without an event: the watch was interrupted.
            Ok(Event::InitDone) => {
                for name in shared.node_access.names() {
                    if !listed.contains(&name) {
                        questions.push(gone(Weak::clone(&weak), name));
                    }
                }
                shared.all_located(|name| listed.contains(name));
                shared.pod_ranges.retain(|name| listed.contains(name));
                shared.attachments.retain(|name| listed.contains(name));
                listed = HashSet::new();
                for name in shared.autonomy.listed() {
                    shared.reconcile_tolerations(&name);
                }
            }
            Ok(Event::Delete(node)) => {
                shared.located(node.name(), None);
                shared.pod_ranges.set(node.name(), &[]);
                shared.attachments.gone(node.name());
                questions.push(gone(weak, node.name().to_owned()));
            }
            Err(error) => log::warn!("watching nodes: {error}"),
        }
    }
}

fn apply(shared: &Arc<Shared>, node: &SlimNode) {
    shared.access_changed(node.name(), Access::of(&node.metadata));
    shared.located(node.name(), Neighbour::of(&node.metadata, node.pod_cidrs()));
    shared.pod_ranges.set(node.name(), node.pod_cidrs());
    shared.attachments.saw(node);
    if let Some(session) = node.session() {
        shared.nodes.session_seen(node.name(), session);
    }
    if let Some(seen) = &shared.settings.node_seen {
        seen(node);
    }
    if shared.autonomy.node(node) {
        shared.reconcile_tolerations(node.name());
    }
    shared.jobs.node(node);
    let silent = node.ready() == "Unknown";
    shared.devices.silent.see(node.name(), silent, node.has_stale_devices());
    if silent {
        shared.nodes.get(node.name()).map(|node| node.rewrite());
    }
}

/// The watch no longer shows a node. It may only have lost its label, so the API is asked until it answers: a revoked
/// node must not stay connected because the API was busy.
async fn gone(shared: Weak<Shared>, name: String) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        match node_access::look_up(shared.clients.own(), &name).await {
            Ok(None) => {
                log::info!("node {name} was deleted");
                shared.autonomy.forget(&name);
                return shared.deleted(&name);
            }
            Ok(Some(access)) => return shared.access_changed(&name, access),
            Err(error) => log::warn!("{error}"),
        }
        drop(shared);
        tokio::time::sleep(AGAIN).await;
    }
}
