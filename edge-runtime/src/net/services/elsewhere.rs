//! Detects other programs that serve Services on this machine: beside kube-proxy or Cilium this node installs no rules.
//! The rules that they leave behind when they end count, too: these still redirect packets.

use super::super::netlink::{Socket, iptables, link, nftables};

/// The table of kube-proxy's mode nftables (K8s pkg/proxy/nftables/proxier.go).
const KUBE_PROXY: &str = "kube-proxy";
/// The chain of its modes iptables and ipvs (K8s pkg/proxy/iptables/proxier.go).
const KUBE_SERVICES: &str = "KUBE-SERVICES";
const NAT: &str = "nat";
/// Links of Cilium.
const CILIUM: [&str; 2] = ["cilium_host", "cilium_net"];

/// Finds another program that serves Services; returns its name and how it was found, or `None`. A query that fails
/// counts as absent.
pub fn find(nft: &mut Socket, links: &mut Socket) -> Option<String> {
    for (v6, ip) in [(false, "ip"), (true, "ip6")] {
        if nftables::has_table(nft, v6, KUBE_PROXY).unwrap_or_default() {
            return Some(format!("kube-proxy (nft table {ip} {KUBE_PROXY})"));
        }
        if nftables::has_chain(nft, v6, NAT, KUBE_SERVICES).unwrap_or_default()
            || iptables::has_chain(v6, NAT, KUBE_SERVICES)
        {
            return Some(format!("kube-proxy (chain {KUBE_SERVICES} of {ip}tables)"));
        }
    }
    let link = CILIUM.into_iter().find(|name| matches!(link::by_name(links, name), Ok(Some(_))))?;
    Some(format!("Cilium (link {link})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::namespaces::tests::isolate;

    #[test]
    fn s12_other_service_proxy_is_detected_while_it_runs() {
        if !isolate() {
            return;
        }
        let (mut nft, mut links) = (Socket::open_netfilter().unwrap(), Socket::open().unwrap());
        let run = |line: &str| {
            let mut words = line.split(' ');
            let status = std::process::Command::new(words.next().unwrap()).args(words).status();
            assert!(status.unwrap().success(), "{line}");
        };
        let mut find = || find(&mut nft, &mut links);
        assert_eq!(find(), None);
        for (come, go, who) in [
            ("nft add table ip kube-proxy", "nft delete table ip kube-proxy", "kube-proxy (nft table ip kube-proxy)"),
            (
                "nft add table ip6 kube-proxy",
                "nft delete table ip6 kube-proxy",
                "kube-proxy (nft table ip6 kube-proxy)",
            ),
            (
                "iptables-nft -t nat -N KUBE-SERVICES",
                "iptables-nft -t nat -X KUBE-SERVICES",
                "kube-proxy (chain KUBE-SERVICES of iptables)",
            ),
            (
                "ip6tables-nft -t nat -N KUBE-SERVICES",
                "ip6tables-nft -t nat -X KUBE-SERVICES",
                "kube-proxy (chain KUBE-SERVICES of ip6tables)",
            ),
            ("ip link add cilium_net type bridge", "ip link del cilium_net", "Cilium (link cilium_net)"),
        ] {
            run(come);
            assert_eq!(find().as_deref(), Some(who));
            run(go);
            assert_eq!(find(), None, "after {go}");
        }
        run("nft add table ip nat");
        run("nft add table inet kube-proxy-like");
        assert_eq!(find(), None, "tables of others");
    }
}
