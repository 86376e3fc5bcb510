//! What the kernel is to hold for Services: the frame of the table, and for each Service its chains, sets and elements.
//! Text of nft, but nothing runs it here. Pure.
//!
//! Hooks, maps and chains are those of K8s pkg/proxy/nftables/proxier.go; the hooks of nat come one after those of host
//! ports, which therefore win.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use super::super::Subnet;
use super::endpoints::{Endpoint, Here, LocalPod, of_port, usable};
use super::view::{EndpointView, Policy, ServicePort, ServiceView};
use crate::pod::ports::Protocol;

/// The bit by which a packet asks to be masqueraded, as kube-proxy's: network plugins leave it alone.
const MARK: &str = "0x4000";
/// Longest name of a chain or set that `nft` takes, with room to spare (`NFT_CHAIN_MAXNAMELEN`).
const NAME_LIMIT: usize = 110;

/// Something in the table: which family's, and what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    pub v6: bool,
    pub what: What,
}

/// In the order in which they refer to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// A set of its own, by name. Its text is its specification.
    Set(Box<str>),
    /// A chain, by name. Its text is its rules, a line each.
    Chain(Box<str>),
    /// An element of one of the table's sets and maps. Its text is what a map leads to.
    Element(Element),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    ClusterIp(IpAddr),
    Service(IpAddr, Protocol, u16),
    NodePort(Protocol, u16),
    /// Nobody is there to answer.
    NoEndpoints(IpAddr, Protocol, u16),
    NoNodeEndpoints(Protocol, u16),
}

impl Element {
    /// Name of the set or map.
    pub fn set(self) -> &'static str {
        match self {
            Self::ClusterIp(_) => "cluster-ips",
            Self::Service(..) => "service-ips",
            Self::NodePort(..) => "service-nodeports",
            Self::NoEndpoints(..) => "no-endpoint-services",
            Self::NoNodeEndpoints(..) => "no-endpoint-nodeports",
        }
    }

    pub fn key(self) -> String {
        match self {
            Self::ClusterIp(ip) => ip.to_string(),
            Self::Service(ip, protocol, port) | Self::NoEndpoints(ip, protocol, port) => {
                format!("{ip} . {protocol} . {port}")
            }
            Self::NodePort(protocol, port) | Self::NoNodeEndpoints(protocol, port) => format!("{protocol} . {port}"),
        }
    }
}

/// Name of the table in each family.
pub fn table(bridge: &str) -> String {
    format!("services-{bridge}")
}

/// `ip` or `ip6`.
pub fn family(v6: bool) -> &'static str {
    if v6 { "ip6" } else { "ip" }
}

