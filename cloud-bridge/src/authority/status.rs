//! State of the authority, and the nodes that a rotation has not reached.

use std::path::Path;

use anyhow::Context;
use apimachinery::meta::rfc3339;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use serde::Serialize;

use crate::bridge::requests::Requests;
use crate::bridge::{BRIDGED_LABEL, TRUST_ANNOTATION};
use crate::nodes::{PAGE, readiness};
use crate::operator;
use crate::output::table;
use crate::pki::authority::Authority;
use crate::pki::rotation::{Rotation, Trust};

/// A node that a rotation has not reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) node: String,
    /// Status of its condition Ready: True, False or Unknown.
    pub(super) ready: String,
    /// `old`, `both`, or `unknown` if it has not connected since the rotation began.
    pub(super) trusts: &'static str,
}

/// What is known of the authority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    /// SHA-256 of the certificate of the authority in use.
    pub(super) authority: String,
    /// SHA-256 of the certificate of the new one, during a rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
    /// When the last rotation began, and when all bridges trust the new authority alone, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) began: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finished: Option<String>,
    /// Number of the nodes of the bridge.
    pub(super) nodes: usize,
    /// Those that do not trust the new authority or, after the end, still trust the old one.
    pub(super) left: Vec<Line>,
}

/// Reads it.
///
/// # Errors
/// The authority cannot be read, or the API does not answer.
pub(super) async fn look(client: &Client, folder: Option<&Path>) -> anyhow::Result<State> {
    let authority = operator::authority(client, folder).await?;
    let mut state = of_authority(&authority);
    let see = |node: Node| {
        state.nodes += 1;
        state.left.extend(authority.rotation().and_then(|rotation| left(&node, rotation)));
        true
    };
    let bridged = format!("{BRIDGED_LABEL}=true");
    Requests::new(client.clone()).each("/api/v1/nodes", &bridged, PAGE, see).await.context("listing nodes")?;
    Ok(state)
}

fn of_authority(authority: &Authority) -> State {
    let time = |millis: u64| i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    let rotation = authority.rotation();
    State {
        authority: authority.fingerprint(),
        next: authority.next_fingerprint(),
        began: rotation.and_then(|rotation| time(rotation.began_ms)).map(rfc3339),
        finished: rotation.and_then(|rotation| rotation.finished_ms).and_then(time).map(rfc3339),
        ..State::default()
    }
}

/// The line of a node that a rotation has not reached.
fn left(node: &Node, rotation: &Rotation) -> Option<Line> {
    let mark = node.metadata.annotations.as_ref().and_then(|all| all.get(TRUST_ANNOTATION));
    let trust = mark.and_then(|mark| rotation.of_mark(mark));
    let goal = if rotation.lasts() { Trust::Both } else { Trust::New };
    let trusts = trust.map_or("unknown", Trust::text);
    let name = node.metadata.name.clone().unwrap_or_default();
    (trust != Some(goal)).then(|| Line { node: name, ready: readiness(node), trusts })
}

impl State {
    /// What people read.
    pub(super) fn text(&self) -> String {
        let mut text = format!("authority      {}\n", self.authority);
        let mut add = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                text.push_str(&format!("{name:<14} {value}\n"));
            }
        };
        add("new authority", &self.next);
        add("rotation began", &self.began);
        add("finished", &self.finished);
        let reached = self.nodes - self.left.len();
        match (&self.began, &self.finished) {
            (None, _) => return text + "No rotation was made.\n",
            (Some(_), None) => text.push_str(&format!("{reached} of {} nodes trust both authorities.\n", self.nodes)),
            (Some(_), Some(_)) => {
                text.push_str(&format!("{reached} of {} nodes trust the new authority alone.\n", self.nodes));
            }
        }
        if self.left.is_empty() {
            return text;
        }
        let head = ["NODE", "READY", "TRUSTS"].map(str::to_owned).to_vec();
        let rows = self.left.iter().map(|line| vec![line.node.clone(), line.ready.clone(), line.trusts.to_owned()]);
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        let hint = if self.finished.is_none() {
            "A node renews when it connects to a bridge that was restarted after the rotation began. An offline node stays here.\n\
             If a Ready node stays old, its log says why: journalctl -u edge-runtime | grep renewed. A build that does not renew has\n\
             to be upgraded; it stays connected until you finish.\n"
        } else {
            "both: renews when it is connected. old, unknown: if it is not Ready, join it again with cloud-bridge token create NODE.\n"
        };
        text + "\n" + &table(&rows) + "\n" + hint
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;
    use crate::pki::rotation::Pair;

    fn rotation() -> Rotation {
        let next = Pair { certificate: String::new(), key: String::new() };
        Rotation::begin(next, UNIX_EPOCH + Duration::from_secs(1_000), Duration::ZERO, Duration::from_secs(60))
    }

    fn node(mark: Option<String>) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": "a", "annotations": {TRUST_ANNOTATION: mark.unwrap_or_default()}}}),
        )
        .unwrap()
    }

    #[test]
    fn nodes_are_left_until_they_reach_the_goal() {
        let during = rotation();
        let trusts = |mark: Option<String>, rotation: &Rotation| left(&node(mark), rotation).map(|line| line.trusts);
        assert_eq!(trusts(None, &during), Some("unknown"));
        assert_eq!(trusts(Some(during.mark(Trust::Old)), &during), Some("old"));
        assert_eq!(trusts(Some(during.mark(Trust::Both)), &during), None);
        let after = during.finish(UNIX_EPOCH + Duration::from_secs(2_000), Duration::ZERO);
        assert_eq!(trusts(Some(after.mark(Trust::Both)), &after), Some("both"));
        assert_eq!(trusts(Some(after.mark(Trust::New)), &after), None);
    }

    #[test]
    fn text_lists_what_is_left() {
        let line = Line { node: "edge-1".into(), ready: "False".into(), trusts: "old" };
        let state = State { began: Some("2026".into()), nodes: 3, left: vec![line], ..State::default() };
        let text = state.text();
        assert!(text.contains("2 of 3 nodes trust both") && text.contains("edge-1   False   old"), "{text}");
        assert!(State::default().text().ends_with("No rotation was made.\n"));
        let done = State { finished: Some("2027".into()), left: Vec::new(), ..state };
        assert!(done.text().ends_with("3 of 3 nodes trust the new authority alone.\n"), "{}", done.text());
    }
}
