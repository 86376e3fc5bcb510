//! ControllerRevisions: earlier templates of DaemonSets and StatefulSets, for rollbacks (K8s pkg/controller/history).
//! Pure.

use std::collections::BTreeSet;

use apimachinery::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::body::Body;
use super::claim::{claim, controller_reference};
use super::digest::Digest;
use super::plan::Action;
use super::template::{self, Template};
use super::templated::{ControllerRevision, Templated as _};
use super::world::{Kind, World};

/// The label with the revision of a pod, and with the hash of a revision.
pub(super) const HASH_LABEL: &str = "controller-revision-hash";
/// Maximum length of a set's name that is used completely in that of a revision.
const NAME_MAX: usize = 223;

/// Whether a revision keeps the template of this digest.
pub(super) fn is_of(revision: &ControllerRevision, template: Digest) -> bool {
    revision.digest() == Some(template)
}

/// The hash that identifies a revision.
pub(super) fn hash(revision: &ControllerRevision) -> &str {
    let label = revision.metadata.labels.as_ref().and_then(|labels| labels.get(HASH_LABEL));
    label.or(revision.metadata.name.as_ref()).map(String::as_str).unwrap_or_default()
}

/// What sets the older revision first.
pub(super) fn age(revision: &ControllerRevision) -> (i64, Option<Timestamp>, Option<&str>) {
    let created = revision.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (revision.revision, created, revision.metadata.name.as_deref())
}

/// The revisions of a set, by age, and the changes that must be made before they can be used.
pub(super) struct History<'a> {
    /// Revisions of the present template: the last one counts.
    pub(super) same: Vec<&'a ControllerRevision>,
    pub(super) others: Vec<&'a ControllerRevision>,
    pub(super) actions: Vec<Action>,
}

impl<'a> History<'a> {
    pub(super) fn new(
        world: &'a World,
        owner: (Kind, &ObjectMeta),
        selects: impl Fn(&ObjectMeta) -> bool,
        template: Digest,
    ) -> Self {
        let claim = claim(&world.controller_revisions, Kind::ControllerRevision, owner, None, selects, |_| true);
        let mut all = claim.claimed;
        all.sort_by_key(|revision| age(revision));
        let (same, others) = all.into_iter().partition(|revision| is_of(revision, template));
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

/// The key of the revision with this hash, for the set of these metadata.
pub(super) fn key(set: &ObjectMeta, hash: &str) -> ObjectKey {
    // Where it is cut there may be a dot, which no hyphen may follow.
    let name = format!("{}-{hash}", template::cut(set.name.as_deref().unwrap_or_default(), NAME_MAX));
    ObjectKey { namespace: set.namespace.clone().unwrap_or_default(), name }
}

/// Creates the revision of a template, for the set that has it, with its hash in the label. The revision contains a
/// strategic merge patch that restores the template.
pub(super) fn create(
    (kind, set): (Kind, &ObjectMeta),
    template: &Template,
    (label, hash): (&str, &str),
    number: i64,
) -> Action {
    let key = key(set, hash);
    let mut labels = template.metadata.labels.clone().unwrap_or_default();
    labels.insert(label.to_owned(), hash.to_owned());
    let mut object = json!({
        "apiVersion": Kind::ControllerRevision.api_version(), "kind": Kind::ControllerRevision.name(),
        "metadata": {"name": key.name, "labels": labels, "ownerReferences": [controller_reference(kind, set)]},
        "data": {"spec": {"template": {"$patch": "replace", "metadata": template.metadata}}}, "revision": number,
    });
    if let (Some(metadata), Some(annotations)) =
        (apimachinery::json::object_mut(&mut object, "metadata"), &template.owner_annotations)
    {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    let body = Body::sharing(object, &["data", "spec", "template", "spec"], &template.spec);
    Action::create(Kind::ControllerRevision, &key.namespace, body)
}

#[cfg(test)]
mod tests {
    use super::super::plan::Write;
    use super::*;

    #[test]
    fn the_name_of_a_revision_is_one_that_the_api_takes() {
        for name in ["web".to_owned(), format!("{}.{}", "a".repeat(222), "b".repeat(20)), "a".repeat(253)] {
            let meta = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
            let key = key(&meta, "58cb44d795");
            assert!(apimachinery::names::dns_subdomain(&key.name).is_empty(), "{}", key.name);
        }
    }

    #[test]
    fn revision_makes_its_template_again() {
        let wanted = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}});
        let owner = json!({"metadata": {"annotations": {"c": "d"}}});
        let template = Template::read(&owner, &wanted).unwrap();
        let set = ObjectMeta { name: Some("web".to_owned()), ..ObjectMeta::default() };
        let action = create((Kind::DaemonSet, &set), &template, (HASH_LABEL, "x"), 3);
        let Write::Create(body) = &action.write else { panic!("{action:?}") };
        let revision = body.value();
        let mut patch = wanted.clone();
        patch["$patch"] = "replace".into();
        assert_eq!((&revision["data"], &revision["revision"]), (&json!({"spec": {"template": patch}}), &json!(3)));
        assert_eq!(revision["metadata"]["labels"], json!({"a": "b", HASH_LABEL: "x"}));
        assert_eq!(revision["metadata"]["annotations"], owner["metadata"]["annotations"]);
        assert_eq!(revision["metadata"]["name"], "web-x");
        let read: ControllerRevision = serde_json::from_value(revision).unwrap();
        let digest = Digest::of(&serde_json::from_value(wanted).unwrap(), None);
        assert!(is_of(&read, digest), "it is found again");
    }
}
