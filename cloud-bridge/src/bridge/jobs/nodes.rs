//! The target nodes of a job, and which of them are connected, to this bridge or another.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::order::Targets;
use crate::bridge::requests::Requests;
use crate::bridge::shared::Shared;
use crate::bridge::slim::SlimNode;
use crate::bridge::well_known::BRIDGED_LABEL;
use apimachinery::selector::format_label_selector;

/// Number of nodes per page.
const PAGE: usize = 500;

/// Whether the node is connected to this bridge, and has said hello.
pub(super) fn is_here(shared: &Shared, node: &str) -> bool {
    shared.nodes.get(node).is_some_and(|node| node.takes_orders().is_some())
}

/// Whether the node is connected to any bridge, according to this one.
pub(super) fn is_connected(shared: &Shared, node: &str) -> bool {
    if shared.nodes.get(node).is_some_and(|here| here.link().is_some()) {
        return true;
    }
    // A bridge that runs alone writes no number on its nodes: a number belongs to another bridge.
    let elsewhere = shared.settings.replicated || shared.nodes.elsewhere(node) > 0;
    // A node that was here last is offline, perhaps not long enough to count as silent.
    elsewhere && !shared.nodes.was_here_last(node) && !shared.jobs.nodes.is_silent(node)
}

/// The nodes that a job targets; false for a name that is not a node of a bridge.
pub(super) async fn resolve(shared: &Arc<Shared>, targets: &Targets<'_>) -> kube::Result<BTreeMap<String, bool>> {
    let selector = match targets {
        Targets::Names(names) => {
            return Ok(names.iter().map(|name| ((*name).to_owned(), shared.node_access.has(name))).collect());
        }
        Targets::Selector(selector) => format_label_selector(selector),
    };
    let wanted = if selector.is_empty() { BRIDGED_LABEL.to_owned() } else { format!("{BRIDGED_LABEL},{selector}") };
    let mut found = BTreeMap::new();
    let requests = Requests::new(shared.clients.own().clone());
    let take = |node: SlimNode| {
        found.insert(node.name().to_owned(), true);
        true
    };
    requests.each("/api/v1/nodes", &wanted, PAGE, take).await?;
    Ok(found)
}
