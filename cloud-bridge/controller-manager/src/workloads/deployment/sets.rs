//! The ReplicaSets of a Deployment: the new one, the old ones, what they add up to, and which old ones are forgotten.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::workloads::replica_set::replicas;

/// The label that tells the pods of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

pub(super) struct Sets<'a> {
    /// The one with the template of the Deployment, if there is one: the oldest of them.
    pub(super) new: Option<&'a ReplicaSet>,
    /// The others, the oldest first.
    pub(super) old: Vec<&'a ReplicaSet>,
}

impl<'a> Sets<'a> {
    pub(super) fn new(spec: &DeploymentSpec, mut sets: Vec<&'a ReplicaSet>) -> Self {
        sets.sort_by_key(|set| age(set));
        let same = |set: &&ReplicaSet| template(set).is_some_and(|template| is_same(template, &spec.template));
        let new = sets.iter().position(same).map(|place| sets.remove(place));
        Self { new, old: sets }
    }

    /// The old ones and the new one.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a ReplicaSet> + use<'a, '_> {
        self.old.iter().copied().chain(self.new)
    }

    /// Those that want pods.
    pub(super) fn active(&self) -> Vec<&'a ReplicaSet> {
        self.all().filter(|set| wanted(set) > 0).collect()
    }

    pub(super) fn active_old(&self) -> Vec<&'a ReplicaSet> {
        self.old.iter().copied().filter(|set| wanted(set) > 0).collect()
    }

    /// The pods that all of them want together. Sums are wider than the numbers: each of these may be as large as it can.
    pub(super) fn wanted(&self) -> i64 {
        self.all().map(wanted).sum()
    }

    /// One number of their statuses, added up.
    pub(super) fn sum(&self, number: impl Fn(&ReplicaSetStatus) -> i32) -> i64 {
        self.all().filter_map(|set| set.status.as_ref()).map(|status| i64::from(number(status))).sum()
    }
}

/// The number of pods that a ReplicaSet wants.
pub(super) fn wanted(set: &ReplicaSet) -> i64 {
    set.spec.as_ref().map(replicas).unwrap_or_default().into()
}

/// The number of its pods that are available.
pub(super) fn available(set: &ReplicaSet) -> i64 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default().into()
}

/// What sets the older one first.
pub(super) fn age(set: &ReplicaSet) -> (Option<jiff::Timestamp>, Option<&str>) {
    (set.metadata.creation_timestamp.as_ref().map(|time| time.0), set.metadata.name.as_deref())
}

fn template(set: &ReplicaSet) -> Option<&PodTemplateSpec> {
    set.spec.as_ref()?.template.as_ref()
}

/// Whether two templates differ in nothing but that label. Templates may be large, and a Deployment may have hundreds of sets:
/// nothing of those that differ is copied.
fn is_same(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    one.spec == other.spec
        && annotations(one) == annotations(other)
        && labels(one).eq(labels(other))
        && other_metadata(one) == other_metadata(other)
}

fn annotations(template: &PodTemplateSpec) -> Option<&BTreeMap<String, String>> {
    template.metadata.as_ref()?.annotations.as_ref()
}

fn labels(template: &PodTemplateSpec) -> impl Iterator<Item = (&String, &String)> {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    labels.into_iter().flatten().filter(|(name, _)| *name != HASH_LABEL)
}

fn other_metadata(template: &PodTemplateSpec) -> ObjectMeta {
    ObjectMeta { labels: None, annotations: None, ..template.metadata.clone().unwrap_or_default() }
}

/// What sets the larger one first, and of two equal ones the newer or the older one.
pub(super) fn by_size(sets: &mut [&ReplicaSet], newer_first: bool) {
    sets.sort_by(|a, b| {
        let size = Reverse(wanted(a)).cmp(&Reverse(wanted(b)));
        size.then_with(|| if newer_first { age(b).cmp(&age(a)) } else { age(a).cmp(&age(b)) })
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn template(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn templates_are_the_same_whatever_their_hash() {
        let wanted = template(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}));
        let labels = json!({"a": "b", HASH_LABEL: "x"});
        let set = |metadata: Value| template(json!({"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}));
        assert!(is_same(&set(json!({ "labels": labels })), &wanted));
        for other in [
            json!({"labels": {HASH_LABEL: "x"}}),
            json!({"labels": labels, "annotations": {"a": "b"}}),
            json!({"labels": labels, "finalizers": ["a"]}),
        ] {
            assert!(!is_same(&set(other.clone()), &wanted), "{other}");
        }
        let bare = |metadata: Value| template(json!({ "metadata": metadata }));
        assert!(is_same(&bare(Value::Null), &bare(json!({"labels": {}}))));
        assert!(!is_same(&bare(json!({"labels": {"a": "b"}})), &wanted));
    }
}
