//! Answers queries about the cluster by Kubernetes' DNS specification, schema 1.1.0. Where that is silent, it does what
//! the plugin `kubernetes` of CoreDNS does. Pure.

mod cluster;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::wire::{Code, Data, PTR, Record};
use crate::pod::dns::is_label;

pub use cluster::{Cluster, Endpoint, Health, Port, Service};

#[derive(Debug, PartialEq)]
pub enum Answer {
    /// The answer, and additional records.
    Known(Code, Vec<Record>, Vec<Record>),
    /// An alias of a name outside the cluster: its record, and that name.
    Alias(Record, String),
    /// A name outside the cluster.
    Foreign,
    /// A name of a namespace that is not followed; it may exist.
    Unknown(String),
}

/// The cluster, indexed for queries.
#[derive(Debug, Default)]
pub struct Zone {
    domain: String,
    listen: Vec<IpAddr>,
    services: BTreeMap<String, BTreeMap<String, Service>>,
    namespaces: BTreeSet<String>,
    /// Names by address. Names of Services replace those of their endpoints.
    pointers: BTreeMap<IpAddr, BTreeSet<String>>,
    pods: BTreeSet<(IpAddr, String)>,
    followed: BTreeSet<String>,
    interests: BTreeSet<String>,
    online: bool,
}

impl Zone {
    pub fn new(cluster: Cluster) -> Self {
        let mut zone = Self::default();
        zone.take(cluster);
        zone
    }

    /// Applies a message of the daemon: the whole cluster, or changes of it.
    pub fn take(&mut self, cluster: Cluster) {
        let changed = !cluster.partial || !cluster.services.is_empty() || !cluster.gone.is_empty();
        if !cluster.partial {
            // Frees the old state first: there may not be memory for both.
            *self = Self::default();
        }
        (self.domain, self.listen) = (cluster.domain.to_ascii_lowercase(), cluster.listen);
        for (namespace, name) in cluster.gone {
            if let Some(of_namespace) = self.services.get_mut(&namespace) {
                of_namespace.remove(&name);
            }
        }
        for service in cluster.services {
            self.services.entry(service.namespace.clone()).or_default().insert(service.name.clone(), service);
        }
        if changed {
            self.services.retain(|_, of_namespace| !of_namespace.is_empty());
            self.pointers = self.pointers();
        }
        self.namespaces =
            self.services.keys().chain(cluster.pods.iter().map(|(_, namespace)| namespace)).cloned().collect();
        self.pods = cluster.pods.into_iter().collect();
        self.followed = cluster.followed.into_iter().collect();
        self.interests = cluster.interests.into_iter().collect();
        self.online = cluster.online;
    }

    fn pointers(&self) -> BTreeMap<IpAddr, BTreeSet<String>> {
        let mut of_endpoints: BTreeMap<IpAddr, BTreeSet<String>> = BTreeMap::new();
        let mut of_services: BTreeMap<IpAddr, BTreeSet<String>> = BTreeMap::new();
        for service in self.services.values().flat_map(BTreeMap::values) {
            let name = format!("{}.{}.svc.{}", service.name, service.namespace, self.domain);
            for endpoint in service.endpoints.iter().filter(|_| service.ips.is_empty()) {
                let pointer = format!("{}.{name}", endpoint.label());
                of_endpoints.entry(endpoint.ip).or_default().insert(pointer);
            }
            for ip in &service.ips {
                of_services.entry(*ip).or_default().insert(name.clone());
            }
        }
        of_endpoints.extend(of_services);
        of_endpoints
    }

    /// Whether the bridge can be asked about unknown namespaces.
    pub fn is_online(&self) -> bool {
        self.online
    }

