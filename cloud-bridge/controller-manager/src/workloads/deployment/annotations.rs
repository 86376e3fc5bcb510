//! Annotations of a Deployment on its ReplicaSets: the revision and earlier ones, and its number of replicas.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::bounds::max_surge;
use super::context::Context;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that are not copied from the Deployment to its ReplicaSet.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// The longest list of revisions that a ReplicaSet had before.
const HISTORY_MAX: usize = 2000;
type Annotations = BTreeMap<String, String>;

/// The revision of a ReplicaSet; 0 if it is missing or malformed.
pub(super) fn revision(meta: &ObjectMeta) -> i64 {
    annotation(meta, REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

pub(super) fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// The revision that the new ReplicaSet has at least: one more than the old ones.
fn next_revision(context: &Context<'_>) -> i64 {
    context.sets.old.iter().map(|set| revision(&set.metadata)).max().unwrap_or_default().saturating_add(1)
}

/// The annotations of the new ReplicaSet, made out of those that it has (K8s `SetNewReplicaSetAnnotations`).
pub(super) fn annotations(context: &Context<'_>, mut annotations: Annotations, exists: bool) -> Annotations {
    let own = context.deployment.metadata.annotations.iter().flatten();
    let copied = own.filter(|(name, _)| !OWN.contains(&name.as_str()));
    annotations.extend(copied.map(|(name, value)| (name.clone(), value.clone())));
    let before = annotations.get(REVISION).cloned();
    let Ok(old) = before.as_deref().unwrap_or("0").parse::<i64>() else { return annotations };
    let new = next_revision(context);
    if old < new {
        annotations.insert(REVISION.to_owned(), new.to_string());
        // It was the newest before: this is a rollback to it.
        if let Some(before) = before {
            remember(&mut annotations, &before);
        }
    }
    if !exists {
        annotations.extend(replica_annotations(context));
    }
    annotations
}

/// Adds a revision to those that a ReplicaSet had before; the oldest ones go when the list gets too long.
fn remember(annotations: &mut Annotations, before: &str) {
    let history = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut parts: Vec<&str> = history.split(',').filter(|part| !part.is_empty()).collect();
    parts.push(before);
    let length = |parts: &[&str]| parts.iter().map(|part| part.len() + 1).sum::<usize>().saturating_sub(1);
    while length(&parts) > HISTORY_MAX && parts.len() > 1 {
        parts.remove(0);
    }
    annotations.insert(HISTORY.to_owned(), parts.join(","));
}

/// The annotations by which scaling is distinguished from a rollout.
pub(super) fn replica_annotations(context: &Context<'_>) -> [(String, String); 2] {
    let most = context.replicas() + max_surge(context);
    [(DESIRED.to_owned(), context.replicas().to_string()), (MAX.to_owned(), most.to_string())]
}
