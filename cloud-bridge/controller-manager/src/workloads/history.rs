//! ControllerRevisions: what the templates of DaemonSets and StatefulSets were, so that one can go back to them (K8s
//! pkg/controller/history). Pure.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::key::ObjectKey;
use apimachinery::typed;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::claim::{claim, controller_reference};
use super::plan::Action;
use super::template;
use super::world::{Kind, World};

/// The label that tells which revision a pod is of, and a revision its hash.
pub(super) const HASH_LABEL: &str = "controller-revision-hash";
/// The longest name of a set that goes into that of a revision whole.
const NAME_MAX: usize = 223;

/// What a revision keeps: a strategic merge patch that makes the template again.
pub(super) fn data(template: &PodTemplateSpec) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(fields) = template.as_object_mut() {
        fields.insert("$patch".to_owned(), "replace".into());
    }
    json!({"spec": {"template": template}})
}

/// The template that a revision keeps.
pub(super) fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.get("spec")?.get("template")?.as_object()?;
    let fields: Map<String, Value> = template
        .iter()
        .filter(|(name, _)| *name != "$patch")
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    typed::read(&Value::Object(fields)).ok()
}

/// The hash that a revision goes by.
pub(super) fn hash(revision: &ControllerRevision) -> &str {
    let label = revision.metadata.labels.as_ref().and_then(|labels| labels.get(HASH_LABEL));
    label.or(revision.metadata.name.as_ref()).map(String::as_str).unwrap_or_default()
}

/// What sets the older revision first.
pub(super) fn age(revision: &ControllerRevision) -> (i64, Option<Timestamp>, Option<&str>) {
    let created = revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (revision.revision, created, revision.metadata.name.as_deref())
}

/// The revisions of a set, by age, and how they are to be changed before they can be used.
pub(super) struct History<'a> {
    /// Of the template as it is now: the one that counts is the last.
    pub(super) same: Vec<&'a ControllerRevision>,
    pub(super) others: Vec<&'a ControllerRevision>,
    pub(super) actions: Vec<Action>,
}

impl<'a> History<'a> {
    pub(super) fn new(
        world: &'a World,
        owner: (Kind, &ObjectMeta),
        selects: impl Fn(&ObjectMeta) -> bool,
        data: &Value,
    ) -> Self {
        let claim = claim(&world.controller_revisions, Kind::ControllerRevision, owner, None, selects, |_| true);
        let mut all = claim.claimed;
        all.sort_by_key(|revision| age(revision));
        let is_same = |revision: &&ControllerRevision| revision.data.as_ref().is_some_and(|kept| kept.0 == *data);
        let (same, others) = all.into_iter().partition(is_same);
        Self { same, others, actions: claim.actions }
    }

    /// The number that the newest revision has to have: one more than the others.
    pub(super) fn next_number(&self) -> i64 {
        self.others.last().map_or(1, |last| last.revision.saturating_add(1))
    }

    /// Deletes the oldest of `dead` beyond the limit, except the living.
    pub(super) fn clean_up(dead: &[&ControllerRevision], limit: i32, lives: &BTreeSet<&str>) -> Vec<Action> {
        let surplus = dead.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        let unused = dead.iter().filter(|revision| !lives.contains(hash(revision)));
        unused.take(surplus).map(|revision| Action::delete(Kind::ControllerRevision, &revision.metadata)).collect()
    }
}

/// Makes this revision the newest one.
pub(super) fn set_number(revision: &ControllerRevision, number: i64) -> Action {
    Action::merge(Kind::ControllerRevision, &revision.metadata, json!({"revision": number}))
}

/// A revision that there is not yet.
pub(super) struct New {
    pub(super) key: ObjectKey,
    pub(super) object: Value,
}

/// The revision of a template, for the set that has it, with its hash in this label. `collisions` is how often another had
/// the name.
pub(super) fn new(
    owner: (Kind, &ObjectMeta),
    template: &PodTemplateSpec,
    label: &str,
    number: i64,
    collisions: Option<i32>,
) -> New {
    let (kind, meta) = owner;
    let hash = template::hash(template, collisions);
    // Where it is cut there may be a dot, which no hyphen may follow.
    let name = format!("{}-{hash}", template::cut(meta.name.as_deref().unwrap_or_default(), NAME_MAX));
    let labels: BTreeMap<String, String> =
        template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    let mut object = json!({
        "apiVersion": Kind::ControllerRevision.api_version(), "kind": Kind::ControllerRevision.name(),
        "metadata": {"name": name, "labels": labels, "ownerReferences": [controller_reference(kind, meta)]},
        "data": data(template), "revision": number,
    });
    if let Some(metadata) = apimachinery::json::object_mut(&mut object, "metadata") {
        metadata.extend(meta.annotations.as_ref().map(|all| ("annotations".to_owned(), json!(all))));
        if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
            labels.insert(label.to_owned(), hash.into());
        }
    }
    New { key: ObjectKey { namespace: meta.namespace.clone().unwrap_or_default(), name }, object }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_revision_is_one_that_the_api_takes() {
        for name in ["web".to_owned(), format!("{}.{}", "a".repeat(222), "b".repeat(20)), "a".repeat(253)] {
            let meta = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
            let new = new((Kind::DaemonSet, &meta), &PodTemplateSpec::default(), HASH_LABEL, 1, None);
            assert!(apimachinery::names::dns_subdomain(&new.key.name).is_empty(), "{}", new.key.name);
        }
    }
}
