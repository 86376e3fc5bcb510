//! The text of the node's nft tables. Pure; knows nothing of who runs it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::Subnet;
use super::super::settings::NetworkSettings;
use crate::pod::ports::{Forward, Protocol};
use crate::sys::gather::Gather;

/// The chain that keeps pods away from the node's loopback.
pub(super) const GUARD: &str = "guard";

/// A chain that every table has.
pub(super) const LAST: &str = "postrouting";

/// Name of the table in each family; its prefix keeps bridge names that are nft keywords usable.
pub fn table(bridge: &str) -> String {
    format!("pods-{bridge}")
}

/// Commands that replace the tables as a whole, in one transaction: whatever an earlier run left is gone with it.
pub(super) fn replace(settings: &NetworkSettings, forwards: &[Forward]) -> String {
    settings.subnets.iter().map(|subnet| family(settings, *subnet, forwards)).collect()
}

/// Commands that delete the table of one family (`ip` or `ip6`), even if it does not exist.
pub(super) fn delete(bridge: &str, family: &str) -> String {
    let table = table(bridge);
    // Adding first makes the deletion of a missing table no error.
    format!("add table {family} {table}\ndelete table {family} {table}\n")
}

/// Traffic between pods stays on the bridge and keeps its addresses; multicast must not be translated.
///
/// Packets through a host port from a pod (including itself) or from the node's loopback get the bridge's address.
/// Otherwise the answer would bypass the translation.
fn family(settings: &NetworkSettings, subnet: Subnet, forwards: &[Forward]) -> String {
    let bridge = &*settings.bridge;
    let v4 = subnet.is_ipv4();
    let (ip, multicast, loopback) = if v4 { ("ip", "224.0.0.0/4", "127.0.0.0/8") } else { ("ip6", "ff00::/8", "::1") };
    let table = table(bridge);
    let forwards: Vec<&Forward> = forwards.iter().filter(|forward| forward.to.is_ipv4() == v4).collect();
    let mut text = delete(bridge, ip);
    text.push_str(&format!("table {ip} {table} {{\n"));
    if !forwards.is_empty() {
        text.push_str("\tchain hostports {\n");
        forwards.iter().for_each(|forward| text.push_str(&rule(forward)));
        text.push_str("\t}\n");
        for hook in ["prerouting", "output"] {
            text.push_str(&format!(
                "\tchain {hook} {{\n\t\ttype nat hook {hook} priority -100; policy accept;\n\t\tjump hostports\n\t}}\n"
            ));
        }
    }
    if v4 {
        // Always: `route_localnet`, which host ports of 127.0.0.1 need, opens the node's loopback to pods, and lets
        // them pretend to be it.
        text.push_str(&format!(
            "\tchain {GUARD} {{\n\t\ttype filter hook prerouting priority -300; policy accept;\n\
             \t\tiifname \"{bridge}\" ip daddr {loopback} drop\n\t\tiifname \"{bridge}\" ip saddr {loopback} drop\n\
             \t}}\n"
        ));
    }
    if settings.neighbours.is_some() {
        text.push_str(&spoofed(bridge, ip, subnet));
    }
    let neighbours = settings.neighbours.iter().flatten().filter(|range| range.is_ipv4() == v4);
    let passed: String =
        neighbours.map(|range| format!("\t\t{ip} saddr {subnet} {ip} daddr {range} accept\n")).collect();
    text.push_str(&format!(
        "\tchain {LAST} {{\n\t\ttype nat hook postrouting priority 100; policy accept;\n{passed}\
         \t\t{ip} saddr {subnet} oifname != \"{bridge}\" {ip} daddr != {multicast} counter masquerade\n"
    ));
    if !forwards.is_empty() {
        // By the port that was asked for: connections through Services keep their clients' addresses.
        let ports: BTreeSet<(Protocol, u16)> =
            forwards.iter().map(|forward| (forward.port.protocol, forward.port.port)).into_set();
        for (protocol, port) in ports {
            text.push_str(&format!(
                "\t\toifname \"{bridge}\" {ip} saddr {subnet} ct status dnat meta l4proto {protocol} \
                 ct original proto-dst {port} masquerade\n"
            ));
        }
        text.push_str(&format!("\t\toifname \"{bridge}\" {ip} saddr {loopback} masquerade\n"));
    }
    text.push_str("\t}\n}\n");
    text
}

