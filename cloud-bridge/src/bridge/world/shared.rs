//! One ConfigMap, Secret or other object that pods name: its users, its known state, and how fresh that is. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use edge_protocol::message::ObjectKey;

use super::effect::Effect;
use super::round::Round;
use crate::bridge::told::kinds::{Kind, Reader};
use crate::bridge::told::{Group, Told};

/// A shared object.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) value: Value,
    /// Nodes whose pods name it.
    pub(super) users: BTreeMap<String, User>,
    /// The node in whose name it is watched.
    pub(super) reader: String,
    /// The round in which its present watch was started.
    pub(super) started: Round,
    /// The round of the watch that delivered the value, which is of that round or later.
    pub(super) told: Round,
    /// What the volume of a claim names, in order; see [`volumes`](super::volumes).
    pub(super) names: Box<[Arc<ObjectKey>]>,
}

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
    /// The node has no room for the name. The API was not asked for it, and pods do not wait.
    Unasked,
    /// The question is under way. Pods wait for it as for the object.
    Asked,
    Admitted,
    /// The API has refused, or did not answer. Pods no longer wait; a list stays incomplete, because the node may hold
    /// the object from an earlier time. The question is repeated.
    Refused,
}

#[derive(Debug)]
pub(super) enum Value {
    Pending,
    /// The API does not answer. Pods no longer wait for it; a list stays incomplete.
    Failed,
    Absent,
    Present(Arc<Told>),
    Group(Group),
}

impl Value {
    /// The objects that nodes receive for it.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Told>> {
        let (one, group) = match self {
            Self::Present(object) => (Some(object), None),
            Self::Group(group) => (None, Some(group)),
            Self::Pending | Self::Failed | Self::Absent => (None, None),
        };
        one.into_iter().chain(group.into_iter().flat_map(Group::values))
    }
}

impl Shared {
    /// Requests an object again that was dropped. Pods wait for it as for one that was never read.
    pub(super) fn read_again(&mut self, round: Round, key: &ObjectKey, effects: &mut Vec<Effect>) {
        (self.value, self.started) = (Value::Pending, round);
        effects.push(Effect::Watch { key: key.clone(), node: self.reader.clone() });
    }

    /// Requests an object that was not read before, because no node had room for its name.
    pub(super) fn read_in_name_of(&mut self, node: &str, round: Round, key: &ObjectKey, effects: &mut Vec<Effect>) {
        node.clone_into(&mut self.reader);
        self.read_again(round, key, effects);
    }

    /// Makes another node the reader: preferably one that is allowed to read.
    pub(super) fn read_by_another(&mut self, round: Round, key: &ObjectKey, effects: &mut Vec<Effect>) {
        let users = self.users.iter().filter(|(_, user)| user.standing != Standing::Unasked);
        let others = || users.clone().filter(|(node, _)| **node != self.reader);
        let with = |standing| others().find(|(_, user)| user.standing == standing);
        let next = with(Standing::Admitted).or_else(|| with(Standing::Asked)).or_else(|| others().next());
        if let Some((next, _)) = next {
            self.reader = next.clone();
            // Its watch goes on, whichever node needs it.
            if Kind::of(key).is_some_and(|kind| kind.facts().reader == Reader::Bridge) {
                return;
            }
            self.started = round;
            if let Value::Failed = self.value {
                self.value = Value::Pending;
            }
            effects.push(Effect::Watch { key: key.clone(), node: self.reader.clone() });
        }
    }

    /// Whether no node has room for its name: it is not watched, and its value is [`Value::Absent`].
    pub(super) fn is_unread(&self) -> bool {
        self.users.values().all(|user| user.standing == Standing::Unasked)
    }

    /// Whether pods of this node still wait for it.
    pub(super) fn is_pending_for(&self, node: &str) -> bool {
        match self.standing(node) {
            Some(Standing::Unasked) => false,
            Some(Standing::Asked) => true,
            _ => matches!(self.value, Value::Pending),
        }
    }

    /// Whether the known state may be older than that of the node.
    pub(super) fn is_late_for(&self, node: &str, round: Round) -> bool {
        match self.standing(node) {
            // It is as good as missing there.
            Some(Standing::Unasked) => false,
            Some(Standing::Admitted) | None => self.told < round,
            Some(Standing::Asked | Standing::Refused) => true,
        }
    }

    pub(super) fn standing(&self, node: &str) -> Option<Standing> {
        self.users.get(node).map(|user| user.standing)
    }
}

/// Whether the API allows only some nodes to read this.
pub(super) fn is_guarded(key: &ObjectKey) -> bool {
    Kind::of(key).is_none_or(|kind| kind.facts().guarded)
}

/// Size of an object, in bytes; 0 for those that every node may read.
pub(super) fn size(object: &Told) -> usize {
    if is_guarded(&object.digest.key) { object.text().text().len() } else { 0 }
}

/// The nodes that use an object.
pub(super) struct Users<'a>(pub(super) &'a BTreeMap<String, User>);

impl Users<'_> {
    /// Those that may receive it.
    pub(super) fn admitted(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter(|(_, user)| user.standing == Standing::Admitted).map(|(node, _)| node)
    }
}
