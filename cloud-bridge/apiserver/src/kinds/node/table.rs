//! The row of a node.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name, or_none};
use apimachinery::json::{flag, items, text, text_entries};

/// Table of nodes.
pub(crate) const TABLE: Table<10> = Table {
    columns: [
        NAME,
        ("Status", "string", 0, "The status of the node"),
        ("Roles", "string", 0, "The roles of the node"),
        AGE,
        ("Version", "string", 0, "Version reported by the node."),
        ("Internal-IP", "string", 1, "First internal address."),
        ("External-IP", "string", 1, "First external address."),
        ("OS-Image", "string", 1, "Operating system reported by the node."),
        ("Kernel-Version", "string", 1, "Kernel reported by the node."),
        ("Container-Runtime", "string", 1, "Container runtime reported by the node."),
    ],
    row,
};

/// The cells of one node.
fn row(node: &Value, now: Timestamp) -> [Value; 10] {
    let status = &node["status"];
    let info = &status["nodeInfo"];
    let ready = items(status, "conditions").iter().find(|c| text(c, "type") == "Ready");
    let mut state = match ready.map(|c| text(c, "status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if flag(&node["spec"], "unschedulable") {
        state.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let found = items(status, "addresses").iter().find(|a| text(a, "type") == kind);
        or_none(found.map_or("", |a| text(a, "address")))
    };
    let known = |field: &str| match text(info, field) {
        "" => "<unknown>".to_owned(),
        text => text.to_owned(),
    };
    let mut kernel = known("kernelVersion");
    let architecture = text(info, "architecture");
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    [
        name(node),
        state.into(),
        or_none(&roles(node)),
        age(node, now),
        text(info, "kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        known("osImage").into(),
        kernel.into(),
        known("containerRuntimeVersion").into(),
    ]
}

/// From `node-role.kubernetes.io/ROLE` and `kubernetes.io/role=ROLE` labels, sorted.
fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = text_entries(&node["metadata"], "labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then_some(value),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}
