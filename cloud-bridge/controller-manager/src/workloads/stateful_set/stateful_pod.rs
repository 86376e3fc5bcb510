//! The pod of an ordinal: its name, its labels, its address, its volumes (K8s
//! pkg/controller/statefulset/stateful_set_utils.go `newVersionedStatefulSetPod`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Volume};
use serde_json::json;

use super::claims;
use super::context::{Context, LABEL_MAX, label_of};
use crate::workloads::claim::controller_reference;
use crate::workloads::history::{self, HASH_LABEL};
use crate::workloads::plan::Action;
use crate::workloads::pod::Pod;
use crate::workloads::template;
use crate::workloads::world::Kind;

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// Makes the pod of an ordinal.
pub(super) fn create(context: &Context<'_>, ordinal: i64) -> Action {
    let revision = if keeps_current(context, ordinal) { context.current } else { context.update };
    // A revision that cannot be read is of no use.
    let mut wanted = history::template_of(revision).unwrap_or_else(|| context.spec.template.clone());
    let name = format!("{}-{ordinal}", context.name());
    let labels = wanted.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.extend(identity_labels(&name, ordinal));
    labels.insert(HASH_LABEL.to_owned(), label_of(revision).to_owned());
    let spec = wanted.spec.get_or_insert_default();
    // The node cuts a longer one, as it does for every pod.
    spec.hostname = Some(name.clone()).filter(|name| name.len() <= LABEL_MAX);
    spec.subdomain.clone_from(&context.spec.service_name);
    let own = spec.volumes.take().unwrap_or_default();
    let volumes: Vec<Volume> = claims::names(context, ordinal)
        .map(|(template, claim)| Volume {
            name: template.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name: claim, read_only: None }),
            ..Volume::default()
        })
        .collect();
    let others = own.into_iter().filter(|one| volumes.iter().all(|volume| volume.name != one.name));
    spec.volumes = Some(volumes.iter().cloned().chain(others).collect());
    let owner = controller_reference(Kind::StatefulSet, &context.set.metadata);
    let mut pod = template::pod(&wanted, &template::prefix(context.name()), &owner);
    if let Some(metadata) = apimachinery::json::object_mut(&mut pod, "metadata") {
        metadata.insert("name".to_owned(), name.into());
    }
    context.told_of_pod(Action::create(Kind::Pod, context.namespace(), pod), "Create")
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

/// Gives a pod that was adopted the labels that say who it is.
pub(super) fn identify(context: &Context<'_>, ordinal: i64, pod: &Pod) -> Option<Action> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let said = pod.metadata.labels.as_ref().and_then(|labels| labels.get(NAME_LABEL));
    if said.map(String::as_str) == Some(name) || name.len() > LABEL_MAX {
        return None;
    }
    let patch = json!({"metadata": {"labels": identity_labels(name, ordinal)}});
    Some(context.told_of_pod(Action::merge(Kind::Pod, &pod.metadata, patch), "Update"))
}
