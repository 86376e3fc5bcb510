//! The mark in a DeviceStatus whose node is silent, and its removal. Pure.
//!
//! Values and state stay as they were, so that users see the last ones; `extensions["sampan.dev"].stale` says that they
//! may be outdated. If the state becomes `unknown` (an option), the previous one is in `stateWas`.

use sampan_json::SetField;
use serde_json::{Value, json};

use super::silence::Step;

/// Name in `status.extensions` under which the bridge notes which node reported.
pub(super) const OURS: &str = "sampan.dev";
/// Fields of the extension: the mark, and the previous state.
pub(super) const STALE: &str = "stale";
pub(super) const STATE_WAS: &str = "stateWas";
/// A state of a device.
const UNKNOWN: &str = "unknown";

fn ours(object: &Value) -> &Value {
    &object["status"]["extensions"][OURS]
}

/// Whether the status was reported by this node.
fn is_of(object: &Value, node: &str) -> bool {
    ours(object)["node"] == *node
}

fn patch(object: &Value, state: Option<Value>, ours: Value) -> Value {
    let version = &object["metadata"]["resourceVersion"];
    let mut status = json!({"extensions": {OURS: ours}});
    if let Some(state) = state {
        status.set("state", state);
    }
    json!({"metadata": {"resourceVersion": version}, "status": status})
}

/// The patch that marks a status as stale; `None` if it is marked, is another node's, or was written by a connection
/// newer than `session`. `unknown`: whether the state becomes `unknown` too.
pub(super) fn mark(object: &Value, node: &str, session: u64, unknown: bool) -> Option<Value> {
    let said = ours(object);
    if !is_of(object, node) || said[STALE] == true || said["session"].as_u64().is_some_and(|by| by > session) {
        return None;
    }
    let state = object["status"]["state"].as_str().filter(|state| unknown && *state != UNKNOWN);
    let mut ours = json!({ STALE: true });
    if let Some(state) = state {
        ours.set(STATE_WAS, state.into());
    }
    Some(patch(object, state.map(|_| UNKNOWN.into()), ours))
}

/// The patch that removes the mark; `None` without a mark of this node.
pub(super) fn clear(object: &Value, node: &str) -> Option<Value> {
    let said = ours(object);
    let was = said[STATE_WAS].as_str();
    let stands = said.get(STALE).is_some() || was.is_some();
    (stands && is_of(object, node)).then(|| patch(object, was.map(Value::from), json!({STALE: null, STATE_WAS: null})))
}

/// Whether this step writes a status. `bound`: the node to which its Device is bound now, if that is known.
pub(super) fn is_due(object: &Value, node: &str, step: Step, bound: impl FnOnce() -> Option<Box<str>>) -> bool {
    match step {
        Step::Mark => mark(object, node, u64::MAX, false).is_some(),
        // The values of a node are not the current ones of a Device that is bound to another.
        Step::Clear => clear(object, node).is_some() && bound().is_none_or(|bound| *bound == *node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_of_a_device_that_is_bound_elsewhere_stays() {
        let mut marked = object();
        marked.set_at(&["status", "extensions", OURS, STALE], true.into());
        let due = |step, bound: Option<&str>| is_due(&marked, "n", step, || bound.map(Into::into));
        assert!(!due(Step::Mark, None), "it is marked already");
        assert!(due(Step::Clear, None) && due(Step::Clear, Some("n")) && !due(Step::Clear, Some("m")));
        assert!(is_due(&object(), "n", Step::Mark, || None) && !is_due(&object(), "n", Step::Clear, || None));
    }

    fn object() -> Value {
        json!({"metadata": {"resourceVersion": "7"}, "status": {"state": "online", "twins": [1],
            "extensions": {OURS: {"node": "n", "session": 5, "seq": 9}, "example.com": 1}}})
    }

    #[test]
    fn values_and_state_are_left_alone() {
        let patch = mark(&object(), "n", 5, false).expect("a patch");
        let status = json!({"extensions": {OURS: {"stale": true}}});
        assert_eq!(patch, json!({"metadata": {"resourceVersion": "7"}, "status": status}));
        let mut marked = object();
        marked.set_at(&["status", "extensions", OURS, STALE], true.into());
        assert_eq!(mark(&marked, "n", 5, true), None, "once");
        let back = clear(&marked, "n").expect("a patch");
        assert_eq!(back["status"], json!({"extensions": {OURS: {"stale": null, "stateWas": null}}}));
        assert_eq!(clear(&object(), "n"), None);
    }

    #[test]
    fn a_state_becomes_unknown_and_what_it_was_again() {
        let patch = mark(&object(), "n", 5, true).expect("a patch");
        let status = json!({"state": "unknown", "extensions": {OURS: {"stale": true, "stateWas": "online"}}});
        assert_eq!(patch["status"], status);
        let mut marked = object();
        marked.set_at(&["status", "state"], "unknown".into());
        marked.set_at(&["status", "extensions", OURS, STALE], true.into());
        marked.set_at(&["status", "extensions", OURS, STATE_WAS], "online".into());
        assert_eq!(clear(&marked, "n").expect("a patch")["status"]["state"], "online");
        // The state was unknown before, or was never reported.
        let mut quiet = object();
        quiet.set_at(&["status", "state"], "unknown".into());
        assert_eq!(mark(&quiet, "n", 5, true).expect("a patch")["status"].get("state"), None);
    }

    #[test]
    fn d15_what_another_node_or_a_newer_connection_has_written_is_not_touched() {
        assert_eq!(mark(&object(), "m", 5, false), None);
        assert_eq!(mark(&object(), "n", 4, false), None);
        assert!(mark(&object(), "n", 6, false).is_some());
        for odd in [json!(null), json!({"status": 7}), json!({"status": {"extensions": []}}), json!([])] {
            assert_eq!((mark(&odd, "n", 9, true), clear(&odd, "n")), (None, None));
        }
        let mut other = object();
        other.set_at(&["status", "extensions", OURS, STALE], true.into());
        assert_eq!(clear(&other, "m"), None);
    }
}
