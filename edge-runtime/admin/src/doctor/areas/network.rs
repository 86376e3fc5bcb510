//! Requirements of the pods' network on the host: nft, no conflicting program, a resolver, free ports.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use edge_runtime::config::NetworkMode;
use edge_runtime::link::address::BridgeAddress;
use edge_runtime::net::firewall::others::{self, Blocking};
use edge_runtime::net::proxy::Proxy;
use sampan_sys::resolve;

use crate::doctor::finding::Finding;
use crate::doctor::host::{Host, ask, find, text};

/// A kubelet listens there (k3s, microk8s and kubeadm alike).
const KUBELET: u16 = 10250;

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Another program connects pods (CNI): nft is its business.
    is_cni: bool,
    nft: Option<PathBuf>,
    /// Why a table cannot be made.
    nft_refused: Option<String>,
    /// Relevant chains of other programs, by program.
    kube_proxy: bool,
    /// Chains of others that let nothing of this node's bridge through, and the commands that do.
    blocking: Vec<(Blocking, String)>,
    legacy_iptables: bool,
    resolvers: Vec<String>,
    /// Without a resolver, a bridge is found all the same: by its address, by `/etc/hosts` or by a proxy.
    is_found: bool,
    /// `metrics.listen`, if another program has the address.
    taken: Option<SocketAddr>,
    kubelet: bool,
}

/// `bridges`: those of this node, or of the one that it is to become. `proxy`: what is before them.
pub(crate) fn look(host: &Host, daemon: Option<i32>, bridges: &[BridgeAddress], proxy: &Proxy) -> Facts {
    let Some(config) = &host.config else { return Facts::default() };
    let nft = find(Path::new("nft")).or_else(|| Some(PathBuf::from("/usr/sbin/nft")).filter(|file| file.exists()));
    let nft_refused = nft.as_ref().and_then(|nft| dry_run(nft).err());
    let chain = |table: &str, chain: &str| {
        nft.as_ref().and_then(|nft| ask(nft, &["list", "chain", "ip", table, chain]).ok()).unwrap_or_default()
    };
    let bridge = config.network.bridge.as_str();
    let listed = |args: &[&str]| nft.as_ref().and_then(|nft| ask(nft, args).ok()).unwrap_or_default();
    let others = others::tables(&listed(&["list", "chains"]), bridge, true, true);
    let blocking = others.iter().flat_map(|(family, table)| {
        let found = others::blocking(family, table, &listed(&["list", "table", family, table]), bridge);
        found.into_iter().map(move |one| (one.clone(), one.remedy(bridge)))
    });
    let blocking = blocking.collect();
    let tables = nft.as_ref().and_then(|nft| ask(nft, &["list", "tables"]).ok()).unwrap_or_default();
    let resolvers = resolvers(&text("/etc/resolv.conf"));
    // Without a server this asks nothing outside of the machine.
    let resolves = |host: &str| resolve::resolve_blocking(host, 0, Duration::from_secs(1)).is_ok();
    Facts {
        is_cni: config.network.mode == NetworkMode::Cni,
        nft_refused,
        kube_proxy: tables.contains("kube-proxy") || !chain("nat", "KUBE-SERVICES").is_empty(),
        blocking,
        legacy_iptables: !text("/proc/net/ip_tables_names").is_empty(),
        is_found: resolvers.is_empty() && is_found(bridges, proxy, resolves),
        resolvers,
        taken: config.metrics.listen().filter(|address| is_taken(*address) && !has_port(daemon, address.port())),
        kubelet: is_taken(SocketAddr::from(([127, 0, 0, 1], KUBELET))),
        nft,
    }
}

