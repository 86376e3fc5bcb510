//! All EndpointSlices of a Service: a group of slices for each family and set of ports, filled so that few of them change
//! (K8s staging endpointslice/reconciler.go).

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

use super::member::{Member, members};
use super::slice::{Identity, Ports, endpoint, identity, is_owned, is_same, labels, new_slice, ports, ports_key};
use super::words::{SLICE_CONTROLLER, TRIGGERED, service_of, slices_named, stamp};
use crate::workloads::service::{Family, Service};
use crate::workloads::world::World;

/// Maximum number of endpoints in a slice (K8s `--max-endpoints-per-slice`).
const MOST: usize = 100;

/// Writes to make. Updates include the present object.
#[derive(Default)]
pub(super) struct Changes<'a> {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<(&'a EndpointSlice, EndpointSlice)>,
    pub(super) delete: Vec<&'a EndpointSlice>,
    /// The earliest time of what changed.
    since: Option<Timestamp>,
}

/// Desired endpoints of slices with these ports, each with the time since when it is unchanged.
struct Group {
    ports: Vec<EndpointPort>,
    wanted: BTreeMap<Identity, (Endpoint, Option<Timestamp>)>,
}

pub(super) fn changes<'a>(world: &'a World, service: &'a Service) -> Changes<'a> {
    let existing = slices_named(world, service.namespace(), service.name(), SLICE_CONTROLLER);
    let existing: Vec<&EndpointSlice> = existing
        .filter(|slice| service_of(slice) == Some(service.name()) && slice.metadata.deletion_timestamp.is_none())
        .collect();
    let members: Vec<Member<'_>> = members(world, service).collect();
    let families = service.families();
    let mut all = Changes::default();
    for slice in &existing {
        if !families.iter().any(|family| family.name() == slice.address_type) {
            all.delete.push(slice);
        }
    }
    for family in families {
        let of_family = existing.iter().copied().filter(|slice| slice.address_type == family.name()).collect();
        let one = of_family_changes(service, family, &members, of_family);
        all.create.extend(one.create);
        all.update.extend(one.update);
        all.delete.extend(one.delete);
        all.since = earlier(all.since, one.since);
    }
    if service.metadata.deletion_timestamp.is_some() {
        // The garbage collector deletes all of them: a new one might be left behind.
        all.create.clear();
    }
    let born = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let since = stamp(if existing.is_empty() { born } else { all.since });
    let text = since.as_ref().and_then(|since| since.as_str());
    for slice in all.create.iter_mut().chain(all.update.iter_mut().map(|(_, slice)| slice)) {
        set_triggered(slice, text);
    }
    all
}

