//! State of Node objects that keeps jobs from their nodes: silence, and holds. Stores only such nodes.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bridge::slim::SlimNode;
use crate::bridge::well_known::is_held;

#[derive(Debug, Default)]
pub(super) struct Exceptions(Mutex<Sets>);

#[derive(Debug, Default)]
struct Sets {
    silent: HashSet<Box<str>>,
    held: HashSet<Box<str>>,
}

impl Exceptions {
    fn sets(&self) -> MutexGuard<'_, Sets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the state of a Node object. Returns whether it changed.
    pub(super) fn see(&self, node: &SlimNode) -> bool {
        let held = node.metadata.annotations.as_ref().is_some_and(is_held);
        // The node has been silent for a while, or never reported.
        let silent = !matches!(node.ready(), "True" | "False");
        self.set(node.name(), silent, held)
    }

    pub(super) fn set(&self, node: &str, silent: bool, held: bool) -> bool {
        let mut sets = self.sets();
        let silent = put(&mut sets.silent, node, silent);
        put(&mut sets.held, node, held) || silent
    }

    pub(super) fn is_silent(&self, node: &str) -> bool {
        self.sets().silent.contains(node)
    }

    pub(super) fn is_held(&self, node: &str) -> bool {
        self.sets().held.contains(node)
    }
}

fn put(set: &mut HashSet<Box<str>>, node: &str, is: bool) -> bool {
    if set.contains(node) == is {
        return false;
    }
    if is { set.insert(node.into()) } else { set.remove(node) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_out_of_the_ordinary_is_kept() {
        let node = |ready: &str, hold: Option<&str>| -> SlimNode {
            let annotations = hold.map(|value| json!({"sampan.dev/hold": value}));
            let conditions = json!([{"type": "Ready", "status": ready}]);
            serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations},
                "status": {"conditions": conditions}}))
            .unwrap()
        };
        let all = Exceptions::default();
        assert!(!all.see(&node("True", None)) && !all.see(&node("False", Some("false"))));
        assert!(all.see(&node("Unknown", Some(""))) && all.is_silent("n") && all.is_held("n"));
        assert!(!all.see(&node("", Some("true"))), "one that was never heard of is silent, too");
        assert!(all.see(&node("True", None)) && all.sets().silent.is_empty() && all.sets().held.is_empty());
    }
}