/// The table of one family without any Service: what decides is in its maps.
pub fn frame(bridge: &str, subnet: Subnet) -> String {
    let v6 = !subnet.is_ipv4();
    let (ip, addr, table) = (family(v6), if v6 { "ipv6_addr" } else { "ipv4_addr" }, table(bridge));
    let loopback = if v6 { "ip6 daddr != ::1" } else { "ip daddr != 127.0.0.0/8" };
    let mut text = format!(
        "table {ip} {table} {{\n\
         \tset cluster-ips {{ type {addr}; }}\n\
         \tset hairpins {{ type {addr} . {addr}; }}\n\
         \tset onlink-pods {{ type {addr}; }}\n\
         \tmap service-ips {{ type {addr} . inet_proto . inet_service : verdict; }}\n\
         \tmap service-nodeports {{ type inet_proto . inet_service : verdict; }}\n\
         \tmap no-endpoint-services {{ type {addr} . inet_proto . inet_service : verdict; }}\n\
         \tmap no-endpoint-nodeports {{ type inet_proto . inet_service : verdict; }}\n"
    );
    let mut chain = |name: &str, rules: &[String]| {
        let _ = writeln!(text, "\tchain {name} {{");
        for rule in rules {
            let _ = writeln!(text, "\t\t{rule}");
        }
        text.push_str("\t}\n");
    };
    chain("mark-for-masquerade", &[format!("meta mark set meta mark | {MARK}")]);
    // The kernel sends unreachable messages once a second to each host; resets it sends always.
    chain("reject-chain", &["meta l4proto tcp reject with tcp reset".to_owned(), "reject".to_owned()]);
    let local = format!("fib daddr type local {loopback}");
    chain(
        "services",
        &[
            format!("{ip} saddr != {subnet} {ip} daddr @cluster-ips jump mark-for-masquerade"),
            format!("{ip} daddr . meta l4proto . th dport vmap @service-ips"),
            format!("{local} meta l4proto . th dport vmap @service-nodeports"),
        ],
    );
    chain("service-endpoints-check", &[format!("{ip} daddr . meta l4proto . th dport vmap @no-endpoint-services")]);
    chain("nodeport-endpoints-check", &[format!("{local} meta l4proto . th dport vmap @no-endpoint-nodeports")]);
    chain("cluster-ips-check", &[format!("{ip} daddr @cluster-ips goto reject-chain")]);
    let hook = |kind: &str, hook: &str, priority: i32| format!("type {kind} hook {hook} priority {priority};");
    for name in ["prerouting", "output"] {
        chain(&format!("nat-{name}"), &[hook("nat", name, -99), "jump services".into()]);
    }
    let new = |chain: &str| format!("ct state new jump {chain}");
    chain(
        "filter-input",
        &[hook("filter", "input", 0), new("nodeport-endpoints-check"), new("service-endpoints-check")],
    );
    for name in ["forward", "output"] {
        let rules = [hook("filter", name, 0), new("service-endpoints-check"), new("cluster-ips-check")];
        chain(&format!("filter-{name}"), &rules);
    }
    chain(
        "nat-postrouting",
        &[
            hook("nat", "postrouting", 99),
            format!("meta mark & {MARK} != 0 meta mark set meta mark ^ {MARK} masquerade fully-random"),
            format!("ct status dnat {ip} saddr . {ip} daddr @hairpins masquerade fully-random"),
            format!("ct status dnat {ip} saddr {subnet} {ip} daddr @onlink-pods masquerade fully-random"),
        ],
    );
    text.push_str("}\n");
    text
}

/// What a Service has in the tables, and the text of each part. Of the families in `families` (`true` for IPv6) alone.
pub fn of_service(
    (namespace, name): (&str, &str),
    view: &ServiceView,
    pods: &[LocalPod],
    others: &EndpointView,
    here: &Here,
    families: &[bool],
) -> BTreeMap<Item, String> {
    let mut items = BTreeMap::new();
    // The names become part of a script.
    if ![namespace, name].into_iter().all(is_plain) || view.is_headless() {
        return items;
    }
    for v6 in families.iter().copied() {
        let ips: Vec<IpAddr> = view.ips().filter(|ip| ip.is_ipv6() == v6).collect();
        if ips.is_empty() {
            continue;
        }
        for ip in &ips {
            items.insert(Item { v6, what: What::Element(Element::ClusterIp(*ip)) }, String::new());
        }
        for port in &view.ports {
            let Some(protocol) = port.protocol().filter(|_| port.port != 0 && is_plain(&port.name)) else { continue };
            let endpoints = of_port((namespace, view), port, v6, pods, others, here);
            let mut part = Part { items: &mut items, v6, protocol, view, port, name: String::new() };
            part.name = part.chain_name(namespace, name);
            part.add(&ips, &endpoints, here.answers(view, port, v6));
        }
    }
    items
}

/// One port of a Service in one family.
struct Part<'a> {
    items: &'a mut BTreeMap<Item, String>,
    v6: bool,
    protocol: Protocol,
    view: &'a ServiceView,
    port: &'a ServicePort,
    /// What its chains' names end with.
    name: String,
}