fn set_triggered(slice: &mut EndpointSlice, since: Option<&str>) {
    let annotations = slice.metadata.annotations.get_or_insert_default();
    match since {
        Some(since) => drop(annotations.insert(TRIGGERED.to_owned(), since.to_owned())),
        None => drop(annotations.remove(TRIGGERED)),
    }
    slice.metadata.annotations.take_if(|annotations| annotations.is_empty());
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

fn groups(service: &Service, family: Family, members: &[Member<'_>]) -> BTreeMap<Ports, Group> {
    let mut groups: BTreeMap<Ports, Group> = BTreeMap::new();
    for member in members {
        let ports = ports(member, service);
        let group = groups.entry(ports_key(&ports)).or_insert_with(|| Group { ports, wanted: BTreeMap::new() });
        if let Some(endpoint) = endpoint(member, service, family) {
            group.wanted.insert(identity(&endpoint), (endpoint, member.since()));
        }
    }
    groups
}

fn of_family_changes<'a>(
    service: &Service,
    family: Family,
    members: &[Member<'_>],
    existing: Vec<&'a EndpointSlice>,
) -> Changes<'a> {
    let count = existing.len();
    let mut changes = Changes::default();
    let mut by_ports: BTreeMap<Ports, Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in existing {
        if is_owned(slice, service) {
            by_ports.entry(ports_key(slice.ports.as_deref().unwrap_or_default())).or_default().push(slice);
        } else {
            changes.delete.push(slice);
        }
    }
    for (ports, group) in groups(service, family, members) {
        let slices = by_ports.remove(&ports).unwrap_or_default();
        group_changes(&mut changes, service, family, group, slices);
    }
    changes.delete.extend(by_ports.into_values().flatten());
    if changes.delete.len() == count && changes.create.is_empty() {
        keep_one(&mut changes, new_slice(service, family, Vec::new()));
    }
    reuse(&mut changes, service);
    changes
}

/// Keeps an empty slice if there would be none: it shows that the Service was processed.
fn keep_one(changes: &mut Changes<'_>, empty: EndpointSlice) {
    let is_it = |slice: &EndpointSlice| {
        slice.metadata.labels == empty.metadata.labels
            && slice.metadata.owner_references == empty.metadata.owner_references
            && slice.endpoints.as_ref().is_none_or(Vec::is_empty)
            && slice.ports.as_ref().is_none_or(Vec::is_empty)
    };
    match changes.delete.as_slice() {
        [only] if is_it(only) => changes.delete.clear(),
        _ => changes.create.push(empty),
    }
}

/// Reuses slices that would be deleted, to avoid a gap in between.
fn reuse(changes: &mut Changes<'_>, service: &Service) {
    let mut going = Vec::new();
    for old in std::mem::take(&mut changes.delete) {
        match changes.create.pop_if(|_| is_owned(old, service)) {
            Some(new) => changes.update.push((old, with_content(old, new))),
            None => going.push(old),
        }
    }
    changes.delete = going;
}

/// A slice with the content of another one.
fn with_content(old: &EndpointSlice, new: EndpointSlice) -> EndpointSlice {
    let mut slice = old.clone();
    slice.metadata.labels = new.metadata.labels;
    slice.endpoints = new.endpoints;
    slice.ports = new.ports;
    slice
}

fn len(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

/// First, endpoints in slices stay or are removed. New ones are added to slices that change anyway, then to one other
/// that has room for all of them, and otherwise to new slices.
fn group_changes<'a>(
    changes: &mut Changes<'a>,
    service: &Service,
    family: Family,
    mut group: Group,
    existing: Vec<&'a EndpointSlice>,
) {
    let labels = labels(service);
    let mut update: Vec<(&EndpointSlice, EndpointSlice)> = Vec::new();
    let mut unchanged = Vec::new();
    for old in existing {
        let mut kept = Vec::new();
        let mut same = true;
        for endpoint in old.endpoints.iter().flatten() {
            let Some((wanted, since)) = group.wanted.remove(&identity(endpoint)) else {
                same = false;
                continue;
            };
            if !is_same(&wanted, endpoint) {
                same = false;
                changes.since = earlier(changes.since, since);
            }
            kept.push(wanted);
        }
        if !same && kept.is_empty() {
            changes.delete.push(old);
        } else if !same || old.metadata.labels.as_ref() != Some(&labels) {
            let mut slice = old.clone();
            slice.metadata.labels = Some(labels.clone());
            slice.endpoints = Some(kept);
            update.push((old, slice));
        } else {
            unchanged.push(old);
        }
    }
    let mut left: Vec<Endpoint> = Vec::new();
    for (endpoint, since) in group.wanted.into_values() {
        changes.since = earlier(changes.since, since);
        left.push(endpoint);
    }
    // The fullest first.
    update.sort_by_key(|(_, slice)| std::cmp::Reverse(len(slice)));
    update.iter_mut().for_each(|(_, slice)| fill(slice, &mut left));
    let room = |old: &&EndpointSlice| MOST.checked_sub(len(old) + left.len());
    if !left.is_empty()
        && let Some(old) = unchanged.into_iter().filter(|old| room(old).is_some()).min_by_key(room)
    {
        let mut slice = old.clone();
        fill(&mut slice, &mut left);
        update.push((old, slice));
    }
    while !left.is_empty() {
        let mut slice = new_slice(service, family, group.ports.clone());
        fill(&mut slice, &mut left);
        changes.create.push(slice);
    }
    changes.update.extend(update);
}

fn fill(slice: &mut EndpointSlice, left: &mut Vec<Endpoint>) {
    let room = MOST.saturating_sub(len(slice)).min(left.len());
    slice.endpoints.get_or_insert_default().extend(left.drain(..room));
}
