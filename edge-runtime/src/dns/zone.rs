//! Answers queries about the cluster by Kubernetes' DNS specification, schema 1.1.0. Where that is silent, it does what
//! the plugin `kubernetes` of CoreDNS does. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::wire::{A, AAAA, CNAME, Code, Data, PTR, Record, SHORTEST, SRV};
use crate::pod::dns::is_label;

/// The cluster, or changes of it, as the daemon sends it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cluster {
    /// Usually `cluster.local`.
    pub domain: String,
    /// Addresses of the helper. A helper with other addresses is outdated, and ends.
    pub listen: Vec<IpAddr>,
    pub services: Vec<Service>,
    /// `services` has only the changes since the last message, and `gone` the deleted Services.
    pub partial: bool,
    pub gone: Vec<(String, String)>,
    /// The daemon sends changes to a helper that accepts them.
    pub offers_parts: bool,
    /// Addresses of this node's pods, and their namespaces.
    pub pods: Vec<(IpAddr, String)>,
    /// Namespaces whose Services are complete; an empty name means all namespaces.
    pub followed: Vec<String>,
    /// The subset of `followed` that is followed because a pod has looked up a name.
    pub interests: Vec<String>,
    /// The bridge can be asked about namespaces that are not followed.
    pub online: bool,
    /// Further addresses that lead to the helper, beside `listen`.
    pub own: Vec<IpAddr>,
    pub health: Vec<Health>,
}

/// Health check of a Service, for load balancers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub namespace: String,
    pub name: String,
    /// `healthCheckNodePort`.
    pub port: u16,
    /// Number of ready endpoints of this node.
    pub local: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    pub namespace: String,
    pub name: String,
    /// Empty for a headless Service.
    pub ips: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_name: Option<String>,
    pub ports: Vec<Port>,
    /// Those that take traffic.
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    pub name: String,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: String,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    pub ip: IpAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default)]
    pub ports: Vec<Port>,
}

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

    fn service(&self, name: &str, (kind, room): (u16, usize), service: &Service, before: &[&str]) -> Answer {
        if let Some(target) = &service.external_name {
            if !before.is_empty() {
                return absent();
            }
            let target = target.trim_end_matches('.').to_ascii_lowercase();
            return self.alias(Record { name: name.into(), data: Data::Name(target.clone()) }, (kind, room), target);
        }
        let headless = service.ips.is_empty();
        match before {
            [] if kind == SRV => self.all_ports(name, room, service),
            [] if headless && service.endpoints.is_empty() => absent(),
            [] if headless => {
                let of_kind =
                    service.endpoints.iter().map(|to| Data::Address(to.ip)).filter(|data| data.kind() == kind);
                found(name, kind, of_kind.take(room / SHORTEST + 1).collect())
            }
            [] => found(name, kind, service.ips.iter().map(|ip| Data::Address(*ip)).collect()),
            [endpoint] => {
                let same = service.endpoints.iter().filter(|other| other.label() == *endpoint);
                let same: Vec<Data> = same.map(|to| Data::Address(to.ip)).collect();
                if same.is_empty() { absent() } else { found(name, kind, same) }
            }
            [port, protocol] => match (port.strip_prefix('_'), protocol.strip_prefix('_')) {
                // A port without a name does not have an SRV record.
                (Some(port), Some(protocol)) if !port.is_empty() => {
                    let wanted = |other: &Port| other.name == port && other.protocol == protocol;
                    self.ports(name, (kind, room), service, &wanted)
                }
                _ => absent(),
            },
            _ => absent(),
        }
    }

    /// Answers an SRV query for the Service itself with all its ports, as CoreDNS does.
    fn all_ports(&self, name: &str, room: usize, service: &Service) -> Answer {
        match self.ports(name, (SRV, room), service, &|_| true) {
            Answer::Known(Code::NoSuchName, ..) if !service.ips.is_empty() || !service.endpoints.is_empty() => {
                nothing()
            }
            answer => answer,
        }
    }

    fn ports(
        &self,
        name: &str,
        (kind, room): (u16, usize),
        service: &Service,
        wanted: &dyn Fn(&Port) -> bool,
    ) -> Answer {
        let host = format!("{}.{}.svc.{}", service.name, service.namespace, self.domain);
        let targets: Vec<(u16, Option<&Endpoint>)> = if service.ips.is_empty() {
            let all = service.endpoints.iter().flat_map(|to| to.ports.iter().map(move |port| (port, to)));
            all.filter(|(port, _)| wanted(port)).map(|(port, to)| (port.port, Some(to))).collect()
        } else {
            service.ports.iter().filter(|port| wanted(port)).map(|port| (port.port, None)).collect()
        };
        if targets.is_empty() {
            return absent();
        }
        if kind != SRV {
            return nothing();
        }
        let weight = u16::try_from((100 / targets.len()).max(1)).unwrap_or(1);
        let (mut more, mut records, mut size) = (BTreeSet::new(), Vec::new(), 0);
        for (port, endpoint) in targets {
            if size > room {
                break;
            }
            let (target, ips) = match endpoint {
                Some(endpoint) => (format!("{}.{host}", endpoint.label()), std::slice::from_ref(&endpoint.ip)),
                None => (host.clone(), &*service.ips),
            };
            size += SHORTEST + target.len();
            more.extend(ips.iter().map(|ip| Record { name: target.clone(), data: Data::Address(*ip) }));
            records.push(Record { name: name.to_owned(), data: Data::Service { weight, port, target } });
        }
        Answer::Known(Code::NoError, records, more.into_iter().collect())
    }

    /// Resolves an alias. One of another name of the cluster includes its addresses; one of another alias does not.
    fn alias(&self, record: Record, (kind, room): (u16, usize), target: String) -> Answer {
        if kind == CNAME {
            return Answer::Known(Code::NoError, vec![record], Vec::new());
        }
        if ![A, AAAA].contains(&kind) {
            return nothing();
        }
        let inside = target.strip_suffix(&self.domain).is_some_and(|rest| rest.ends_with('.'));
        if !inside {
            return Answer::Alias(record, target);
        }
        let external = |service: &Service| service.external_name.is_some();
        let labels: Vec<&str> = target.split('.').collect();
        let again = self.services.get(labels.get(1).copied().unwrap_or_default());
        if again.and_then(|all| all.get(labels[0])).is_some_and(external) {
            return Answer::Known(Code::NoError, vec![record], Vec::new());
        }
        match self.answer(&target, kind, room) {
            Answer::Known(_, records, more) => Answer::Known(Code::NoError, [vec![record], records].concat(), more),
            Answer::Unknown(namespace) => Answer::Unknown(namespace),
            _ => Answer::Known(Code::NoError, vec![record], Vec::new()),
        }
    }
}

impl Endpoint {
    /// Label below the name of its Service: its host name, or its address with dashes.
    fn label(&self) -> String {
        let dashed = || {
            let text = self.ip.to_string().replace(['.', ':'], "-");
            // A label must not begin or end with a dash.
            let end = if text.ends_with('-') { "0" } else { "" };
            let begin = if text.starts_with('-') { "0" } else { "" };
            format!("{begin}{text}{end}")
        };
        self.hostname.clone().unwrap_or_else(dashed)
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
