//! EndpointSlices of Endpoints that people write for a Service without a selector: who reads slices alone finds them, too
//! (K8s pkg/controller/endpointslicemirroring). The Endpoints own them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort as Port, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::slice::{port_key, sorted};
use super::words::{MIRRORING_CONTROLLER, SERVICE_NAME, SLICE_MANAGED_BY, TRIGGERED, mirror_of, slices_named};
use crate::workloads::claim::controller_reference;
use crate::workloads::service::Family;
use crate::workloads::world::{Kind, World};
use apimachinery::key::ObjectKey;

/// So many addresses of one subset are mirrored (K8s `--mirroring-max-endpoints-per-subset`).
const MOST: usize = 1000;
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Of Endpoints that are a lock and lead nowhere.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What is to be written. Updates come with what there is now.
#[derive(Default)]
pub(super) struct Changes<'a> {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<(&'a EndpointSlice, EndpointSlice)>,
    pub(super) delete: Vec<&'a EndpointSlice>,
}

/// A family and a set of ports: there is one slice for each.
type Group = (Family, Vec<EndpointPort>);

/// What the slices of these Endpoints are to become; without any that are to be mirrored they go.
pub(super) fn changes<'a>(world: &'a World, key: &'a ObjectKey, endpoints: Option<&Endpoints>) -> Changes<'a> {
    let all = slices_named(world, &key.namespace, &key.name, MIRRORING_CONTROLLER);
    let mut left: Vec<&EndpointSlice> = all
        .filter(|slice| mirror_of(slice) == Some(key.name.as_str()) && slice.metadata.deletion_timestamp.is_none())
        .collect();
    let mut changes = Changes::default();
    for new in endpoints.filter(|endpoints| is_mirrored(endpoints)).map(slices).unwrap_or_default() {
        let same = |old: &&EndpointSlice| {
            old.address_type == new.address_type && sorted(old.ports.clone().unwrap_or_default()) == *ports(&new)
        };
        match left.iter().position(same) {
            Some(found) => {
                let old = left.swap_remove(found);
                let mut slice = old.clone();
                slice.metadata.labels = new.metadata.labels;
                slice.metadata.annotations = new.metadata.annotations;
                slice.metadata.owner_references = new.metadata.owner_references;
                slice.endpoints = new.endpoints;
                changes.update.push((old, slice));
            }
            None => changes.create.push(new),
        }
    }
    // What is to go becomes what is to come, so that there is no time between the two. The family of a slice stays.
    for new in std::mem::take(&mut changes.create) {
        match left.iter().position(|old| old.address_type == new.address_type) {
            Some(found) => {
                let old = left.swap_remove(found);
                let metadata = ObjectMeta {
                    labels: new.metadata.labels.clone(),
                    annotations: new.metadata.annotations.clone(),
                    owner_references: new.metadata.owner_references.clone(),
                    ..old.metadata.clone()
                };
                changes.update.push((old, EndpointSlice { metadata, ..new }));
            }
            None => changes.create.push(new),
        }
    }
    changes.delete = left;
    changes
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let has = |map: &Option<BTreeMap<String, String>>, name| map.as_ref().and_then(|map| map.get(name)).cloned();
    let skipped = has(&endpoints.metadata.labels, SKIP).is_some_and(|value| value == "true");
    !skipped
        && has(&endpoints.metadata.annotations, LEADER).is_none()
        && endpoints.metadata.deletion_timestamp.is_none()
}

fn ports(slice: &EndpointSlice) -> &Vec<EndpointPort> {
    const NONE: &Vec<EndpointPort> = &Vec::new();
    slice.ports.as_ref().unwrap_or(NONE)
}

/// The slices that say what Endpoints say.
fn slices(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut groups: Vec<(Group, Vec<Endpoint>)> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = sorted(subset.ports.iter().flatten().map(mirrored_port).collect());
        let mut taken = 0;
        for (address, ready) in addresses(subset) {
            // What is no address leads nowhere.
            let Some((family, endpoint)) = mirrored(address, ready).filter(|_| taken < MOST) else { continue };
            let group = (family, ports.clone());
            let known = groups.iter().position(|(other, _)| *other == group);
            let place = known.unwrap_or_else(|| {
                groups.push((group, Vec::new()));
                groups.len() - 1
            });
            let Some((_, found)) = groups.get_mut(place).filter(|(_, found)| found.len() < MOST) else { continue };
            taken += 1;
            let name = |endpoint: &Endpoint| endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
            let twin = |other: &Endpoint| {
                other.addresses == endpoint.addresses
                    && other.hostname == endpoint.hostname
                    && name(other) == name(&endpoint)
            };
            // Ready where any subset says so.
            if !found.iter().any(twin) {
                found.push(endpoint);
            }
        }
    }
    groups.sort_by(|((family, ports), _), ((other, others), _)| {
        let key = |ports: &[EndpointPort]| ports.iter().map(|port| format!("{:?}", port_key(port))).collect::<Vec<_>>();
        (family, key(ports)).cmp(&(other, key(others)))
    });
    groups.into_iter().map(|((family, ports), found)| slice(endpoints, family, ports, found)).collect()
}

fn addresses(subset: &EndpointSubset) -> impl Iterator<Item = (&EndpointAddress, bool)> {
    let ready = subset.addresses.iter().flatten().map(|address| (address, true));
    ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)))
}

fn mirrored(address: &EndpointAddress, ready: bool) -> Option<(Family, Endpoint)> {
    let ip: IpAddr = address.ip.parse().ok()?;
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    Some((Family::of(&ip), endpoint))
}

fn mirrored_port(port: &Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    }
}

fn slice(endpoints: &Endpoints, family: Family, ports: Vec<EndpointPort>, found: Vec<Endpoint>) -> EndpointSlice {
    let own = &endpoints.metadata;
    let name = own.name.clone().unwrap_or_default();
    let mut labels = own.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(SLICE_MANAGED_BY.to_owned(), MIRRORING_CONTROLLER.to_owned());
    let mut annotations = own.annotations.clone().unwrap_or_default();
    for other in [TRIGGERED, LAST_APPLIED] {
        annotations.remove(other);
    }
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: own.namespace.clone(),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![controller_reference(Kind::Endpoints, own)]),
            ..ObjectMeta::default()
        },
        address_type: family.name().to_owned(),
        endpoints: Some(found),
        ports: Some(ports),
    }
}
