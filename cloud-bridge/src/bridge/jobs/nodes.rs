//! The target nodes of a job, and which of them are connected, to this bridge or another.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::ObjectMeta;
use serde::Deserialize;

use super::order::Targets;
use crate::bridge::requests::Requests;
use crate::bridge::shared::Shared;
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

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Vec<Named>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: String,
}

#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
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
    let wanted = escaped(&wanted);
    let requests = Requests::new(shared.clients.own().clone());
    let (mut found, mut next) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("/api/v1/nodes?labelSelector={wanted}&limit={PAGE}&continue={}", escaped(&next));
        let page: Page = requests.get(&path).await?;
        found.extend(page.items.into_iter().filter_map(|node| Some((node.metadata.name?, true))));
        next = page.metadata.next;
        if next.is_empty() {
            return Ok(found);
        }
    }
}

/// Escapes a text for the query of a request.
fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_travel_whole() {
        assert_eq!(escaped("a in (b,c),!d=é"), "a%20in%20%28b%2Cc%29%2C%21d%3D%C3%A9");
    }
}
