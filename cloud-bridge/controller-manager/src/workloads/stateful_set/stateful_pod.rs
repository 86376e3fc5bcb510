//! The pod of an ordinal: its name, its labels, its address, its volumes (K8s
//! pkg/controller/statefulset/stateful_set_utils.go `newVersionedStatefulSetPod`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::claims;
use super::context::{Context, LABEL_MAX, label_of};
use crate::workloads::claim::controller_reference;
use crate::workloads::history::HASH_LABEL;
use crate::workloads::plan::Action;
use crate::workloads::pod::Pod;
use crate::workloads::template;
use crate::workloads::templated::Templated as _;
use crate::workloads::world::{Kind, World};

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Creates the pod of an ordinal; or reads its revision first, or the set if the revision has no template.
pub(super) fn create(context: &Context<'_>, world: &World, ordinal: i64) -> Action {
    let revision = if keeps_current(context, ordinal) { context.current } else { context.update };
    let (kind, meta) = match revision.digest() {
        Some(_) => (Kind::ControllerRevision, &revision.metadata),
        None => (Kind::StatefulSet, &context.set.metadata),
    };
    let Some(template) = world.template(kind, meta) else { return Action::read(kind, meta) };
    let name = format!("{}-{ordinal}", context.name());
    let mut metadata = template.metadata.clone();
    let labels = metadata.labels.get_or_insert_default();
    labels.extend(identity_labels(&name, ordinal));
    labels.insert(HASH_LABEL.to_owned(), label_of(revision).to_owned());
    let own = json!({
        // The node cuts a longer one, as it does for every pod.
        "hostname": Some(&name).filter(|name| name.len() <= LABEL_MAX),
        "subdomain": context.spec.service_name,
        "volumes": volumes(context, &template.spec.get("volumes"), ordinal),
    });
    let owner = controller_reference(Kind::StatefulSet, &context.set.metadata);
    let prefix = template::prefix(context.name());
    let pod = template::pod((Some(name.as_str()), prefix.as_str()), metadata, own, &template.spec, &owner);
    context.told_of_pod(Action::create(Kind::Pod, context.namespace(), pod), "Create")
}

/// The volumes of a pod: its claims, in the place of volumes of their names, and the others of the template.
fn volumes(context: &Context<'_>, template: &Value, ordinal: i64) -> Vec<Value> {
    let claims: Vec<(&str, String)> = claims::names(context, ordinal).collect();
    let is_claim = |volume: &Value| claims.iter().any(|(name, _)| volume["name"] == **name);
    let others = template.as_array().into_iter().flatten().filter(|volume| !is_claim(volume)).cloned();
    let claimed =
        claims.iter().map(|(name, claim)| json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}));
    claimed.chain(others).collect()
}

/// Whether the pod of an ordinal is still made as the set was.
fn keeps_current(context: &Context<'_>, ordinal: i64) -> bool {
    let from_start = ordinal - context.ordinals().start;
    match context.partition() {
        Some(partition) => from_start < partition,
        None => {
            let current = context.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default();
            context.is_rolling() && from_start < current.into()
        }
    }
}

fn identity_labels(name: &str, ordinal: i64) -> BTreeMap<String, String> {
    let name = Some(name).filter(|name| name.len() <= LABEL_MAX);
    let name = name.map(|name| (NAME_LABEL.to_owned(), name.to_owned()));
    name.into_iter().chain([(INDEX_LABEL.to_owned(), ordinal.to_string())]).collect()
}

/// Sets the identifying labels of an adopted pod.
pub(super) fn identify(context: &Context<'_>, ordinal: i64, pod: &Pod) -> Option<Action> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let said = pod.metadata.labels.as_ref().and_then(|labels| labels.get(NAME_LABEL));
    if said.map(String::as_str) == Some(name) || name.len() > LABEL_MAX {
        return None;
    }
    let patch = json!({"metadata": {"labels": identity_labels(name, ordinal)}});
    Some(context.told_of_pod(Action::merge(Kind::Pod, &pod.metadata, patch), "Update"))
}
