//! The new ReplicaSet of a Deployment: its name, its creation, and its revision, which becomes the Deployment's.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::annotations::{REVISION, annotation, annotations};
use super::bounds::new_size;
use super::context::Context;
use super::progress;
use crate::workloads::body::Body;
use crate::workloads::claim::controller_reference;
use crate::workloads::plan::Action;
use crate::workloads::replica_set::replicas;
use crate::workloads::template::{self, Template};
use crate::workloads::templated::TEMPLATE_HASH;
use crate::workloads::world::{Kind, World};
use apimachinery::key::ObjectKey;

/// The longest name of a ReplicaSet.
const NAME_MAX: usize = 253;

/// Brings the annotations of the new ReplicaSet up to date, and the revision of the Deployment with it.
pub(super) fn sync(context: &Context<'_>, _world: &World) -> Vec<Action> {
    let Some(set) = context.sets.new else { return Vec::new() };
    let before = set.metadata.annotations.clone().unwrap_or_default();
    let after = annotations(context, before.clone(), true);
    let min_ready = context.spec.min_ready_seconds.unwrap_or_default();
    let old_min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    if before != after || min_ready != old_min_ready {
        let patch = json!({"metadata": {"annotations": after}, "spec": {"minReadySeconds": min_ready}});
        return vec![Action::merge(Kind::ReplicaSet, &set.metadata, patch)];
    }
    let meta = &context.deployment.metadata;
    let known = annotation(&set.metadata, REVISION);
    if annotation(meta, REVISION) != known {
        // As a change of the object it would be a new generation, and nothing new is wanted.
        let patch = json!({"metadata": {"annotations": {REVISION: known}}});
        return vec![Action::merge_status(Kind::Deployment, meta, patch)];
    }
    let found = progress::found(context, set.metadata.name.as_deref().unwrap_or_default());
    let action = found.and_then(|status| Action::status(Kind::Deployment, meta, &context.status, &status));
    action.into_iter().collect()
}

/// Creates the new ReplicaSet; if another has its name, counts the collision, so that the next one gets another name.
pub(super) fn create(context: &Context<'_>, world: &World) -> Vec<Action> {
    let meta = &context.deployment.metadata;
    let namespace = meta.namespace.clone().unwrap_or_default();
    let Some(template) = world.template(Kind::Deployment, meta) else {
        return vec![Action::read(Kind::Deployment, meta)];
    };
    let hash = template.hash(context.status.collision_count);
    let room = NAME_MAX.saturating_sub(hash.len() + 1);
    let name = format!("{}-{hash}", template::cut(context.name(), room));
    let key = ObjectKey { namespace: namespace.clone(), name: name.clone() };
    if world.replica_sets.get(&key).is_some() {
        let mut status = context.status.clone();
        status.collision_count = Some(status.collision_count.unwrap_or_default().saturating_add(1));
        return Action::status(Kind::Deployment, meta, &context.status, &status).into_iter().collect();
    }
    let set = new_set(context, template, name.clone(), &hash);
    let replicas = set.spec.as_ref().map(replicas).unwrap_or_default();
    let mut object = serde_json::to_value(set).unwrap_or(Value::Null);
    apimachinery::json::remove(&mut object, "status");
    let object = Body::sharing(object, &["spec", "template", "spec"], &template.spec);
    let teller = context.teller();
    let done = (replicas > 0)
        .then(|| teller.normal("ScalingReplicaSet", format!("Scaled up replica set {name} from 0 to {replicas}")));
    let failed = teller.warning("ReplicaSetCreateError", format!("Failed to create new replica set {name:?}: {{}}"));
    let mut actions =
        vec![Action { done, failed: Some(failed), ..Action::create(Kind::ReplicaSet, &namespace, object) }];
    if let Some(status) = progress::created(context, &name) {
        actions.extend(Action::status(Kind::Deployment, meta, &context.status, &status));
    }
    actions
}

/// The new ReplicaSet without the spec of its template.
fn new_set(context: &Context<'_>, template: &Template, name: String, hash: &str) -> ReplicaSet {
    let meta = &context.deployment.metadata;
    let mut metadata = template.metadata.clone();
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(TEMPLATE_HASH.to_owned(), hash.to_owned());
    let labels = labels.clone();
    let mut selector = context.spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.to_owned());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: meta.namespace.clone(),
            owner_references: Some(vec![controller_reference(Kind::Deployment, meta)]),
            labels: Some(labels),
            annotations: Some(annotations(context, BTreeMap::new(), false)),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: i32::try_from(new_size(context, 0)).ok(),
            min_ready_seconds: context.spec.min_ready_seconds,
            selector,
            template: Some(PodTemplateSpec { metadata: Some(metadata), spec: None }),
        }),
        status: None,
    }
}
