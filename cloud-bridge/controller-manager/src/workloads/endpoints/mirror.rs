//! EndpointSlices of Endpoints that users write for a Service without a selector, for clients that read only slices
//! (K8s pkg/controller/endpointslicemirroring). The Endpoints own them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort as Port, EndpointSubset, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::slice::{Identity, Ports, identity, ports_key, sorted};
use super::words::{MIRRORING_CONTROLLER, SERVICE_NAME, SLICE_MANAGED_BY, TRIGGERED, mirror_of, slices_named};
use crate::workloads::claim::controller_reference;
use crate::workloads::service::Family;
use crate::workloads::world::{Kind, World};
use apimachinery::key::ObjectKey;

/// Maximum number of addresses of one subset that are mirrored (K8s `--mirroring-max-endpoints-per-subset`).
const MOST: usize = 1000;
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotation of Endpoints that serve as a lock.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Writes to make. Updates include the present object.
#[derive(Default)]
pub(super) struct Changes<'a> {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<(&'a EndpointSlice, EndpointSlice)>,
    pub(super) delete: Vec<&'a EndpointSlice>,
}

/// The changes of the slices of these Endpoints; without Endpoints to mirror, the slices are deleted.
pub(super) fn changes<'a>(world: &'a World, key: &'a ObjectKey, endpoints: Option<&Endpoints>) -> Changes<'a> {
    let all = slices_named(world, &key.namespace, &key.name, MIRRORING_CONTROLLER);
    let mut left: BTreeMap<(String, Ports), Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in all {
        if mirror_of(slice) == Some(key.name.as_str()) && slice.metadata.deletion_timestamp.is_none() {
            left.entry(place(slice)).or_default().push(slice);
        }
    }
    let (mut changes, mut more) = (Changes::default(), Vec::new());
    for new in endpoints.filter(|endpoints| is_mirrored(endpoints)).map(slices).unwrap_or_default() {
        match left.get_mut(&place(&new)).and_then(Vec::pop) {
            Some(old) => {
                let mut slice = old.clone();
                slice.metadata.labels = new.metadata.labels;
                slice.metadata.annotations = new.metadata.annotations;
                slice.metadata.owner_references = new.metadata.owner_references;
                slice.endpoints = new.endpoints;
                changes.update.push((old, slice));
            }
            None => more.push(new),
        }
    }
    let mut spare: BTreeMap<String, Vec<&EndpointSlice>> = BTreeMap::new();
    for ((family, _), slices) in left {
        spare.entry(family).or_default().extend(slices);
    }
    // Reuses slices that would be deleted, to avoid a gap in between. The family of a slice cannot change.
    for new in more {
        match spare.get_mut(&new.address_type).and_then(Vec::pop) {
            Some(old) => {
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
    changes.delete = spare.into_values().flatten().collect();
    changes
}

/// The family and the ports of a slice: there is one for each.
fn place(slice: &EndpointSlice) -> (String, Ports) {
    (slice.address_type.clone(), ports_key(slice.ports.as_deref().unwrap_or_default()))
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let has = |map: &Option<BTreeMap<String, String>>, name| map.as_ref().and_then(|map| map.get(name)).cloned();
    let skipped = has(&endpoints.metadata.labels, SKIP).is_some_and(|value| value == "true");
    !skipped
        && has(&endpoints.metadata.annotations, LEADER).is_none()
        && endpoints.metadata.deletion_timestamp.is_none()
}

/// Content of one slice, each endpoint once.
struct Group {
    family: Family,
    ports: Vec<EndpointPort>,
    endpoints: Vec<Endpoint>,
    known: BTreeSet<Identity>,
}

/// The slices with the content of Endpoints.
fn slices(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: BTreeMap<(Family, Ports), usize> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports = sorted(subset.ports.iter().flatten().map(mirrored_port).collect());
        let key = ports_key(&ports);
        // Looked up once, however many addresses there are.
        let mut own: BTreeMap<Family, usize> = BTreeMap::new();
        let mut taken = 0;
        for (address, ready) in addresses(subset) {
            // A text that is not an address leads nowhere.
            let Some((family, endpoint)) = mirrored(address, ready).filter(|_| taken < MOST) else { continue };
            let place = *own.entry(family).or_insert_with(|| {
                *places.entry((family, key.clone())).or_insert_with(|| {
                    let (endpoints, known) = (Vec::new(), BTreeSet::new());
                    groups.push(Group { family, ports: ports.clone(), endpoints, known });
                    groups.len() - 1
                })
            });
            let Some(group) = groups.get_mut(place).filter(|group| group.endpoints.len() < MOST) else { continue };
            taken += 1;
            // Ready if any subset says so.
            if group.known.insert(identity(&endpoint)) {
                group.endpoints.push(endpoint);
            }
        }
    }
    groups.into_iter().map(|one| slice(endpoints, one.family, one.ports, one.endpoints)).collect()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Time of the processor that this thread has had.
    fn spent() -> Duration {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
    }

    #[test]
    fn many_subsets_cost_no_more_than_they_hold() {
        let subset = |number: i32| {
            let address = |host: i32| EndpointAddress {
                ip: format!("10.{}.{}.{host}", number / 256, number % 256),
                ..EndpointAddress::default()
            };
            EndpointSubset {
                addresses: Some((1..=10).map(address).collect()),
                ports: Some(vec![Port { port: number + 1, ..Port::default() }]),
                ..EndpointSubset::default()
            }
        };
        let endpoints = Endpoints { subsets: Some((0..4000).map(subset).collect()), ..Endpoints::default() };
        let before = spent();
        let all = slices(&endpoints);
        let took = spent() - before;
        let held: usize = all.iter().flat_map(|slice| &slice.endpoints).map(Vec::len).sum();
        assert_eq!((all.len(), held), (4000, 40_000));
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}
