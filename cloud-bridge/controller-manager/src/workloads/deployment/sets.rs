//! The ReplicaSets of a Deployment: the new one, the old ones, their sums, and the old ones to delete.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::ReplicaSetStatus;

use crate::workloads::digest::Digest;
use crate::workloads::replica_set::replicas;
use crate::workloads::templated::{ReplicaSet, Templated as _};

pub(super) struct Sets<'a> {
    /// The one with the template of the Deployment, if there is one: the oldest of them.
    pub(super) new: Option<&'a ReplicaSet>,
    /// The others, the oldest first.
    pub(super) old: Vec<&'a ReplicaSet>,
}

impl<'a> Sets<'a> {
    /// `template`: that of the Deployment.
    pub(super) fn new(template: Option<Digest>, mut sets: Vec<&'a ReplicaSet>) -> Self {
        sets.sort_by_key(|set| age(set));
        let same = |set: &&ReplicaSet| template.is_some() && set.digest() == template;
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

/// What sets the larger one first, and of two equal ones the newer or the older one.
pub(super) fn by_size(sets: &mut [&ReplicaSet], newer_first: bool) {
    sets.sort_by(|a, b| {
        let size = Reverse(wanted(a)).cmp(&Reverse(wanted(b)));
        size.then_with(|| if newer_first { age(b).cmp(&age(a)) } else { age(a).cmp(&age(b)) })
    });
}
