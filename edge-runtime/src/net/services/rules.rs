//! What the kernel is to hold for Services: the frame of the table, and for each Service its chains, sets and elements.
//! Text of nft, but nothing runs it here. Pure.
//!
//! Hooks, maps and chains are those of K8s pkg/proxy/nftables/proxier.go; the hooks of nat come one after those of host
//! ports, which therefore win.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use super::super::Subnet;
use super::super::prefix::Prefix;
use super::endpoints::{Endpoint, Here, LocalPod, is_ordinary, of_port, usable};
use super::node_ports::{NodePorts, outermost};
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
    /// Not everybody may come.
    Firewall(IpAddr, Protocol, u16),
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
            Self::Firewall(..) => "firewall-ips",
        }
    }

    pub fn key(self) -> String {
        match self {
            Self::ClusterIp(ip) => ip.to_string(),
            Self::Service(ip, protocol, port)
            | Self::NoEndpoints(ip, protocol, port)
            | Self::Firewall(ip, protocol, port) => {
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
pub fn frame(bridge: &str, subnet: Subnet, node_ports: &NodePorts) -> String {
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
         \tmap no-endpoint-nodeports {{ type inet_proto . inet_service : verdict; }}\n\
         \tmap firewall-ips {{ type {addr} . inet_proto . inet_service : verdict; }}\n"
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
    // The rule by which a node port is found in a map, if there is an address for it.
    let at_node = |map: &str| {
        let at = match node_ports.of(v6) {
            None => String::new(),
            Some([]) => return None,
            Some(ranges) => format!("{ip} daddr {{ {} }} ", join(ranges)),
        };
        Some(format!("fib daddr type local {loopback} {at}meta l4proto . th dport vmap @{map}"))
    };
    let mut services = vec![
        format!("{ip} saddr != {subnet} {ip} daddr @cluster-ips jump mark-for-masquerade"),
        format!("{ip} daddr . meta l4proto . th dport vmap @service-ips"),
    ];
    services.extend(at_node("service-nodeports"));
    chain("services", &services);
    chain("firewall-check", &[format!("{ip} daddr . meta l4proto . th dport vmap @firewall-ips")]);
    chain("service-endpoints-check", &[format!("{ip} daddr . meta l4proto . th dport vmap @no-endpoint-services")]);
    chain("nodeport-endpoints-check", &Vec::from_iter(at_node("no-endpoint-nodeports")));
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
    for name in ["prerouting", "output"] {
        // Before any address is another one.
        chain(&format!("filter-{name}-early"), &[hook("filter", name, -110), new("firewall-check")]);
    }
    let checks = [new("service-endpoints-check"), new("cluster-ips-check")];
    chain("filter-forward", &[vec![hook("filter", "forward", 0)], checks.to_vec()].concat());
    // The route to Services leads over the bridge: what no Service has is asked of nobody there.
    let there = if v6 { "fe80::/10, ff00::/8" } else { "224.0.0.0/4, 255.255.255.255" };
    let nobodys =
        format!("oifname \"{bridge}\" ct status & dnat == 0 {ip} daddr != {{ {subnet}, {there} }} goto reject-chain");
    chain("filter-output", &[vec![hook("filter", "output", 0)], checks.to_vec(), vec![nobodys]].concat());
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
    let own = |ip: &IpAddr| here.ips.contains(ip);
    for v6 in families.iter().copied() {
        let mine = |ip: &IpAddr| ip.is_ipv6() == v6 && is_servable(*ip, here) && !own(ip);
        let ips: Vec<IpAddr> = view.ips().filter(mine).collect();
        if ips.is_empty() {
            continue;
        }
        for ip in &ips {
            items.insert(Item { v6, what: What::Element(Element::ClusterIp(*ip)) }, String::new());
        }
        for port in &view.ports {
            let Some(protocol) = port.protocol().filter(|_| port.port != 0 && is_plain(&port.name)) else { continue };
            let endpoints = of_port((namespace, view), port, v6, pods, others, here);
            let mut part = Part { items: &mut items, v6, protocol, view, port, here, name: String::new() };
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
    here: &'a Here,
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
        let nobody = if cluster.is_empty() { "goto reject-chain" } else { "drop" };
        for ip in ips {
            match &verdict {
                Some(verdict) => self.element(Element::Service(*ip, self.protocol, port.port), verdict.clone()),
                None => self.element(Element::NoEndpoints(*ip, self.protocol, port.port), nobody.into()),
            }
        }
        let v6 = self.v6;
        let mine = |ip: &&IpAddr| ip.is_ipv6() == v6 && is_servable(**ip, self.here);
        let balancers: Vec<IpAddr> = view.ingress_ips.iter().filter(mine).copied().collect();
        let outside: Vec<IpAddr> = view.external_ips.iter().filter(mine).copied().chain(balancers.clone()).collect();
        if outside.is_empty() && port.node_port == 0 {
            return;
        }
        let external_local = view.external_traffic_policy == Policy::Local;
        let unserved = if external_local { local.is_empty() } else { cluster.is_empty() };
        // Also when nobody is here: pods and processes of this node find the others by it.
        let verdict =
            (!cluster.is_empty()).then(|| format!("goto {}", self.external_chain(external_local, &cluster, &local)));
        let protocol = self.protocol;
        let places = outside
            .into_iter()
            .map(|ip| (Element::Service(ip, protocol, port.port), Element::NoEndpoints(ip, protocol, port.port)));
        let at_node = (port.node_port != 0).then_some((
            Element::NodePort(protocol, port.node_port),
            Element::NoNodeEndpoints(protocol, port.node_port),
        ));
        for (leads, refuses) in places.chain(at_node).collect::<Vec<_>>() {
            if let Some(verdict) = &verdict {
                self.element(leads, verdict.clone());
            }
            if unserved {
                self.element(refuses, nobody.into());
            }
        }
        self.add_firewall(&balancers);
    }

    /// Who may come by the addresses of load balancers. Node ports are not limited, for better or worse (K8s
    /// pkg/proxy/nftables/proxier.go, `syncProxyRules`).
    fn add_firewall(&mut self, balancers: &[IpAddr]) {
        let asked = &self.view.load_balancer_source_ranges;
        let ranges: Vec<Prefix> = asked.iter().filter_map(|range| range.parse().ok()).collect();
        let of_family = ranges.iter().copied().filter(|range| range.is_ipv6() == self.v6);
        let mut allowed = outermost(of_family);
        // Ranges of the other family say nothing of this one; what is no range lets nobody in.
        if balancers.is_empty() || asked.is_empty() || (allowed.is_empty() && !ranges.is_empty()) {
            return;
        }
        // A node that has the balancer's address itself comes by that (K8s, the same place).
        if allowed.iter().any(|range| self.here.ips.iter().any(|ip| range.contains(*ip))) {
            allowed = outermost(allowed.into_iter().chain(balancers.iter().map(|ip| Prefix::around(*ip, 128))));
        }
        if allowed.iter().any(|range| range.length() == 0) {
            return;
        }
        let name = format!("firewall-{}", self.name);
        let rule = match allowed.is_empty() {
            true => "drop\n".to_owned(),
            false => format!("{} saddr != {{ {} }} drop\n", family(self.v6), join(&allowed)),
        };
        self.chain(name.clone(), rule);
        for ip in balancers {
            self.element(Element::Firewall(*ip, self.protocol, self.port.port), format!("goto {name}"));
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
                // K8s core/v1, `ClientIPConfig`.
                let seconds = seconds.clamp(1, 86_400);
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
            // From this node itself, and its pods, the Service is as good as its cluster address.
            let subnets = self.here.subnets.iter().filter(|subnet| subnet.is_ipv4() != self.v6);
            let of_pods = subnets.map(|subnet| format!("{} saddr {subnet} goto {all}\n", family(self.v6)));
            let mut rules: String = of_pods.collect();
            let _ = write!(rules, "fib saddr type local jump mark-for-masquerade\nfib saddr type local goto {all}\n");
            if !local.is_empty() {
                let _ = writeln!(rules, "goto {}", self.service_chain(local, true));
            }
            rules
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

/// Whether a Service can have the address: none that means something else to the kernel, and none of this node's pods, of
/// which one is the gateway's, where names are asked for.
fn is_servable(ip: IpAddr, here: &Here) -> bool {
    is_ordinary(ip) && !here.subnets.iter().any(|subnet| subnet.contains(ip))
}

fn join(ranges: &[Prefix]) -> String {
    ranges.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ")
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

    /// K8s pkg/proxy/nftables/proxier.go, `syncProxyRules`: nobody here, but somebody elsewhere.
    #[test]
    fn s09_policy_local_without_a_pod_here_drops_strangers_and_leads_the_nodes_own_on() {
        let spec = spec(json!({"externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.9"],
            "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]}));
        let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
        let others = json!({"slices": [{"ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["192.0.2.1"], "nodeName": "other"}]}]});
        let others = EndpointView::read(&others).unwrap();
        let here = Here { subnets: vec!["10.85.0.0/24".parse().unwrap()], ..Here::default() };
        let found = of_service(("shop", "web"), &view, &[], &others, &here, &[false]);
        let chain = |prefix: &str| {
            let is = |item: &Item| matches!(&item.what, What::Chain(name) if name.starts_with(prefix));
            found.iter().find(|(item, _)| is(item)).map(|(_, text)| text.as_str())
        };
        let external = chain("external-").unwrap();
        assert!(external.starts_with("ip saddr 10.85.0.0/24 goto service-"), "{external}");
        assert!(external.trim_end().lines().last().unwrap().starts_with("fib saddr type local goto service-"));
        assert_eq!(chain("local-"), None);
        let at = |element: Element| found.get(&Item { v6: false, what: What::Element(element) }).map(String::as_str);
        assert_eq!(at(Element::NoNodeEndpoints(Protocol::Tcp, 30080)), Some("drop"));
        assert_eq!(at(Element::NoEndpoints("192.0.2.9".parse().unwrap(), Protocol::Tcp, 80)), Some("drop"));
        assert!(at(Element::NodePort(Protocol::Tcp, 30080)).unwrap().starts_with("goto external-"));
        assert!(at(Element::Service("10.96.0.7".parse().unwrap(), Protocol::Tcp, 80)).is_some());
    }

    #[test]
    fn source_ranges_keep_others_from_the_balancers_address_alone() {
        let of = |ranges: serde_json::Value, ips: &[&str]| {
            let spec = spec(json!({"loadBalancerSourceRanges": ranges, "ingressIPs": ["192.0.2.9"],
                "externalIPs": ["192.0.2.8"], "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}));
            let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
            let here = Here { ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(), ..Here::default() };
            let items =
                of_service(("shop", "web"), &view, &[pod("10.0.0.2")], &EndpointView::default(), &here, &[false]);
            let limited: Vec<String> = items
                .keys()
                .filter_map(|item| match &item.what {
                    What::Element(element @ Element::Firewall(..)) => Some(element.key()),
                    _ => None,
                })
                .collect();
            let is = |item: &Item| matches!(&item.what, What::Chain(name) if name.starts_with("firewall-"));
            (limited, items.iter().find(|(item, _)| is(item)).map(|(_, text)| text.trim_end().to_owned()))
        };
        let only = vec!["192.0.2.9 . tcp . 80".to_owned()];
        let rule = |text: &str| (only.clone(), Some(format!("ip saddr != {{ {text} }} drop")));
        assert_eq!(
            of(json!(["10.0.0.0/8", " 10.1.0.0/16 ", "203.0.113.0/24", "fd00::/8"]), &[]),
            rule("10.0.0.0/8, 203.0.113.0/24")
        );
        assert_eq!(of(json!(["203.0.113.0/24"]), &["203.0.113.7"]), rule("203.0.113.0/24, 192.0.2.9/32"));
        assert_eq!(of(json!([]), &[]), (vec![], None));
        assert_eq!(of(json!(["0.0.0.0/0", "10.0.0.0/8"]), &[]), (vec![], None));
        assert_eq!(of(json!(["fd00::/8"]), &[]), (vec![], None), "of the other family, as with kube-proxy");
        assert_eq!(of(json!(["everybody"]), &[]), (only.clone(), Some("drop".into())));
    }

    #[test]
    fn addresses_that_mean_something_else_are_no_services_and_no_endpoints() {
        let here = Here {
            ips: vec!["192.0.2.1".parse().unwrap()],
            subnets: vec!["10.85.0.0/24".parse().unwrap(), "fd00:85::/64".parse().unwrap()],
            ..Here::default()
        };
        let of = |field: &str, ip: &str| {
            let mut spec = spec(json!({}));
            spec[field] = json!([ip]);
            if field != "clusterIPs" {
                spec["clusterIPs"] = json!(["10.96.0.7"]);
            }
            let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
            let items = of_service(
                ("shop", "web"),
                &view,
                &[pod("10.85.0.2")],
                &EndpointView::default(),
                &here,
                &[false, true],
            );
            let wanted: IpAddr = ip.parse().unwrap();
            items.keys().any(|item| matches!(&item.what, What::Element(Element::Service(at, ..) | Element::NoEndpoints(at, ..)) if *at == wanted))
        };
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "169.254.169.254",
            "10.85.0.1",
            "10.85.0.2",
            "::",
            "::1",
            "ff02::1",
            "fe80::1",
            "::ffff:10.96.0.9",
            "fd00:85::1",
        ] {
            assert!(!of("clusterIPs", ip) && !of("externalIPs", ip) && !of("ingressIPs", ip), "{ip}");
        }
        assert!(
            of("externalIPs", "192.0.2.1") && !of("clusterIPs", "192.0.2.1"),
            "the node's own is an outside address"
        );
        assert!(of("clusterIPs", "10.96.0.9") && of("clusterIPs", "fd00:96::9") && of("externalIPs", "8.8.8.8"));
        let view = ServiceView::read(&json!({ "spec": spec(json!({"selector": {}})) })).unwrap();
        let endpoints = ["127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.169.254"].map(|ip| json!({"addresses": [ip]}));
        let others = json!({"slices": [{"ports": [{"name": "http", "port": 8080}], "endpoints": endpoints}]});
        let others = EndpointView::read(&others).unwrap();
        let items = of_service(("shop", "web"), &view, &[], &others, &here, &[false]);
        assert!(items.values().any(|text| text == "goto reject-chain"), "{items:?}");
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
