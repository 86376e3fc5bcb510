//! The claims of a pod: one for each template, which stays when the pod goes (K8s
//! pkg/controller/statefulset/stateful_pod_control.go `createPersistentVolumeClaims`).

use apimachinery::key::ObjectKey;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::context::Context;
use crate::workloads::plan::Action;
use crate::workloads::volume_claim::Claim;
use crate::workloads::world::{Kind, World};

fn templates<'a>(context: &Context<'a>) -> impl Iterator<Item = (&'a str, &'a PersistentVolumeClaim)> {
    let templates = context.spec.volume_claim_templates.iter().flatten();
    templates.map(|template| (template.metadata.name.as_deref().unwrap_or_default(), template))
}

fn name(context: &Context<'_>, template: &str, ordinal: i64) -> String {
    format!("{template}-{}-{ordinal}", context.name())
}

/// The templates and the claims of an ordinal, by name.
pub(super) fn names<'a>(context: &Context<'a>, ordinal: i64) -> impl Iterator<Item = (&'a str, String)> {
    templates(context).map(move |(template, _)| (template, name(context, template, ordinal)))
}

/// The claims of an ordinal that are there.
pub(super) fn existing<'a>(context: &Context<'_>, world: &'a World, ordinal: i64) -> Vec<&'a Claim> {
    names(context, ordinal).filter_map(|(_, name)| find(context, world, name)).collect()
}

fn find<'a>(context: &Context<'_>, world: &'a World, name: String) -> Option<&'a Claim> {
    world.claims.get(&ObjectKey { namespace: context.namespace().to_owned(), name })
}

/// Makes the claims of an ordinal that are not there.
pub(super) fn create_missing(context: &Context<'_>, world: &World, ordinal: i64) -> Vec<Action> {
    let missing =
        templates(context).filter(|(template, _)| find(context, world, name(context, template, ordinal)).is_none());
    missing.map(|(template, claim)| create(context, &name(context, template, ordinal), claim, ordinal)).collect()
}

fn create(context: &Context<'_>, name: &str, template: &PersistentVolumeClaim, ordinal: i64) -> Action {
    let mut labels = template.metadata.labels.clone().unwrap_or_default();
    labels.extend(context.spec.selector.match_labels.clone().unwrap_or_default());
    let mut claim = json!({
        "apiVersion": Kind::PersistentVolumeClaim.api_version(), "kind": Kind::PersistentVolumeClaim.name(),
        "metadata": {"name": name, "labels": labels}, "spec": template.spec,
    });
    if let (Some(metadata), Some(annotations)) =
        (apimachinery::json::object_mut(&mut claim, "metadata"), &template.metadata.annotations)
    {
        metadata.insert("annotations".to_owned(), json!(annotations));
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