impl Part<'_> {
    fn add(&mut self, ips: &[IpAddr], all: &[Endpoint], own: Option<SocketAddr>) {
        let (view, port) = (self.view, self.port);
        let cluster = usable(all, false);
        let local = usable(all, true);
        let internal_local = view.internal_traffic_policy == Policy::Local;
        let internal = if internal_local { &local } else { &cluster };
        let verdict = match (own, internal.is_empty()) {
            (Some(own), _) => {
                let name = format!("dns-{}", self.name);
                self.chain(name.clone(), format!("meta l4proto {} dnat to {own}\n", self.protocol));
                Some(format!("goto {name}"))
            }
            (None, false) => Some(format!("goto {}", self.service_chain(internal, internal_local))),
            (None, true) => None,
        };
        // Refused where there is nobody; silent where there is somebody, but not here, as with kube-proxy.
        let nobody = |anywhere: &[Endpoint]| if anywhere.is_empty() { "goto reject-chain" } else { "drop" };
        for ip in ips {
            match &verdict {
                Some(verdict) => self.element(Element::Service(*ip, self.protocol, port.port), verdict.clone()),
                None => self.element(Element::NoEndpoints(*ip, self.protocol, port.port), nobody(&cluster).into()),
            }
        }
        let v6 = self.v6;
        let outside: Vec<IpAddr> =
            view.external_ips.iter().chain(&view.ingress_ips).filter(|ip| ip.is_ipv6() == v6).copied().collect();
        if outside.is_empty() && port.node_port == 0 {
            return;
        }
        let external_local = view.external_traffic_policy == Policy::Local;
        let external = if external_local { &local } else { &cluster };
        let verdict =
            (!external.is_empty()).then(|| format!("goto {}", self.external_chain(external_local, &cluster, &local)));
        for ip in outside {
            match &verdict {
                Some(verdict) => self.element(Element::Service(ip, self.protocol, port.port), verdict.clone()),
                None => self.element(Element::NoEndpoints(ip, self.protocol, port.port), nobody(&cluster).into()),
            }
        }
        if port.node_port != 0 {
            match verdict {
                Some(verdict) => self.element(Element::NodePort(self.protocol, port.node_port), verdict),
                None => self.element(Element::NoNodeEndpoints(self.protocol, port.node_port), nobody(&cluster).into()),
            }
        }
    }

    /// The chain that chooses among these; made if it is not there yet.
    fn service_chain(&mut self, endpoints: &[Endpoint], local: bool) -> String {
        let name = format!("{}-{}", if local { "local" } else { "service" }, self.name);
        let (ip, protocol) = (family(self.v6), self.protocol);
        let rules = match self.view.affinity_seconds {
            None => {
                let to = endpoints.iter().enumerate().map(|(index, to)| format!("{index} : {} . {}", to.ip, to.port));
                let to: Vec<String> = to.collect();
                let count = endpoints.len();
                format!(
                    "meta l4proto {protocol} dnat {ip} addr . port to numgen random mod {count} map {{ {} }}\n",
                    to.join(", ")
                )
            }
            Some(seconds) => {
                let names: Vec<(String, String)> =
                    endpoints.iter().map(|endpoint| self.endpoint_chain(endpoint, seconds)).collect();
                let mut rules = String::new();
                for (set, chain) in &names {
                    let _ = writeln!(rules, "{ip} saddr @{set} goto {chain}");
                }
                let to = names.iter().enumerate().map(|(index, (_, chain))| format!("{index} : goto {chain}"));
                let to: Vec<String> = to.collect();
                let _ = writeln!(rules, "numgen random mod {} vmap {{ {} }}", names.len(), to.join(", "));
                rules
            }
        };
        self.chain(name.clone(), rules);
        name
    }

    /// The chain that remembers whom it has sent to an endpoint, and the set in which it does.
    fn endpoint_chain(&mut self, endpoint: &Endpoint, seconds: u32) -> (String, String) {
        let (ip, protocol) = (family(self.v6), self.protocol);
        let at = format!("{}/{}", endpoint.ip.to_string().replace(':', "."), endpoint.port);
        let id = hash(&[&self.name, &at]);
        let (set, chain) = (format!("affinity-{id}-{at}"), format!("endpoint-{id}-{at}"));
        let addr = if self.v6 { "ipv6_addr" } else { "ipv4_addr" };
        let spec = format!("type {addr}; flags dynamic,timeout; timeout {seconds}s;");
        self.items.insert(Item { v6: self.v6, what: What::Set(set.as_str().into()) }, spec);
        let to = if self.v6 { format!("[{}]", endpoint.ip) } else { endpoint.ip.to_string() };
        let rules = format!("update @{set} {{ {ip} saddr }}\nmeta l4proto {protocol} dnat to {to}:{}\n", endpoint.port);
        self.chain(chain.clone(), rules);
        (set, chain)
    }

    /// What comes by an address that leads here from outside.
    fn external_chain(&mut self, only_local: bool, cluster: &[Endpoint], local: &[Endpoint]) -> String {
        let name = format!("external-{}", self.name);
        let all = self.service_chain(cluster, false);
        let rules = if only_local {
            // From this node itself the Service is as good as its cluster address.
            let here = self.service_chain(local, true);
            format!("fib saddr type local jump mark-for-masquerade\nfib saddr type local goto {all}\ngoto {here}\n")
        } else {
            format!("jump mark-for-masquerade\ngoto {all}\n")
        };
        self.chain(name.clone(), rules);
        name
    }

    fn chain(&mut self, name: String, rules: String) {
        self.items.insert(Item { v6: self.v6, what: What::Chain(name.into()) }, rules);
    }

    fn element(&mut self, element: Element, verdict: String) {
        self.items.insert(Item { v6: self.v6, what: What::Element(element) }, verdict);
    }

    /// Unique by a hash, readable by the rest.
    fn chain_name(&self, namespace: &str, service: &str) -> String {
        let (protocol, port) = (self.protocol.to_string(), &self.port.name);
        let id = hash(&[namespace, service, &protocol, port]);
        let mut name = format!("{id}-{namespace}/{service}/{protocol}/{port}");
        name.truncate(NAME_LIMIT);
        name
    }
}

