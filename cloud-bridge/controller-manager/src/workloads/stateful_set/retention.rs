//! Owners of the claims: they are deleted with the set, with a pod that is scaled away, or with neither (K8s
//! pkg/controller/statefulset/stateful_set_utils.go `isClaimOwnerUpToDate`, `updateClaimOwnerRefForSetAndPod`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::claims;
use super::context::{Context, Step};
use crate::workloads::claim::controller_reference;
use crate::workloads::plan::Action;
use crate::workloads::pod::Pod;
use crate::workloads::store::uid;
use crate::workloads::volume_claim::Claim;
use crate::workloads::world::{Kind, World};

/// Sets the owners of the claims of the pods beyond the desired number.
pub(super) fn of_condemned(context: &Context<'_>, world: &World) -> Step {
    let condemned = context.condemned.iter().map(|(ordinal, pod)| (*ordinal, *pod));
    Step::of(condemned.flat_map(|(ordinal, pod)| of(context, world, ordinal, pod)).collect())
}

/// Sets the owners of the claims of a pod.
pub(super) fn of(context: &Context<'_>, world: &World, ordinal: i64, pod: &Pod) -> Vec<Action> {
    let claims = claims::existing(context, world, ordinal).into_iter();
    claims.filter_map(|claim| own(context, claim, pod, context.ordinals().contains(&ordinal))).collect()
}

fn own(context: &Context<'_>, claim: &Claim, pod: &Pod, wanted: bool) -> Option<Action> {
    let set = &context.set.metadata;
    let policy = Policy::of(context);
    let owners = claim.metadata.owner_references.clone().unwrap_or_default();
    let (set_is, pod_is) = (named(Kind::StatefulSet, set), named(Kind::Pod, &pod.metadata));
    // Left by an older object of the same name: the garbage collector's.
    let stale = |is: &dyn Fn(&OwnerReference) -> bool, meta: &ObjectMeta| {
        owners.iter().find(|owner| is(owner)).is_some_and(|owner| owner.uid != uid(meta))
    };
    if stale(&set_is, set) || stale(&pod_is, &pod.metadata) {
        return None;
    }
    let has = |meta: &ObjectMeta| owners.iter().any(|owner| owner.uid == uid(meta));
    let other = |owner: &OwnerReference| !set_is(owner) && !pod_is(owner);
    let conflict = policy.deletes() && owners.iter().any(|owner| other(owner) && owner.controller == Some(true));
    let (to_set, to_pod) = if conflict { (false, false) } else { policy.owners(wanted) };
    let unled = owners.iter().any(|owner| !other(owner) && owner.controller != Some(true));
    if has(set) == to_set && has(&pod.metadata) == to_pod && (conflict || !unled) {
        return None;
    }
    let mut new: Vec<OwnerReference> = owners.iter().filter(|owner| other(owner)).cloned().collect();
    new.extend(to_pod.then(|| controller_reference(Kind::Pod, &pod.metadata)));
    new.extend(to_set.then(|| controller_reference(Kind::StatefulSet, set)));
    let patch = json!({"metadata": {"ownerReferences": new}});
    let action = Action::merge(Kind::PersistentVolumeClaim, &claim.metadata, patch);
    let message = format!(
        "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, the retention policy is \
         ignored for this claim",
        action.key.name
    );
    let done = conflict.then(|| context.teller().warning("ConflictingController", message));
    Some(Action { done, ..action })
}

fn named(kind: Kind, meta: &ObjectMeta) -> impl Fn(&OwnerReference) -> bool {
    let (version, kind, name) = (kind.api_version(), kind.name(), meta.name.clone().unwrap_or_default());
    move |owner| owner.api_version == version && owner.kind == kind && owner.name == name
}

/// When claims go.
struct Policy {
    with_set: bool,
    when_scaled: bool,
}

impl Policy {
    fn of(context: &Context<'_>) -> Self {
        let policy = context.spec.persistent_volume_claim_retention_policy.as_ref();
        let deletes = |value: Option<&String>| value.is_some_and(|value| value == "Delete");
        Self {
            with_set: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
            when_scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }

    fn deletes(&self) -> bool {
        self.with_set || self.when_scaled
    }

    /// Whether a claim belongs to the set, and whether to its pod, which is wanted or not.
    fn owners(&self, wanted: bool) -> (bool, bool) {
        let to_pod = self.when_scaled && !wanted;
        (self.with_set && !to_pod, to_pod)
    }
}
