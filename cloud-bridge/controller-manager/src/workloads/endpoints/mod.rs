//! Endpoints of a Service: its EndpointSlices (K8s pkg/controller/endpointslice and staging endpointslice) and its
//! Endpoints (K8s pkg/controller/endpoint), computed from the pods that it selects. For a Service without a selector,
//! slices are computed from the Endpoints that users write. Decisions only.

mod member;
mod mirror;
mod pace;
mod slice;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;
mod truncate;
mod wake;
mod words;

use std::collections::BTreeMap;

use apimachinery::key::ObjectKey;
use k8s_openapi::api::core::v1::Endpoints;
use serde::Serialize;
use serde_json::json;

use super::plan::{Action, Failure, Plan, Teller, difference};
use super::world::{Kind, World};
pub(crate) use pace::{Pace, RETRY, is_paced};
pub(crate) use wake::tasks;
use words::{ENDPOINTS_CONTROLLER, MANAGED_BY, SLICE_COMPONENT};

/// The next step for the EndpointSlices of a Service. The garbage collector deletes those of a deleted Service; its
/// Endpoints have no owner.
pub(crate) fn plan_slices(world: &World, key: &ObjectKey, failure: Option<&Failure>) -> Plan {
    if failure.is_some() {
        return Plan::default();
    }
    let Some(service) = world.services.get(key) else {
        let left = world.endpoints.get(key).filter(|left| left.metadata.deletion_timestamp.is_none());
        let delete = left.map(|left| Action::delete(Kind::Endpoints, &left.metadata));
        return Plan::one_by_one(delete.into_iter().collect());
    };
    if !service.selects_pods() {
        return Plan::default();
    }
    let changes = slices::changes(world, service);
    let tell = |verb: &str, mut action: Action| {
        let teller = Teller::new(SLICE_COMPONENT, Kind::Service, &service.metadata);
        let place = format!("{}/{}", key.namespace, key.name);
        let message =
            format!("Error updating Endpoint Slices for Service {place}: failed to {verb} for Service {place}: {{}}");
        action.failed = Some(teller.warning("FailedToUpdateEndpointSlices", message));
        action
    };
    let mut actions = Vec::new();
    for new in &changes.create {
        actions.push(tell("create EndpointSlice", Action::create(Kind::EndpointSlice, &key.namespace, json!(new))));
    }
    for &(old, ref new) in &changes.update {
        let verb = format!("update {} EndpointSlice", old.metadata.name.as_deref().unwrap_or_default());
        actions.extend(update(Kind::EndpointSlice, old, new).map(|action| tell(&verb, action)));
    }
    for old in &changes.delete {
        let verb = format!("delete {} EndpointSlice", old.metadata.name.as_deref().unwrap_or_default());
        actions.push(tell(&verb, Action::delete(Kind::EndpointSlice, &old.metadata)));
    }
    Plan::one_by_one(actions)
}

/// The next step for the Endpoints of a Service. Endpoints whose Service was deleted while this program was down are
/// deleted if it created them; Kubernetes deletes others, too, but only when its controller starts.
pub(crate) fn plan_endpoints(world: &World, key: &ObjectKey, failure: Option<&Failure>) -> Plan {
    if failure.is_some() {
        return Plan::default();
    }
    let known = world.endpoints.get(key).filter(|known| known.metadata.deletion_timestamp.is_none());
    let Some(service) = world.services.get(key) else {
        let labels = |object: &Endpoints| object.metadata.labels.clone().unwrap_or_default();
        let ours = known.filter(|known| labels(known).get(MANAGED_BY).is_some_and(|by| by == ENDPOINTS_CONTROLLER));
        let delete = ours.map(|ours| Action::delete(Kind::Endpoints, &ours.metadata));
        return Plan::one_by_one(delete.into_iter().chain(mirrored(world, key, None)).collect());
    };
    let lives = service.metadata.deletion_timestamp.is_none();
    if service.selector().is_none_or(BTreeMap::is_empty) {
        return Plan::one_by_one(mirrored(world, key, known.filter(|_| lives)));
    }
    let mut actions = mirrored(world, key, None);
    if !service.selects_pods() || !lives {
        return Plan::one_by_one(actions);
    }
    let Some(new) = subsets::wanted(world, service, known) else { return Plan::one_by_one(actions) };
    let action = match known {
        None => {
            let mut action = Action::create(Kind::Endpoints, &key.namespace, json!(new));
            let teller = Teller::new(ENDPOINTS_CONTROLLER, Kind::Endpoints, &new.metadata);
            let message = format!("Failed to create endpoint for service {}/{}: {{}}", key.namespace, key.name);
            action.failed = Some(teller.warning("FailedToCreateEndpoint", message));
            Some(action)
        }
        Some(old) => update(Kind::Endpoints, old, &new).map(|mut action| {
            let teller = Teller::new(ENDPOINTS_CONTROLLER, Kind::Endpoints, &old.metadata);
            let message = format!("Failed to update endpoint {}/{}: {{}}", key.namespace, key.name);
            action.failed = Some(teller.warning("FailedToUpdateEndpoint", message));
            action
        }),
    };
    actions.extend(action);
    Plan::one_by_one(actions)
}

/// Changes of slices for Endpoints that users write; without Endpoints they are deleted.
fn mirrored(world: &World, key: &ObjectKey, endpoints: Option<&Endpoints>) -> Vec<Action> {
    let changes = mirror::changes(world, key, endpoints);
    let create = changes.create.iter().map(|new| Action::create(Kind::EndpointSlice, &key.namespace, json!(new)));
    let update = changes.update.iter().filter_map(|(old, new)| update(Kind::EndpointSlice, *old, new));
    let delete = changes.delete.iter().map(|old| Action::delete(Kind::EndpointSlice, &old.metadata));
    create.chain(update).chain(delete).collect()
}

/// Updates `old` to `new`, if it is still in the known state; `None` if they are equal.
fn update<T: Serialize + kube::Resource>(kind: Kind, old: &T, new: &T) -> Option<Action> {
    let mut patch = difference(&json!(old), &json!(new))?;
    if patch.get("metadata").is_none() {
        apimachinery::json::object_mut(&mut patch, "metadata");
    }
    Some(Action::merge(kind, old.meta(), patch))
}
