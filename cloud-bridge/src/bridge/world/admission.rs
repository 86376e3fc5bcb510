//! Which nodes may get an object that several nodes use: each only after the API has agreed in that node's name. The
//! object is watched in the name of one of them, whose right does not extend to the others. Pure.

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
    /// How many of its pods do.
    pub(super) pods: usize,
    pub(super) standing: Standing,
}

/// What the API says of a node that asks for the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is being asked. Pods wait for that as for the object.
    Asked,
    Admitted,
    /// It has said no, or nothing. Pods wait no longer; a list stays incomplete, for the node may hold the object from
    /// before. It is asked again.
    Refused,
}

/// Whether the API lets some nodes read this and others not. Services and runtime classes are for all nodes to read, and
/// endpoints, policies, neighbours, devices and rules the bridge reads in its own name; labels of a node are of one pod.
pub(super) fn is_guarded(key: &ObjectKey) -> bool {
    let free =
        [SERVICE_LINKS, SERVICE_VIEWS, POLICY_VIEWS, DEVICE_VIEWS, RULE_VIEWS, SITE_VIEW, RUNTIME_CLASS, NODE_LABELS];
    !free.contains(&key.kind.as_str())
}

impl World {
    /// The API, asked in the name of the node, lets it read the object.
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
                // It was dropped, because those who named it before had no room for it.
                Value::Absent if self.rooms.waits(&shared.reader, key) => {
                    shared.read_again(self.round, key, &mut effects);
                }
                _ => {}
            }
            // The reader for all should be a node with the right to read.
            let reader = shared.reader.clone();
            let standing = shared.users.get(&reader).map(|user| user.standing);
            if standing.is_none_or(|standing| standing == Standing::Refused) {
                // Its watch, which went on trying, ends here: from now on it has to be asked for.
                if standing.is_some() {
                    effects.push(Effect::Admit { key: key.clone(), node: reader });
                }
                shared.read_by_another(self.round, key, &mut effects);
            }
        }
        self.settle(node, &mut effects);
        effects
    }

    /// It does not, or says nothing. True if the node should be asked for again: it still uses the object.
    pub fn not_admitted(&mut self, node: &str, key: &ObjectKey) -> (Vec<Effect>, bool) {
        let user = self.shared.get_mut(key).and_then(|shared| shared.users.get_mut(node));
        let Some(user) = user.filter(|user| user.standing != Standing::Admitted) else { return (Vec::new(), false) };
        user.standing = Standing::Refused;
        let mut effects = Vec::new();
        self.settle(node, &mut effects);
        (effects, true)
    }

    /// The API refuses to tell the object to the node in whose name it is watched: another one, if there is one that was
    /// not refused, reads on. What is known of it stays.
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
    /// Makes another node the reader: one that may read, else one that perhaps may.
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

    /// Whether pods of this node still wait to be told of it.
    pub(super) fn is_pending_for(&self, node: &str) -> bool {
        matches!(self.value, Value::Pending) || self.standing(node) == Some(Standing::Asked)
    }

    /// Whether what is known of it may be older than what the node holds.
    pub(super) fn is_late_for(&self, node: &str, round: u64) -> bool {
        self.told < round || self.standing(node).is_some_and(|standing| standing != Standing::Admitted)
    }

    pub(super) fn standing(&self, node: &str) -> Option<Standing> {
        self.users.get(node).map(|user| user.standing)
    }
}
