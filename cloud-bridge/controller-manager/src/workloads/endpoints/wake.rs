//! The Services to process after a change: those that select the pod now or did before, all that select a pod of a
//! node, and those whose slices or Endpoints another client wrote. Pure.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::key::ObjectKey;

use super::words::{mirror_of, service_of};
use crate::workloads::store::key_of;
use crate::workloads::world::{Change, Kind, Task, World};

pub(crate) fn tasks(world: &World, change: &Change) -> Vec<Task> {
    let key = &change.seen.key;
    match change.kind {
        Kind::Service => both([key.clone()]),
        // Without a Service only `plan_endpoints` decides: a user may have created it.
        Kind::Endpoints => vec![(Kind::Endpoints, key.clone())],
        Kind::EndpointSlice => {
            let slice = world.endpoint_slices.get(key);
            let named = |kind: &'static str, label: Option<&str>| {
                let owners = change.seen.owners.iter().filter(move |owner| owner.kind == kind);
                let names = owners.map(|owner| owner.name.clone()).chain(label.map(str::to_owned));
                names.map(|name| ObjectKey { namespace: key.namespace.clone(), name }).collect::<BTreeSet<_>>()
            };
            // A deleted Service was handled at its deletion.
            let of_services = named("Service", slice.and_then(service_of)).into_iter();
            let of_services =
                of_services.filter(|key| world.services.get(key).is_some()).map(|key| (Kind::Service, key));
            let mirrors = named("Endpoints", slice.and_then(mirror_of)).into_iter();
            of_services.chain(mirrors.map(|key| (Kind::Endpoints, key))).collect()
        }
        Kind::Pod => both(of_pod(world, change)),
        Kind::Node => {
            let labels = world.pods.on_node(&key.name).filter_map(|pod| {
                Some((pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.labels.as_ref()?))
            });
            both(labels.flat_map(|(namespace, labels)| selecting(world, namespace, labels)).collect::<BTreeSet<_>>())
        }
        _ => Vec::new(),
    }
}

fn of_pod(world: &World, change: &Change) -> BTreeSet<ObjectKey> {
    change.seen.labels.iter().flat_map(|labels| selecting(world, &change.seen.key.namespace, labels)).collect()
}

/// The Services that select a pod with these labels.
fn selecting<'a>(
    world: &'a World,
    namespace: &'a str,
    labels: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = ObjectKey> {
    let services = world.services.selecting(namespace, labels);
    services.filter(move |service| service.selects(Some(labels))).map(|service| key_of(&service.metadata))
}

fn both(keys: impl IntoIterator<Item = ObjectKey>) -> Vec<Task> {
    keys.into_iter().flat_map(|key| [(Kind::Service, key.clone()), (Kind::Endpoints, key)]).collect()
}
