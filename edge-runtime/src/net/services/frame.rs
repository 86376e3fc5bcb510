//! The table of a family before any Service is in it: hooks and maps. Text of nft, but nothing runs it here. Pure.
//!
//! They are those of K8s pkg/proxy/nftables/proxier.go. The nat hooks come one after those of host ports, so host ports
//! have priority.

use std::fmt::Write;

use super::super::Subnet;
use super::super::prefix::join;
use super::item::{family, table};
use super::node_ports::NodePorts;

/// The bit by which a packet asks to be masqueraded, as kube-proxy's: network plugins leave it alone.
const MARK: &str = "0x4000";

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
    // The route to Services leads over the bridge: packets to an unassigned address must be refused, not sent there.
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
