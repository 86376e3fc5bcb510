//! The Endpoints of a Service: addresses by the ports that they share (K8s pkg/controller/endpoint, pkg/api/v1/endpoints
//! `RepackSubsets`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::member::{Member, members, protocol};
use super::truncate::truncate;
use super::words::{ENDPOINTS_CONTROLLER, HEADLESS, MANAGED_BY, TRIGGERED, stamp};
use crate::workloads::service::Service;
use crate::workloads::world::World;

const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// An address and the pod that has it: pods on the host's network share one.
type Host = (String, Option<String>);
/// Name, number, protocol, application protocol.
type Port = (Option<String>, i32, String, Option<String>);

/// The desired Endpoints; `None` if they are up to date.
pub(super) fn wanted(world: &World, service: &Service, known: Option<&Endpoints>) -> Option<Endpoints> {
    let members: Vec<Member<'_>> =
        members(world, service).filter(|member| service.publishes_unready() || !member.pod.is_deleting()).collect();
    let mut subsets = packed(service, &members);
    let truncated = truncate(&mut subsets);
    let mut new = known.cloned().unwrap_or_else(|| Endpoints {
        metadata: ObjectMeta {
            name: Some(service.name().to_owned()),
            namespace: Some(service.namespace().to_owned()),
            ..ObjectMeta::default()
        },
        subsets: None,
    });
    let old = new.clone();
    let nothing_before = old.subsets.as_ref().is_none_or(Vec::is_empty);
    if !subsets.is_empty() || !nothing_before {
        new.subsets = (!subsets.is_empty()).then_some(subsets);
    }
    new.metadata.labels = Some(labels(service));
    let annotations = new.metadata.annotations.get_or_insert_default();
    if truncated {
        annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned());
    } else {
        annotations.remove(OVER_CAPACITY);
    }
    new.metadata.annotations.take_if(|annotations| annotations.is_empty());
    if known.is_some() && is_same(&new, &old) {
        return None;
    }
    let born = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let since = if known.is_none() { born } else { changed_since(service, &members, &old) };
    let annotations = new.metadata.annotations.get_or_insert_default();
    match stamp(since).as_ref().and_then(|since| since.as_str()) {
        Some(since) => drop(annotations.insert(TRIGGERED.to_owned(), since.to_owned())),
        None => drop(annotations.remove(TRIGGERED)),
    }
    new.metadata.annotations.take_if(|annotations| annotations.is_empty());
    Some(new)
}

fn is_same(new: &Endpoints, old: &Endpoints) -> bool {
    new.metadata.labels == old.metadata.labels
        && new.metadata.annotations.clone().unwrap_or_default() == old.metadata.annotations.clone().unwrap_or_default()
        && new.subsets == old.subsets
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service.has_no_cluster_ip() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), ENDPOINTS_CONTROLLER.to_owned());
    labels
}

/// Whether a pod gets traffic. Unlike in slices a pod that is to end is not there at all.
fn is_ready(service: &Service, member: &Member<'_>) -> bool {
    service.publishes_unready() || member.serving
}

/// The earliest time since when one of the pods is as it is that the old object does not know so.
fn changed_since(service: &Service, members: &[Member<'_>], old: &Endpoints) -> Option<Timestamp> {
    let mut known = BTreeSet::new();
    for subset in old.subsets.iter().flatten() {
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        known.extend(ready.chain(unready).map(|(address, ready)| (host(address), ready)));
    }
    let changed = members.iter().filter(|member| {
        let address = member.address(service).map(|ip| (ip, member.pod.metadata.uid.clone()));
        address.is_some_and(|host| !known.contains(&(host, is_ready(service, member))))
    });
    changed.filter_map(Member::since).min()
}

fn host(address: &EndpointAddress) -> Host {
    (address.ip.clone(), address.target_ref.as_ref().and_then(|pod| pod.uid.clone()))
}

/// The subsets: each port with the hosts that have it, then the ports together that have the same hosts.
fn packed(service: &Service, members: &[Member<'_>]) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<Host, EndpointAddress> = BTreeMap::new();
    // `None` is an endpoint without ports.
    let mut by_port: BTreeMap<Option<Port>, BTreeMap<Host, bool>> = BTreeMap::new();
    for member in members {
        let Some(address) = address(service, member) else { continue };
        let host = host(&address);
        let mut add = |port| {
            by_port.entry(port).or_default().insert(host.clone(), is_ready(service, member));
        };
        if service.ports().is_empty() && service.is_headless() {
            add(None);
        }
        for port in service.ports() {
            let Some(number) = member.port(port) else { continue };
            let name = port.name.clone().filter(|name| !name.is_empty());
            add(Some((name, number, protocol(port).to_owned(), port.app_protocol.clone())));
        }
        addresses.insert(host, address);
    }
    let mut by_hosts: BTreeMap<Vec<(Host, bool)>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, hosts) in by_port {
        let ports = by_hosts.entry(hosts.into_iter().collect()).or_default();
        ports.extend(port.map(|(name, port, protocol, app_protocol)| EndpointPort {
            name,
            port,
            protocol: Some(protocol),
            app_protocol,
        }));
    }
    let subset = |(hosts, ports): (Vec<(Host, bool)>, Vec<EndpointPort>)| {
        let of = |wanted: bool| {
            let hosts = hosts.iter().filter(|(_, ready)| *ready == wanted);
            let found: Vec<_> = hosts.filter_map(|(host, _)| addresses.get(host).cloned()).collect();
            (!found.is_empty()).then_some(found)
        };
        EndpointSubset {
            addresses: of(true),
            not_ready_addresses: of(false),
            ports: (!ports.is_empty()).then_some(ports),
        }
    };
    by_hosts.into_iter().map(subset).collect()
}

fn address(service: &Service, member: &Member<'_>) -> Option<EndpointAddress> {
    Some(EndpointAddress {
        ip: member.address(service)?,
        hostname: member.hostname(service),
        node_name: member.node().map(str::to_owned),
        target_ref: Some(member.reference()),
    })
}