fn hash(parts: &[&str]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, parts.join("/").as_bytes());
    digest.as_ref().iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}

/// Nothing in it means anything to nft. Names of ports may be empty.
fn is_plain(name: &str) -> bool {
    name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items(spec: serde_json::Value, pods: &[LocalPod]) -> Vec<String> {
        let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
        let items = of_service(("shop", "web"), &view, pods, &EndpointView::default(), &Here::default(), &[false]);
        let text = |(item, text): (Item, String)| match item.what {
            What::Set(name) => format!("set {name}: {text}"),
            What::Chain(name) => format!("chain {name}: {}", text.trim_end().replace('\n', "; ")),
            What::Element(element) => format!("{} {}: {text}", element.set(), element.key()),
        };
        items.into_iter().map(text).collect()
    }

    fn pod(ip: &str) -> LocalPod {
        LocalPod {
            namespace: "shop".into(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            ips: vec![ip.parse().unwrap()],
            ready: true,
            ..LocalPod::default()
        }
    }

    const NAME: &str = "-shop/web/tcp/http";

    fn spec(more: serde_json::Value) -> serde_json::Value {
        let mut spec = json!({"clusterIPs": ["10.96.0.7"], "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    }

    fn has(items: &[String], part: &str) -> bool {
        items.iter().any(|item| item.contains(part))
    }

    #[test]
    fn a_port_is_one_rule_however_many_endpoints_it_has() {
        let items = items(spec(json!({})), &[pod("10.0.0.3"), pod("10.0.0.2")]);
        assert_eq!(items.len(), 3, "{items:#?}");
        let to = "meta l4proto tcp dnat ip addr . port to numgen random mod 2 \
            map { 0 : 10.0.0.2 . 8080, 1 : 10.0.0.3 . 8080 }";
        assert!(items[0].starts_with("chain service-") && items[0].ends_with(&format!("{NAME}: {to}")), "{}", items[0]);
        assert_eq!(items[1], "cluster-ips 10.96.0.7: ");
        assert!(items[2].starts_with("service-ips 10.96.0.7 . tcp . 80: goto service-"), "{}", items[2]);
    }

    #[test]
    fn nobody_refuses_and_nobody_here_is_silent() {
        let refused = items(spec(json!({"ports": [{"port": 80, "nodePort": 30080}]})), &[]);
        assert!(has(&refused, "no-endpoint-services 10.96.0.7 . tcp . 80: goto reject-chain"), "{refused:#?}");
        assert!(has(&refused, "no-endpoint-nodeports tcp . 30080: goto reject-chain"), "{refused:#?}");
        let view = ServiceView::read(&json!({"spec": spec(json!({"internalTrafficPolicy": "Local"}))})).unwrap();
        let others = json!({"slices": [{"ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["192.0.2.1"]}]}]});
        let others = EndpointView::read(&others).unwrap();
        let silent = of_service(("shop", "web"), &view, &[], &others, &Here::default(), &[false]);
        assert!(silent.values().any(|verdict| verdict == "drop"), "{silent:?}");
    }

    #[test]
    fn outside_addresses_and_node_ports_lead_through_a_chain_of_their_own() {
        let ports = json!([{"name": "http", "port": 80, "nodePort": 30080}]);
        let all = items(spec(json!({"ports": ports, "externalIPs": ["192.0.2.9"]})), &[pod("10.0.0.2")]);
        assert!(has(&all, "service-nodeports tcp . 30080: goto external-"), "{all:#?}");
        assert!(has(&all, "service-ips 192.0.2.9 . tcp . 80: goto external-"), "{all:#?}");
        assert!(has(&all, &format!("{NAME}: jump mark-for-masquerade; goto service-")), "{all:#?}");
        let local = items(spec(json!({"ports": ports, "externalTrafficPolicy": "Local"})), &[pod("10.0.0.2")]);
        assert!(has(&local, "fib saddr type local jump mark-for-masquerade; fib saddr type local goto service-"));
        assert!(has(&local, "goto local-"), "{local:#?}");
    }

    #[test]
    fn s14_the_clusters_dns_is_answered_here_and_only_that() {
        let ports = json!([{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53},
            {"name": "metrics", "port": 9153}]);
        let spec = json!({"clusterIPs": ["10.96.0.10", "fd00::a"], "ports": ports, "dns": true});
        let of = |here: &Here, v6| {
            let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
            let items = of_service(("kube-system", "kube-dns"), &view, &[], &EndpointView::default(), here, &[v6]);
            let text = |(item, text): (Item, String)| format!("{:?} {text}", item.what);
            items.into_iter().map(text).collect::<Vec<_>>()
        };
        let here = Here { dns: vec!["10.85.0.1".parse().unwrap(), "fd85::1".parse().unwrap()], ..Here::default() };
        let v4 = of(&here, false);
        assert!(has(&v4, "meta l4proto udp dnat to 10.85.0.1:53"), "{v4:#?}");
        assert!(has(&v4, "meta l4proto tcp dnat to 10.85.0.1:53"), "{v4:#?}");
        assert!(has(&v4, "NoEndpoints(10.96.0.10, Tcp, 9153)) goto reject-chain"), "{v4:#?}");
        assert!(has(&of(&here, true), "meta l4proto udp dnat to [fd85::1]:53"));
        // Off, it is a Service like others.
        assert!(has(&of(&Here::default(), false), "NoEndpoints(10.96.0.10, Udp, 53)) goto reject-chain"));
    }

    #[test]
    fn affinity_has_a_set_for_each_endpoint() {
        let all = items(spec(json!({"affinitySeconds": 7})), &[pod("10.0.0.2"), pod("10.0.0.3")]);
        assert!(has(&all, "type ipv4_addr; flags dynamic,timeout; timeout 7s;"), "{all:#?}");
        assert!(has(&all, "meta l4proto tcp dnat to 10.0.0.2:80"), "{all:#?}");
        assert!(has(&all, "numgen random mod 2 vmap { 0 : goto endpoint-"), "{all:#?}");
    }

    #[test]
    fn names_cannot_say_anything_to_nft() {
        let view = ServiceView::read(&json!({ "spec": spec(json!({})) })).unwrap();
        let of = |namespace: &str, name: &str| {
            of_service((namespace, name), &view, &[], &EndpointView::default(), &Here::default(), &[false]).len()
        };
        assert_eq!((of("shop", "web"), of("shop", "a; flush ruleset"), of("a\nb", "web")), (2, 0, 0));
        let evil = items(spec(json!({"ports": [{"name": "}; x", "port": 80}]})), &[pod("10.0.0.2")]);
        assert_eq!(evil, ["cluster-ips 10.96.0.7: "]);
        let long = "n".repeat(63);
        let ports = json!([{"name": long, "port": 80, "targetPort": 8080}]);
        let all = items(spec(json!({ "ports": ports })), &[pod("10.0.0.2")]);
        assert!(all.iter().all(|item| item.len() < 300), "{all:#?}");
    }

    #[test]
    fn headless_services_are_nothing_to_the_kernel() {
        assert!(items(spec(json!({"clusterIPs": ["None"]})), &[pod("10.0.0.2")]).is_empty());
    }
}
