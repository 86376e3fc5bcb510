//! Which nodes may get an object that several nodes use: each only after the API has allowed it in that node's name.
//! The object is watched in the name of one of them, whose right does not extend to the others. Pure.

use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::shared::{Shared, Value, size};
use super::{Effect, World};
use crate::bridge::pod_references::{
    DEVICE_VIEWS, NODE_LABELS, POLICY_VIEWS, RULE_VIEWS, RUNTIME_CLASS, SERVICE_LINKS, SERVICE_VIEWS,
};
use crate::bridge::sites::SITE_VIEW;

/// A node whose pods name an object.
#[derive(Debug)]
pub(super) struct User {
    /// Number of its pods that name it.
    pub(super) pods: usize,
    pub(super) standing: Standing,
}

/// Answer of the API to a node's request for the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The question is under way. Pods wait for it as for the object.
    Asked,
    Admitted,
    /// The API has refused, or did not answer. Pods no longer wait; a list stays incomplete, because the node may hold
    /// the object from an earlier time. The question is repeated.
    Refused,
}

/// Whether the API allows only some nodes to read this. Services and runtime classes are readable by all nodes. The
/// bridge reads endpoints, policies, neighbours, devices and rules in its own name. Labels of a node are used by one
/// pod.
pub(super) fn is_guarded(key: &ObjectKey) -> bool {
    let free =
        [SERVICE_LINKS, SERVICE_VIEWS, POLICY_VIEWS, DEVICE_VIEWS, RULE_VIEWS, SITE_VIEW, RUNTIME_CLASS, NODE_LABELS];
    !free.contains(&key.kind.as_str())
}

impl World {
    /// The API allows the node to read the object.
    pub fn admitted(&mut self, node: &str, key: &ObjectKey) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(shared) = self.shared.get_mut(key) else { return effects };
        let Some(user) = shared.users.get_mut(node) else { return effects };
        if user.standing != Standing::Admitted {
            user.standing = Standing::Admitted;
            match &shared.value {
                Value::Present(object) if self.rooms.take(node, key, size(object)) => {
                    effects.push(Effect::Set { node: node.to_owned(), object: Arc::clone(object) });
                }
                // It was dropped, because the nodes that named it before had no room for it.
                Value::Absent if self.rooms.waits(&shared.reader, key) => {
                    shared.read_again(self.round, key, &mut effects);
                }
                _ => {}
            }
            // The reader for all should be a node with the right to read.
            let reader = shared.reader.clone();
            let standing = shared.users.get(&reader).map(|user| user.standing);
            if standing.is_none_or(|standing| standing == Standing::Refused) {
                // Its own watch ends here, so further questions are needed.
                if standing.is_some() {
                    effects.push(Effect::Admit { key: key.clone(), node: reader });
                }
                shared.read_by_another(self.round, key, &mut effects);
            }
        }
        self.settle(node, &mut effects);
        effects
    }

    /// The API refuses, or does not answer. True if the question should be repeated, because the node still uses the
    /// object.
    pub fn not_admitted(&mut self, node: &str, key: &ObjectKey) -> (Vec<Effect>, bool) {
        let user = self.shared.get_mut(key).and_then(|shared| shared.users.get_mut(node));
        let Some(user) = user.filter(|user| user.standing != Standing::Admitted) else { return (Vec::new(), false) };
        user.standing = Standing::Refused;
        let mut effects = Vec::new();
        self.settle(node, &mut effects);
        (effects, true)
    }

    /// The API refuses the object to the node in whose name it is watched: another node that was not refused, if there
    /// is one, reads it from now on. The known state stays.
    pub fn object_refused(&mut self, key: &ObjectKey) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(shared) = self.shared.get_mut(key).filter(|_| is_guarded(key)) else { return self.object_failed(key) };
        let others =
            shared.users.iter().any(|(node, user)| *node != shared.reader && user.standing != Standing::Refused);
        if !others {
            return self.object_failed(key);
        }
        let refused = shared.reader.clone();
        if let Some(user) = shared.users.get_mut(&refused) {
            user.standing = Standing::Refused;
            effects.push(Effect::Admit { key: key.clone(), node: refused.clone() });
        }
        shared.read_by_another(self.round, key, &mut effects);
        self.settle(&refused, &mut effects);
        effects
    }
}

impl Shared {
    /// Makes another node the reader: preferably one that is allowed to read.
    pub(super) fn read_by_another(&mut self, round: u64, key: &ObjectKey, effects: &mut Vec<Effect>) {
        let others = || self.users.iter().filter(|(node, _)| **node != self.reader);
        let with = |standing| others().find(|(_, user)| user.standing == standing);
        let next = with(Standing::Admitted).or_else(|| with(Standing::Asked)).or_else(|| others().next());
        if let Some((next, _)) = next {
            self.reader = next.clone();
            // The bridge reads these in its own name, whichever node needs them.
            if [SERVICE_VIEWS, POLICY_VIEWS].contains(&key.kind.as_str()) {
                return;
            }
            self.started = round;
            if let Value::Failed = self.value {
                self.value = Value::Pending;
            }
            effects.push(Effect::Watch { key: key.clone(), node: self.reader.clone() });
        }
    }

    /// Whether pods of this node still wait for it.
    pub(super) fn is_pending_for(&self, node: &str) -> bool {
        matches!(self.value, Value::Pending) || self.standing(node) == Some(Standing::Asked)
    }

    /// Whether the known state may be older than that of the node.
    pub(super) fn is_late_for(&self, node: &str, round: u64) -> bool {
        self.told < round || self.standing(node).is_some_and(|standing| standing != Standing::Admitted)
    }

    pub(super) fn standing(&self, node: &str) -> Option<Standing> {
        self.users.get(node).map(|user| user.standing)
    }
}
