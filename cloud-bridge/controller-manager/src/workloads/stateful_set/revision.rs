//! The revisions of a StatefulSet: current and update (K8s pkg/controller/statefulset/stateful_set_control.go
//! `getStatefulSetRevisions`).

use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::context::{Context, REVISION_HASH_LABEL, label_of, name_of, revision_of};
use crate::workloads::history::{self, History};
use crate::workloads::plan::Action;
use crate::workloads::selector::selects;
use crate::workloads::templated::{ControllerRevision, StatefulSet, Templated as _};
use crate::workloads::world::{Kind, World};

pub(super) struct Revisions<'a> {
    pub(super) current: Option<&'a ControllerRevision>,
    pub(super) update: Option<&'a ControllerRevision>,
    all: Vec<&'a ControllerRevision>,
    /// Actions that must come first.
    pub(super) actions: Vec<Action>,
}

impl<'a> Revisions<'a> {
    pub(super) fn new(world: &'a World, set: &StatefulSet, spec: &StatefulSetSpec) -> Self {
        let owner = (Kind::StatefulSet, &set.metadata);
        let Some(template) = set.digest() else {
            return Self { current: None, update: None, all: Vec::new(), actions: Vec::new() };
        };
        let selected = |one: &ObjectMeta| selects(&spec.selector, one.labels.as_ref());
        let history = History::new(world, owner, selected, template);
        let (number, mut actions) = (history.next_number(), history.actions);
        let update = history.same.last().copied();
        if actions.is_empty() && set.metadata.deletion_timestamp.is_none() {
            match update {
                Some(update) if update.revision < number => actions.push(history::set_number(update, number)),
                Some(_) => {}
                None => actions.extend(create(world, set, number)),
            }
        }
        let mut all = history.others;
        all.extend(history.same);
        all.sort_by_key(|revision| history::age(revision));
        let named = set.status.as_ref().and_then(|status| status.current_revision.as_deref());
        let current = all.iter().copied().find(|revision| Some(name_of(revision)) == named).or(update);
        Self { current, update, all, actions }
    }

    /// Deletes the oldest revisions beyond the limit that no pod uses.
    pub(super) fn clean_up(&self, spec: &StatefulSetSpec, context: &Context<'_>) -> Vec<Action> {
        let Ok(limit) = usize::try_from(spec.revision_history_limit.unwrap_or(10)) else { return Vec::new() };
        let pods = context.replicas.values().chain(context.condemned.values()).map(|pod| revision_of(pod));
        let lives = |revision: &ControllerRevision| {
            name_of(revision) == name_of(context.current)
                || name_of(revision) == name_of(context.update)
                || pods.clone().any(|one| one == Some(label_of(revision)))
        };
        let dead: Vec<_> = self.all.iter().filter(|revision| !lives(revision)).collect();
        let surplus = dead.len().saturating_sub(limit);
        dead.into_iter().take(surplus).map(|dead| Action::delete(Kind::ControllerRevision, &dead.metadata)).collect()
    }
}

/// Creates the revision of the present template; if another has its name, counts the collision. Reads the template
/// first.
fn create(world: &World, set: &StatefulSet, number: i64) -> Option<Action> {
    let owner = (Kind::StatefulSet, &set.metadata);
    let Some(template) = world.template(owner.0, owner.1) else { return Some(Action::read(owner.0, owner.1)) };
    let status = set.status.clone().unwrap_or_default();
    let collisions = status.collision_count.unwrap_or_default();
    let hash = template.hash(Some(collisions));
    if world.controller_revisions.get(&history::key(&set.metadata, &hash)).is_none() {
        return Some(history::create(owner, template, (REVISION_HASH_LABEL, hash.as_str()), number));
    }
    let mut counted = status.clone();
    counted.collision_count = Some(collisions.saturating_add(1));
    Action::status(Kind::StatefulSet, &set.metadata, &status, &counted)
}
