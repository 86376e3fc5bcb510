//! The claims of a pod: one for each template, which stays after the pod (K8s
//! pkg/controller/statefulset/stateful_pod_control.go `createPersistentVolumeClaims`).

use std::collections::HashMap;

use apimachinery::json::text;
use apimachinery::key::ObjectKey;
use serde_json::{Value, json};

use super::context::Context;
use crate::workloads::plan::Action;
use crate::workloads::volume_claim::Claim;
use crate::workloads::world::{Kind, World};

fn name(context: &Context<'_>, template: &str, ordinal: i64) -> String {
    format!("{template}-{}-{ordinal}", context.name())
}

/// The templates and the claims of an ordinal, by name.
pub(super) fn names<'a>(context: &Context<'a>, ordinal: i64) -> impl Iterator<Item = (&'a str, String)> {
    let set = context.set;
    set.claims().map(move |template| (template, name(context, template, ordinal)))
}

/// The existing claims of an ordinal.
pub(super) fn existing<'a>(context: &Context<'_>, world: &'a World, ordinal: i64) -> Vec<&'a Claim> {
    names(context, ordinal).filter_map(|(_, name)| find(context, world, name)).collect()
}

fn find<'a>(context: &Context<'_>, world: &'a World, name: String) -> Option<&'a Claim> {
    world.claims.get(&ObjectKey { namespace: context.namespace().to_owned(), name })
}

/// Creates the missing claims of an ordinal, or reads the set first.
pub(super) fn create_missing(context: &Context<'_>, world: &World, ordinal: i64) -> Vec<Action> {
    let missing = |name: &str| find(context, world, name.to_owned()).is_none();
    let missing: Vec<(&str, String)> = names(context, ordinal).filter(|(_, name)| missing(name)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let meta = &context.set.metadata;
    let Some(read) = world.template(Kind::StatefulSet, meta) else {
        return vec![Action::read(Kind::StatefulSet, meta)];
    };
    let templates = read.claims();
    let by_name: HashMap<&str, &Value> = templates.iter().map(|one| (text(&one["metadata"], "name"), one)).collect();
    let action = |(template, name): &(&str, String)| Some(create(context, name, by_name.get(*template)?, ordinal));
    missing.iter().filter_map(action).collect()
}

fn create(context: &Context<'_>, name: &str, template: &Value, ordinal: i64) -> Action {
    let meta = &template["metadata"];
    let mut labels = meta["labels"].as_object().cloned().unwrap_or_default();
    let selected = context.spec.selector.match_labels.iter().flatten();
    labels.extend(selected.map(|(name, value)| (name.clone(), value.clone().into())));
    let mut claim = json!({
        "apiVersion": Kind::PersistentVolumeClaim.api_version(), "kind": Kind::PersistentVolumeClaim.name(),
        "metadata": {"name": name, "labels": labels}, "spec": template["spec"],
    });
    if let (Some(metadata), Value::Object(annotations)) =
        (apimachinery::json::object_mut(&mut claim, "metadata"), &meta["annotations"])
    {
        metadata.insert("annotations".to_owned(), annotations.clone().into());
    }
    told(context, Action::create(Kind::PersistentVolumeClaim, context.namespace(), claim), name, ordinal)
}

fn told(context: &Context<'_>, action: Action, name: &str, ordinal: i64) -> Action {
    let set = context.name();
    let teller = context.teller();
    let done = format!("Create Claim {name} Pod {set}-{ordinal} in StatefulSet {set} success");
    let failed = format!("Create Claim {name} for Pod {set}-{ordinal} in StatefulSet {set} failed error: {{}}");
    Action {
        done: Some(teller.normal("SuccessfulCreate", done)),
        failed: Some(teller.warning("FailedCreate", failed)),
        ..action
    }
}

/// Whether the pod of an ordinal has to wait for an old claim to go: one that is deleted, or that went with the last pod of
/// this name.
pub(super) fn are_stale(context: &Context<'_>, world: &World, ordinal: i64) -> bool {
    let pod = format!("{}-{ordinal}", context.name());
    let policy = context.spec.persistent_volume_claim_retention_policy.as_ref();
    let deletes = policy.is_some_and(|policy| policy.when_scaled.as_deref() == Some("Delete"));
    existing(context, world, ordinal).into_iter().any(|claim| {
        let mut owners = claim.metadata.owner_references.iter().flatten();
        claim.metadata.deletion_timestamp.is_some()
            || deletes && owners.any(|owner| owner.api_version == "v1" && owner.kind == "Pod" && owner.name == pod)
    })
}