/// Drops packets with a forged source: addresses of this node's pods from outside, and other addresses from pods. Other
/// nodes trust a pod's address.
fn spoofed(bridge: &str, ip: &str, subnet: Subnet) -> String {
    format!(
        "\tchain from-outside {{\n\t\ttype filter hook prerouting priority -300; policy accept;\n\
         \t\tiifname != {{ \"{bridge}\", \"lo\" }} {ip} saddr {subnet} drop\n\t}}\n\
         \tchain from-pods {{\n\t\ttype filter hook forward priority -10; policy accept;\n\
         \t\tiifname \"{bridge}\" {ip} saddr != {subnet} drop\n\t}}\n"
    )
}

fn rule(forward: &Forward) -> String {
    let Forward { port, to } = forward;
    let (protocol, host_port, inside) = (port.protocol, port.port, port.container_port);
    match to {
        IpAddr::V4(to) => {
            let here = port.ip.map_or("fib daddr type local".to_owned(), |ip| format!("ip daddr {ip}"));
            format!("\t\t{here} {protocol} dport {host_port} dnat to {to}:{inside}\n")
        }
        IpAddr::V6(to) => {
            // The kernel routes no packet of ::1 anywhere else.
            let here = port.ip.map_or("fib daddr type local".to_owned(), |ip| format!("ip6 daddr {ip}"));
            format!("\t\tip6 saddr != ::1 {here} {protocol} dport {host_port} dnat to [{to}]:{inside}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::ports::HostPort;

    fn settings(bridge: &str) -> NetworkSettings {
        NetworkSettings { bridge: bridge.into(), subnets: vec!["10.88.0.0/24".parse().unwrap()], neighbours: None }
    }

    #[test]
    fn between_nodes_pods_have_their_own_addresses_and_no_others() {
        let near = vec!["10.89.0.0/24".parse().unwrap(), "fd00:89::/64".parse().unwrap()];
        let rules = replace(&NetworkSettings { neighbours: Some(near), ..settings("b0") }, &[]);
        let passed =
            "priority 100; policy accept;\n\t\tip saddr 10.88.0.0/24 ip daddr 10.89.0.0/24 accept\n\t\tip saddr";
        assert!(rules.contains(passed) && !rules.contains("fd00"), "{rules}");
        assert!(rules.contains("iifname != { \"b0\", \"lo\" } ip saddr 10.88.0.0/24 drop"), "{rules}");
        assert!(rules.contains("iifname \"b0\" ip saddr != 10.88.0.0/24 drop"), "{rules}");
        let off = replace(&settings("b0"), &[]);
        assert!(!off.contains("from-") && !off.contains("10.89"), "{off}");
    }

    #[test]
    fn the_table_is_replaced_as_a_whole_and_spares_the_bridge() {
        let rules = replace(&settings("sampan0"), &[]);
        assert!(rules.starts_with("add table ip pods-sampan0\ndelete table ip pods-sampan0\n"), "{rules}");
        assert!(rules.contains("ip saddr 10.88.0.0/24 oifname != \"sampan0\""), "{rules}");
        assert!(!rules.contains("hostports") && !rules.contains("ip6"), "{rules}");
    }

    #[test]
    fn the_nodes_loopback_is_guarded_with_and_without_host_ports() {
        for rules in [replace(&settings("b0"), &[]), replace(&settings("b0"), &[forward(None)])] {
            assert!(rules.contains("iifname \"b0\" ip daddr 127.0.0.0/8 drop"), "{rules}");
            assert!(rules.contains("iifname \"b0\" ip saddr 127.0.0.0/8 drop"), "{rules}");
        }
    }

    fn forward(ip: Option<&str>) -> Forward {
        let ip = ip.map(|ip| ip.parse().unwrap());
        let port = HostPort { ip, protocol: Protocol::Tcp, port: 8080, container_port: 80 };
        Forward { port, to: "10.88.0.2".parse().unwrap() }
    }

    #[test]
    fn host_ports_lead_into_pods_from_everywhere() {
        let port = |ip: Option<&str>, protocol| HostPort {
            ip: ip.map(|ip| ip.parse().unwrap()),
            protocol,
            port: 8080,
            container_port: 80,
        };
        let to = "10.88.0.2".parse().unwrap();
        let forwards = [
            Forward { port: port(Some("127.0.0.1"), Protocol::Udp), to },
            Forward { port: port(None, Protocol::Tcp), to },
        ];
        let rules = replace(&settings("b0"), &forwards);
        assert!(rules.contains("\t\tip daddr 127.0.0.1 udp dport 8080 dnat to 10.88.0.2:80\n"), "{rules}");
        assert!(rules.contains("\t\tfib daddr type local tcp dport 8080 dnat to 10.88.0.2:80\n"), "{rules}");
    }
}
