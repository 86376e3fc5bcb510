//! The table that keeps pods of one bridge from going around the others. Pods are routed: what one sends to another comes
//! through the node. But a process with the capability NET_RAW, which containers have unless they drop it, can put a frame
//! for its neighbour on the bridge itself, or give a packet another pod's address. Text only. Pure.
//!
//! Pods that no policy selects keep what they can do among themselves (multicast, say), but for others' addresses.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use super::world::{World, remove_neighbours, table};

/// `incoming` and `outgoing` are the addresses of pods that are isolated that way.
pub(super) fn text(world: &World<'_>, incoming: &BTreeSet<IpAddr>, outgoing: &BTreeSet<IpAddr>) -> String {
    let mut links: [BTreeSet<String>; 3] = Default::default();
    let mut owned: [BTreeSet<String>; 2] = Default::default();
    let mut addresses: [BTreeSet<String>; 2] = Default::default();
    let [all, guarded, senders] = &mut links;
    for pod in world.pods {
        let Some(link) = &pod.link else { continue };
        all.insert(format!("\"{link}\""));
        let among = |all: &BTreeSet<IpAddr>| pod.ips.iter().any(|ip| all.contains(ip));
        if among(incoming) || among(outgoing) {
            guarded.insert(format!("\"{link}\""));
        }
        if among(outgoing) {
            senders.insert(format!("\"{link}\""));
        }
        for ip in &pod.ips {
            let at = usize::from(ip.is_ipv6());
            if let (Some(owned), Some(addresses)) = (owned.get_mut(at), addresses.get_mut(at)) {
                owned.insert(format!("\"{link}\" . {ip}"));
                addresses.insert(ip.to_string());
            }
        }
    }
    let mut text = remove_neighbours(world.bridge);
    let _ = writeln!(text, "table bridge {} {{", table(world.bridge));
    let mut set = |name: &str, of: &str, elements: &BTreeSet<String>| {
        let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
        let given =
            if elements.is_empty() { String::new() } else { format!(" elements = {{ {} }};", elements.join(", ")) };
        let _ = writeln!(text, "\tset {name} {{ type {of};{given} }}");
    };
    set("links", "ifname", all);
    set("guarded", "ifname", guarded);
    set("senders", "ifname", senders);
    for (index, (addr, number)) in [("ipv4_addr", "4"), ("ipv6_addr", "6")].into_iter().enumerate() {
        let none = BTreeSet::new();
        set(&format!("owned-{number}"), &format!("ifname . {addr}"), owned.get(index).unwrap_or(&none));
        set(&format!("pods-{number}"), addr, addresses.get(index).unwrap_or(&none));
    }
    text.push_str("\tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n");
    text.push_str("\t\tiifname @guarded drop\n\t\toifname @guarded drop\n\t}\n");
    text.push_str("\tchain prerouting {\n\t\ttype filter hook prerouting priority 0; policy accept;\n");
    for (ip, number) in [("ip", "4"), ("ip6", "6")] {
        // By links, for other bridges of the host may have the same addresses, and not every kernel knows their names here.
        let foreign = format!("iifname . {ip} saddr != @owned-{number}");
        let _ = writeln!(text, "\t\tiifname @links {ip} saddr @pods-{number} {foreign} drop");
    }
    text.push_str("\t\tiifname @senders ether type ip iifname . ip saddr != @owned-4 drop\n");
    // Neighbour discovery has addresses of the link alone, and none before it has one; they are not sent on.
    text.push_str("\t\tiifname @senders ip6 saddr != { ::, fe80::/10 } iifname . ip6 saddr != @owned-6 drop\n\t}\n}\n");
    text
}