/// A table that the kernel checks and does not make.
fn dry_run(nft: &Path) -> Result<(), String> {
    use std::io::Write;
    let script =
        "add table inet sampan_doctor\nadd chain inet sampan_doctor nat { type nat hook postrouting priority 100; }\n";
    let mut command = Command::new(nft);
    command.args(["-c", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    if let Some(mut input) = child.stdin.take() {
        // If the program has ended already, its output has the reason.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(said.lines().next().unwrap_or("it failed").to_owned()) }
}

/// Whether the name at the begin of the way to one of the bridges resolves: its own, or that of the proxy.
fn is_found(bridges: &[BridgeAddress], proxy: &Proxy, resolves: impl Fn(&str) -> bool) -> bool {
    bridges.iter().any(|bridge| {
        let server = proxy.towards(&bridge.host, bridge.port);
        resolves(server.map_or(&bridge.host, |server| &server.host))
    })
}

/// Those that this node can ask: a link-local one is on a link that is there.
fn resolvers(text: &str) -> Vec<String> {
    let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let servers = servers.filter_map(|rest| rest.split_whitespace().next());
    servers.filter(|word| resolve::server(word).is_some()).map(str::to_owned).collect()
}

pub(super) fn is_taken(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

/// Whether this process listens at the port; true, too, if this user may not look.
pub(super) fn has_port(process: Option<i32>, port: u16) -> bool {
    let Some(process) = process.map(|pid| PathBuf::from(format!("/proc/{pid}"))) else { return false };
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return true };
    let tables = text(process.join("net/tcp")) + "\n" + &text(process.join("net/tcp6"));
    let own: Vec<String> = listeners(&tables, port).map(|inode| format!("socket:[{inode}]")).collect();
    let is_own = |link: PathBuf| own.iter().any(|own| link.as_os_str() == own.as_str());
    descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()).any(is_own)
}

/// Inodes of the sockets that listen at the port, by lines of `/proc/net/tcp` (proc(5)): the second field is the address,
/// the fourth the state, the tenth the inode.
fn listeners(tables: &str, port: u16) -> impl Iterator<Item = &str> {
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    tables.lines().filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.len() > 9 && fields[1].ends_with(end.as_str()) && fields[3] == LISTEN;
        is_it.then(|| fields[9])
    })
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let why = "pods reach nothing beyond this machine, Services and NetworkPolicies are not served";
    match (&facts.nft, &facts.nft_refused) {
        _ if facts.is_cni && facts.nft.is_none() => {
            found.push(Finding::info("nft", "nft is not there; a network plugin connects pods"))
        }
        (None, _) => found.push(Finding::error("nft", "the program nft is not there", why, "apt-get install nftables")),
        (Some(_), Some(refused)) => {
            let cure =
                "as root: modprobe nf_tables; a kernel without CONFIG_NF_TABLES and CONFIG_NFT_NAT needs another one";
            found.push(Finding::error("nft", format!("nft cannot make a table: {refused}"), why, cure));
        }
        (Some(nft), None) => found.push(Finding::ok("nft", format!("{} can make tables", nft.display()))),
    }
    if facts.kube_proxy || facts.kubelet {
        let who = if facts.kubelet { "a kubelet listens at port 10250" } else { "kube-proxy has rules in this kernel" };
        let cure = "remove the other node from this machine (k3s-agent-uninstall.sh, kubeadm reset), or set services.enabled: false";
        let why = "two nodes on one machine serve the same Services; this one stands down";
        found.push(Finding::warning("other-node", who, why, cure));
    }
    for (blocking, remedy) in facts.blocking.iter().filter(|_| !facts.is_cni) {
        found.push(Finding::warning("forward", blocking.what(), blocking.why(), remedy.as_str()));
    }
    if facts.legacy_iptables {
        found.push(Finding::info(
            "forward",
            "rules of the old iptables are loaded beside nft: both must let a packet through",
        ));
    }
    let cure = "name one: echo 'nameserver 9.9.9.9' >> /etc/resolv.conf, or systemctl enable --now systemd-resolved";
    let none = "/etc/resolv.conf names no server";
    match facts.resolvers.first() {
        Some(first) => found.push(Finding::ok("resolver", format!("{first} answers for names"))),
        None if facts.is_found => {
            let why = "the bridge is found without one, but pods find no names outside the cluster";
            found.push(Finding::warning("resolver", none, why, cure));
        }
        None => {
            let why = "neither the bridge nor registries are found by name";
            found.push(Finding::error("resolver", none, why, cure));
        }
    }
    if let Some(address) = facts.taken {
        let cure = format!("see who: ss -ltnp | grep :{}; or give metrics.listen another port", address.port());
        let what = format!("another process listens at {address} (metrics.listen)");
        found.push(Finding::warning("ports", what, "the metrics of this node cannot be read there", cure));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn well() -> Facts {
        Facts { nft: Some("/usr/sbin/nft".into()), resolvers: vec!["1.1.1.1".into()], ..Facts::default() }
    }

    #[test]
    fn obstacles_of_pod_traffic_are_found() {
        assert_fine(&judge(&well()));
        let judge = |facts| judge(&facts);
        assert_found(&judge(Facts { nft: None, ..well() }), "nft", Severity::Error, "apt-get install nftables");
        assert_fine(&judge(Facts { nft: None, is_cni: true, ..well() }));
        let refused = judge(Facts { nft_refused: Some("Operation not permitted".into()), ..well() });
        assert_found(&refused, "nft", Severity::Error, "modprobe nf_tables");
        assert_found(&judge(Facts { kube_proxy: true, ..well() }), "other-node", Severity::Warning, "services.enabled");
        assert_found(&judge(Facts { kubelet: true, ..well() }), "other-node", Severity::Warning, "kubeadm reset");
        let blocking = |hook: &str| {
            let listed = format!("chain c {{\ntype filter hook {hook} priority 0; policy drop;\n}}\n");
            let found = others::blocking("inet", "filter", &listed, "b0").into_iter();
            Facts { blocking: found.map(|one| (one.clone(), one.remedy("b0"))).collect(), ..well() }
        };
        assert_found(&judge(blocking("forward")), "forward", Severity::Warning, "filter c iifname b0 accept");
        assert_found(&judge(blocking("input")), "forward", Severity::Warning, "th dport 53 accept");
        assert_fine(&judge(Facts { is_cni: true, ..blocking("input") }));
        assert_found(&judge(Facts { legacy_iptables: true, ..well() }), "forward", Severity::Info, "");
        assert_found(
            &judge(Facts { resolvers: Vec::new(), ..well() }),
            "resolver",
            Severity::Error,
            "/etc/resolv.conf",
        );
        let proxied = Facts { resolvers: Vec::new(), is_found: true, ..well() };
        assert_found(&judge(proxied), "resolver", Severity::Warning, "/etc/resolv.conf");
        let taken = judge(Facts { taken: Some(([127, 0, 0, 1], 9100).into()), ..well() });
        assert_found(&taken, "ports", Severity::Warning, "ss -ltnp | grep :9100");
    }

    #[test]
    fn bridge_is_found_by_the_first_host_on_the_way_to_it() {
        let proxy = |url: &str| Proxy { url: Some(url.parse().unwrap()), ..Proxy::default() };
        let (named, at) = ("https://bridge.example:7443", "https://192.0.2.1:7443");
        for (bridges, proxy, expected) in [
            (&[named][..], Proxy::default(), false),
            (&[named, at], Proxy::default(), true),
            (&[named], proxy("http://192.0.2.2:3128"), true),
            (&[at], proxy("http://proxy.example:3128"), false),
            (&[], proxy("http://192.0.2.2:3128"), false),
        ] {
            let bridges: Vec<BridgeAddress> = bridges.iter().map(|bridge| bridge.parse().unwrap()).collect();
            let is_address = |host: &str| host.parse::<std::net::IpAddr>().is_ok();
            assert_eq!(is_found(&bridges, &proxy, is_address), expected, "{bridges:?} {proxy:?}");
        }
    }

    #[test]
    fn the_hosts_files_and_ports_are_read() {
        let text = "# nameserver 9.9.9.9\nnameserver 127.0.0.53\nnameserver fe80::1%lo\nnameserver fe80::1%gone\n";
        assert_eq!(resolvers(text), ["127.0.0.53", "fe80::1%lo"]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(is_taken(address));
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(has_port(Some(own), address.port()));
        assert!(!has_port(None, address.port()) && !has_port(Some(own), 1));
        let table = "  sl  local_address rem_address   st\n   0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n";
        assert_eq!(listeners(table, 8080).collect::<Vec<_>>(), ["4711"]);
        assert_eq!(listeners(&table.replace(" 0A ", " 01 "), 8080).count(), 0);
        assert!(dry_run(Path::new("/nowhere/nft")).is_err());
    }
}
