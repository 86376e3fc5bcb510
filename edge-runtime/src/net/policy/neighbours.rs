//! The table that keeps pods of one bridge from bypassing the other tables. Pods are routed: packets between them pass
//! the node. But a process with the capability NET_RAW, which containers have unless they drop it, can put a frame for
//! its neighbour on the bridge itself, or forge another pod's address. Text only. Pure.
//!
//! The destination of a frame is checked on input, not when the bridge forwards it. With br_netfilter, a packet for a
//! Service is translated in between, and continues like one for the neighbour (Linux net/bridge/br_netfilter_hooks.c,
//! `br_nf_pre_routing_finish_bridge`). Pods that no policy selects keep what they can do among themselves, such as
//! multicast, except for forged addresses.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;

use super::world::{World, remove_neighbours, table};

/// Elements of the sets.
#[derive(Default)]
struct Sets {
    links: BTreeSet<String>,
    /// Links of isolated pods, and of those that are isolated on the way out.
    guarded: BTreeSet<String>,
    senders: BTreeSet<String>,
    /// Hardware addresses of isolated pods.
    macs: BTreeSet<String>,
    /// Links with their addresses, by family.
    owned: [BTreeSet<String>; 2],
    pods: [BTreeSet<String>; 2],
}

impl Sets {
    fn new(world: &World<'_>, incoming: &BTreeSet<IpAddr>, outgoing: &BTreeSet<IpAddr>) -> Self {
        let mut sets = Self::default();
        for pod in world.pods {
            let Some(link) = &pod.link else { continue };
            let name = format!("\"{}\"", link.name);
            let among = |all: &BTreeSet<IpAddr>| pod.ips.iter().any(|ip| all.contains(ip));
            if among(incoming) || among(outgoing) {
                sets.guarded.insert(name.clone());
                sets.macs.insert(mac(link.mac));
            }
            if among(outgoing) {
                sets.senders.insert(name.clone());
            }
            for ip in &pod.ips {
                let [owned, pods] =
                    [&mut sets.owned, &mut sets.pods].map(|[v4, v6]| if ip.is_ipv6() { v6 } else { v4 });
                owned.insert(format!("{name} . {ip}"));
                pods.insert(ip.to_string());
            }
            sets.links.insert(name);
        }
        sets
    }
}

/// `incoming` and `outgoing` are the addresses of pods that are isolated that way.
pub(super) fn text(world: &World<'_>, incoming: &BTreeSet<IpAddr>, outgoing: &BTreeSet<IpAddr>) -> String {
    let Sets { links, guarded, senders, macs, owned, pods } = Sets::new(world, incoming, outgoing);
    let mut text = remove_neighbours(world.bridge);
    let _ = writeln!(text, "table bridge {} {{", table(world.bridge));
    let mut set = |name: &str, of: &str, elements: &BTreeSet<String>| {
        let all: Vec<&str> = elements.iter().map(String::as_str).collect();
        let given = if all.is_empty() { String::new() } else { format!(" elements = {{ {} }};", all.join(", ")) };
        let _ = writeln!(text, "\tset {name} {{ type {of};{given} }}");
    };
    set("links", "ifname", &links);
    set("guarded", "ifname", &guarded);
    set("senders", "ifname", &senders);
    set("guarded-macs", "ether_addr", &macs);
    for ((addr, number), (owned, pods)) in [("ipv4_addr", 4), ("ipv6_addr", 6)].into_iter().zip(owned.iter().zip(&pods))
    {
        set(&format!("owned-{number}"), &format!("ifname . {addr}"), owned);
        set(&format!("pods-{number}"), addr, pods);
    }
    // Multicast and broadcast do not reach or leave isolated pods.
    let _ = writeln!(
        text,
        "\tchain forward {{\n\t\ttype filter hook forward priority 0; policy accept;\n\
         \t\tether daddr & 01:00:00:00:00:00 != 0 iifname @guarded drop\n\
         \t\tether daddr & 01:00:00:00:00:00 != 0 oifname @guarded drop\n\t}}\n\
         \tchain prerouting {{\n\t\ttype filter hook prerouting priority -300; policy accept;\n\
         \t\tiifname @links ether daddr @guarded-macs drop\n\
         \t\tiifname @guarded ether daddr & 01:00:00:00:00:00 == 0 ether daddr != {} drop",
        mac(world.mac)
    );
    for (ip, number) in [("ip", 4), ("ip6", 6)] {
        // By links, for other bridges of the host may have the same addresses, and not every kernel knows their names here.
        let foreign = format!("iifname . {ip} saddr != @owned-{number}");
        let _ = writeln!(text, "\t\tiifname @links {ip} saddr @pods-{number} {foreign} drop");
    }
    text.push_str("\t\tiifname @senders ether type ip iifname . ip saddr != @owned-4 drop\n");
    // Neighbour discovery has addresses of the link alone, and none before it has one; they are not sent on.
    text.push_str("\t\tiifname @senders ip6 saddr != { ::, fe80::/10 } iifname . ip6 saddr != @owned-6 drop\n\t}\n}\n");
    text
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