    /// Returns the namespace of the name, if it is followed because of earlier queries.
    pub fn interest<'a>(&self, name: &'a str) -> Option<&'a str> {
        let rest = name.strip_suffix(&self.domain).filter(|_| !self.interests.is_empty())?;
        let namespace = rest.strip_suffix(".svc.")?.rsplit('.').next()?;
        self.interests.contains(namespace).then_some(namespace)
    }

    /// Whether a pod of this node has the address.
    pub fn is_pod(&self, ip: IpAddr) -> bool {
        self.pods.range((ip, String::new())..).next().is_some_and(|(found, _)| *found == ip)
    }

    fn is_followed(&self, namespace: &str) -> bool {
        self.followed.contains("") || self.followed.contains(namespace) || !is_label(namespace)
    }

    /// Answers that the name does not exist, if the namespace is followed.
    fn absent(&self, namespace: &str) -> Answer {
        if self.is_followed(namespace) { absent() } else { Answer::Unknown(namespace.to_owned()) }
    }

    /// Name of the zone.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Answers a query. `name` is in lower case, without a final dot. A long answer slightly exceeds `room` bytes.
    pub fn answer(&self, name: &str, kind: u16, room: usize) -> Answer {
        if let Some(ip) = reverse(name) {
            let Some(names) = self.pointers.get(&ip) else { return Answer::Foreign };
            let pointers = names.iter().map(|name| Data::Pointer(name.clone()));
            return found(name, kind, if kind == PTR { pointers.collect() } else { Vec::new() });
        }
        let Some(rest) = name.strip_suffix(&self.domain) else { return Answer::Foreign };
        if rest.is_empty() {
            let server = Data::Server(format!("ns.dns.{}", self.domain));
            return found(name, kind, vec![Data::Authority, server]);
        }
        let Some(rest) = rest.strip_suffix('.').filter(|_| !self.domain.is_empty()) else { return Answer::Foreign };
        let labels: Vec<&str> = rest.split('.').collect();
        match labels.as_slice() {
            ["dns-version"] => found(name, kind, vec![Data::Text("1.1.0".into())]),
            ["ns", "dns"] => found(name, kind, self.listen.iter().map(|ip| Data::Address(*ip)).collect()),
            ["svc" | "pod" | "dns"] => nothing(),
            [namespace, "svc" | "pod"] if self.namespaces.contains(*namespace) => nothing(),
            [namespace, "svc" | "pod"] => self.absent(namespace),
            [ip, namespace, "pod"] => self.pod(name, kind, ip, namespace),
            [before @ .., service, namespace, "svc"] => {
                let known = self.services.get(*namespace).and_then(|all| all.get(*service));
                known.map_or_else(|| self.absent(namespace), |known| self.service(name, (kind, room), known, before))
            }
            _ => absent(),
        }
    }

    fn pod(&self, name: &str, kind: u16, ip: &str, namespace: &str) -> Answer {
        let v4 = ip.replace('-', ".").parse::<Ipv4Addr>().map(IpAddr::V4);
        let v6 = ip.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6);
        let Ok(ip) = v4.or(v6) else { return absent() };
        match self.pods.contains(&(ip, namespace.to_owned())) {
            true => found(name, kind, vec![Data::Address(ip)]),
            false => absent(),
        }
    }
}

/// Parses the address of a name in `in-addr.arpa` or `ip6.arpa`.
fn reverse(name: &str) -> Option<IpAddr> {
    if let Some(rest) = name.strip_suffix(".in-addr.arpa") {
        let octets: Vec<&str> = rest.split('.').rev().collect();
        return octets.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let rest = name.strip_suffix(".ip6.arpa")?;
    let digits: Vec<&str> = rest.split('.').rev().collect();
    if digits.len() != 32 || digits.iter().any(|digit| digit.len() != 1) {
        return None;
    }
    u128::from_str_radix(&digits.concat(), 16).ok().map(|bits| IpAddr::V6(Ipv6Addr::from(bits)))
}

/// Answers with the records of this type; the name exists in any case.
fn found(name: &str, kind: u16, data: Vec<Data>) -> Answer {
    let data = data.into_iter().filter(|data| data.kind() == kind);
    let records = data.map(|data| Record { name: name.to_owned(), data }).collect();
    Answer::Known(Code::NoError, records, Vec::new())
}

fn nothing() -> Answer {
    Answer::Known(Code::NoError, Vec::new(), Vec::new())
}

fn absent() -> Answer {
    Answer::Known(Code::NoSuchName, Vec::new(), Vec::new())
}

#[cfg(test)]
mod tests;
