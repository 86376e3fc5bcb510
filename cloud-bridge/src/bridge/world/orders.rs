//! Orders of jobs that nodes should hold, and the round of their reading. Pure.

use std::collections::HashMap;

use edge_protocol::message::ObjectKey;

use super::round::Round;
use crate::bridge::told::Group;

/// All orders.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// The orders were read in this round of readings or later.
    pub(super) told: Round,
    /// Round in which they were requested last.
    asked: Round,
    /// Orders of the nodes that have some.
    pub(super) of_node: HashMap<String, Group>,
}

impl Orders {
    /// Whether they are at least as new as the state of a node that connected in this round.
    pub(super) fn are_of(&self, round: Round) -> bool {
        self.told >= round
    }

    /// Whether the node should hold this.
    pub(super) fn has(&self, node: &str, key: &ObjectKey, uid: &str) -> bool {
        let told = self.of_node.get(node).and_then(|group| group.get(key));
        told.is_some_and(|told| told.digest.uid == uid)
    }

    /// Whether to read them again for a node that takes orders and connected in this round: only if they were not
    /// requested since.
    pub(super) fn are_stale(&mut self, takes: bool, round: Round, present: Round) -> bool {
        let stale = takes && self.asked < round;
        if stale {
            self.asked = present;
        }
        stale
    }
}
