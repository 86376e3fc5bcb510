//! The revisions of a DaemonSet: which one is of the template as it is now (K8s pkg/controller/daemon/update.go
//! `constructHistory`).

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::context::label;
use crate::workloads::history::{self, HASH_LABEL, History};
use crate::workloads::plan::Action;
use crate::workloads::pod::Pod;
use crate::workloads::selector::selects;
use crate::workloads::templated::{ControllerRevision, DaemonSet, Templated as _};
use crate::workloads::world::{Kind, World};

pub(super) struct Revisions<'a> {
    pub(super) current: Option<&'a ControllerRevision>,
    old: Vec<&'a ControllerRevision>,
    /// Actions that must come first.
    pub(super) actions: Vec<Action>,
}

impl<'a> Revisions<'a> {
    pub(super) fn new(world: &'a World, set: &DaemonSet, spec: &DaemonSetSpec, pods: &[&Pod]) -> Self {
        let owner = (Kind::DaemonSet, &set.metadata);
        let Some(template) = set.digest() else { return Self { current: None, old: Vec::new(), actions: Vec::new() } };
        let selected = |one: &ObjectMeta| selects(&spec.selector, one.labels.as_ref());
        let history = History::new(world, owner, selected, template);
        let number = history.next_number();
        let current = history.same.last().copied();
        let mut actions = history.actions;
        if let (true, Some(current)) = (actions.is_empty(), current) {
            actions = only(current, &history.same, pods);
            if actions.is_empty() && current.revision < number {
                actions.push(history::set_number(current, number));
            }
        }
        let mut revisions = Self { current, old: history.others, actions };
        if revisions.current.is_none() && revisions.actions.is_empty() {
            let Some(read) = world.template(Kind::DaemonSet, &set.metadata) else {
                revisions.actions.push(Action::read(Kind::DaemonSet, &set.metadata));
                return revisions;
            };
            let hash = read.hash(set.status.as_ref().and_then(|status| status.collision_count));
            match world.controller_revisions.get(&history::key(&set.metadata, &hash)) {
                // An orphan with another selector, or another owner's revision: it has the same template.
                Some(known) if history::is_of(known, template) => revisions.current = Some(known),
                Some(_) => revisions.actions.extend(count_collision(set)),
                None => revisions.actions.push(history::create(owner, read, (HASH_LABEL, hash.as_str()), number)),
            }
        }
        revisions
    }

    /// Deletes the oldest revisions beyond the limit that have no pods.
    pub(super) fn clean_up(&self, spec: &DaemonSetSpec, pods: &[&Pod]) -> Vec<Action> {
        let lives: BTreeSet<&str> = pods.iter().filter_map(|pod| label(pod, HASH_LABEL)).collect();
        History::clean_up(&self.old, spec.revision_history_limit.unwrap_or(10), &lives)
    }
}

/// Keeps one of several equal revisions; all their pods get the label of that one.
fn only(current: &ControllerRevision, same: &[&ControllerRevision], pods: &[&Pod]) -> Vec<Action> {
    let doubles = same.iter().filter(|one| one.metadata.uid != current.metadata.uid);
    let doubles: Vec<Action> = doubles.map(|one| Action::delete(Kind::ControllerRevision, &one.metadata)).collect();
    if doubles.is_empty() {
        return doubles;
    }
    let hash = history::hash(current);
    let patch = json!({"metadata": {"labels": {HASH_LABEL: hash}}});
    let named_otherwise =
        pods.iter().filter(|pod| same.iter().any(|one| label(pod, HASH_LABEL) == Some(history::hash(one))));
    let renamed = named_otherwise.filter(|pod| label(pod, HASH_LABEL) != Some(hash));
    renamed.map(|pod| Action::merge(Kind::Pod, &pod.metadata, patch.clone())).chain(doubles).collect()
}

/// Another revision has the name that the next one would have: counted, so that it is called otherwise.
fn count_collision(set: &DaemonSet) -> Option<Action> {
    let old = set.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.collision_count = Some(old.collision_count.unwrap_or_default().saturating_add(1));
    Action::status(Kind::DaemonSet, &set.metadata, &old, &new)
}
