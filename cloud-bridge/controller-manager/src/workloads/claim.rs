//! The objects of a controller: those that name it and that it selects. Orphans that it selects are adopted, and
//! objects that it no longer selects are released (K8s pkg/controller/controller_ref_manager.go). Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::json;

use super::plan::{Action, Check, Write};
use super::store::{Cached, Store, key_of, uid};
use super::world::Kind;

/// The owner reference to a controller.
pub(crate) fn controller_reference(kind: Kind, meta: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: kind.api_version(),
        kind: kind.name(),
        name: meta.name.clone().unwrap_or_default(),
        uid: uid(meta).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The objects of a controller, and the actions that are needed first.
pub(crate) struct Claim<'a, T> {
    pub(crate) claimed: Vec<&'a T>,
    /// What names the controller and does not count.
    pub(crate) uncounted: Vec<&'a T>,
    pub(crate) actions: Vec<Action>,
}

/// The objects of `store`, of kind `kind`, that belong to `owner`. `selects` is the selector for their labels. Only
/// those that `counts` accepts are adopted or released.
pub(crate) fn claim<'a, T: Cached>(
    store: &'a Store<T>,
    kind: Kind,
    owner: (Kind, &ObjectMeta),
    labels: Option<&BTreeMap<String, String>>,
    selects: impl Fn(&ObjectMeta) -> bool,
    counts: impl Fn(&T) -> bool,
) -> Claim<'a, T> {
    let (owner_kind, owner) = owner;
    let deleting = owner.deletion_timestamp.is_some();
    let mut claim = Claim { claimed: Vec::new(), uncounted: Vec::new(), actions: Vec::new() };
    for object in store.owned_by(uid(owner)) {
        if !counts(object) {
            claim.uncounted.push(object);
        } else if selects(object.meta()) {
            claim.claimed.push(object);
        } else if !deleting {
            let reference = json!([{"$patch": "delete", "uid": uid(owner)}]);
            claim.actions.push(set_owners(kind, object.meta(), reference));
        }
    }
    if deleting {
        return claim;
    }
    let namespace = owner.namespace.as_deref().unwrap_or_default();
    for object in store.orphans(namespace, labels).filter(|object| counts(object)) {
        if object.meta().deletion_timestamp.is_none() && selects(object.meta()) {
            let reference = json!([controller_reference(owner_kind, owner)]);
            // The owner may be deleted with orphaned dependents, while its watch is late.
            let check = Check { kind: owner_kind, key: key_of(owner), uid: Some(uid(owner).to_owned()) };
            claim.actions.push(Action { check: Some(check), ..set_owners(kind, object.meta(), reference) });
        }
    }
    claim
}

/// The same actions for a controller that marks its objects with a finalizer, which is added and removed with the
/// reference.
pub(crate) fn with_finalizer(mut actions: Vec<Action>, finalizer: &str) -> Vec<Action> {
    for action in &mut actions {
        let Write::Strategic { patch, .. } = &mut action.write else { continue };
        let releases = patch["metadata"]["ownerReferences"][0]["$patch"] == "delete";
        let list = if releases { "$deleteFromPrimitiveList/finalizers" } else { "finalizers" };
        if let Some(metadata) = apimachinery::json::object_mut(patch, "metadata") {
            metadata.insert(list.to_owned(), json!([finalizer]));
        }
    }
    actions
}

fn set_owners(kind: Kind, meta: &ObjectMeta, references: serde_json::Value) -> Action {
    // With the uid, so that a new object with the same name is not changed.
    let patch = json!({"metadata": {"ownerReferences": references, "uid": uid(meta)}});
    let write = Write::Strategic { subresource: None, patch };
    Action { kind, key: key_of(meta), write, check: None, done: None, failed: None }
}
