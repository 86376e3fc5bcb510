//! Faults of the pods' network, created in a network namespace.

use sampan_tests::{Cluster, EdgeNode, can_run};

use crate::assert_provoked;
use crate::stage::Stage;

/// A program that listens at this port of the loopback interface until the check is over.
fn listener(stage: Stage, port: u16) -> Stage {
    let script = format!("IO::Socket::INET->new(Listen => 1, LocalAddr => \"127.0.0.1:{port}\") or die; sleep 60");
    stage
        .run(&format!("perl -MIO::Socket::INET -e '$s = {script}' &"))
        .run(&format!("for i in {{1..200}}; do ss -ltn | grep -q :{port} && break; sleep 0.05; done"))
}

#[test]
fn no_nft_or_a_kernel_that_refuses_it() {
    if !can_run() {
        return;
    }
    let gone = || Stage::new().layer("/usr/sbin").run("rm /usr/sbin/nft");
    assert_provoked(&gone().examined(), "nft", "error", "nft is not there", "apt-get install nftables");
    let cni = gone().configure("network: {mode: cni}\n").examined();
    assert_provoked(&cni, "nft", "info", "a network plugin connects pods", "");
    let refused = Stage::new().by("setpriv --bounding-set=-net_admin").examined();
    assert_provoked(&refused, "nft", "error", "Operation not permitted", "modprobe nf_tables");
}

#[test]
fn another_node_or_docker_on_the_same_machine() {
    if !can_run() {
        return;
    }
    let kubelet = listener(Stage::new(), 10250).examined();
    assert_provoked(&kubelet, "other-node", "warning", "kubelet listens at port 10250", "kubeadm reset");
    let proxy = Stage::new().run("nft add table ip kube-proxy").examined();
    assert_provoked(&proxy, "other-node", "warning", "kube-proxy has rules", "services.enabled: false");
    let older = Stage::new().run("nft add table ip nat; nft add chain ip nat KUBE-SERVICES").examined();
    assert_provoked(&older, "other-node", "warning", "kube-proxy has rules", "k3s-agent-uninstall.sh");
    // The rules of iptables after Docker has set the policy.
    let docker = || {
        Stage::new()
            .run("nft add table ip filter")
            .run("nft 'add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'")
    };
    assert_provoked(
        &docker().examined(),
        "forward",
        "warning",
        "ip filter FORWARD",
        "nft insert rule ip filter FORWARD iifname",
    );
    let input = Stage::new()
        .run("nft add table inet fw")
        .run("nft 'add chain inet fw in { type filter hook input priority 0; policy drop; }'");
    assert_provoked(&input.examined(), "forward", "warning", "inet fw in", "th dport 53 accept");
    let ours =
        docker().run("nft add rule ip filter FORWARD iifname sampan0 accept").configure("network: {bridge: sampan0}\n");
    let (findings, _) = ours.examined();
    assert!(!findings.iter().any(|one| one["check"] == "forward" && one["severity"] == "warning"), "{findings:#?}");
}

#[test]
fn rules_of_the_old_iptables() {
    if !can_run() {
        return;
    }
    let stage = Stage::new().run("iptables-legacy -L -n > /dev/null");
    let probe = "unshare --net sh -c 'iptables-legacy -L -n && grep -q . /proc/net/ip_tables_names'";
    let has = std::process::Command::new("sh").args(["-c", probe]).output().is_ok_and(|done| done.status.success());
    if !has {
        use std::io::Write;
        // There is nothing to do if stderr is closed.
        let _ = writeln!(std::io::stderr(), "skipped: this kernel has no old iptables");
        return;
    }
    assert_provoked(&stage.examined(), "forward", "info", "old iptables", "");
}

#[test]
fn no_resolver_and_a_port_that_is_taken() {
    if !can_run() {
        return;
    }
    let stage = listener(Stage::new(), 9100).file("/etc/resolv.conf", "# nameserver 9.9.9.9\nsearch lan\n");
    let found = stage.configure("metrics: {listen: '127.0.0.1:9100'}\n").examined();
    assert_provoked(&found, "resolver", "error", "/etc/resolv.conf names no server", ">> /etc/resolv.conf");
    assert_provoked(&found, "ports", "warning", "127.0.0.1:9100 (metrics.listen)", "ss -ltnp | grep :9100");
}

#[test]
fn local_api_without_its_helper_or_its_port() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("portless");
    let node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let stage =
        Stage::new().configure("local-api: {listen: gateway}\nnetwork: {mode: builtin, subnet: 10.85.0.0/24}\n");
    let (from, to) = (node.root().join("var/lib/edge-runtime/identity"), stage.root().join("var/lib/edge-runtime"));
    let script = "IO::Socket::INET->new(Listen => 1, LocalAddr => \"10.85.0.1:6443\") or die; sleep 60";
    let stage = stage
        .run(&format!("mkdir -p {to}; cp -r {from} {to}", from = from.display(), to = to.display()))
        .run("ip addr add 10.85.0.1/32 dev lo")
        .run(&format!("perl -MIO::Socket::INET -e '$s = {script}' &"))
        .run("for i in {1..200}; do ss -ltn | grep -q :6443 && break; sleep 0.05; done");
    let found = stage.examined();
    assert_provoked(&found, "local-api", "error", "edge-api does not run", "grep edge-api");
    assert_provoked(&found, "local-api", "error", "another process listens at 10.85.0.1:6443", "ss -ltnp");
}

#[test]
fn plugins_without_their_helper_or_their_socket() {
    if !can_run() {
        return;
    }
    let stage = Stage::new();
    let root = stage.root().join("kubelet");
    let socket = root.join("device-plugins/kubelet.sock");
    let script = format!("IO::Socket::UNIX->new(Listen => 1, Local => \"{}\") or die; sleep 60", socket.display());
    let stage = stage
        .configure(&format!("plugins: {{device-plugins: true, root: '{}'}}\n", root.display()))
        .run(&format!("mkdir -p {}", root.join("device-plugins").display()))
        .run(&format!("perl -MIO::Socket::UNIX -e '$s = {script}' &"))
        .run(&format!("for i in {{1..200}}; do [ -S {} ] && break; sleep 0.05; done", socket.display()));
    let found = stage.examined();
    assert_provoked(&found, "plugins", "error", "edge-plugins does not run", "grep edge-plugins");
    assert_provoked(&found, "plugins", "error", "another process, perhaps a kubelet, listens at", "plugins.root");
}

#[test]
fn no_resolver_on_a_node_whose_bridge_has_an_address() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("unresolved");
    let node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let stage = Stage::new().file("/etc/resolv.conf", "search lan\n");
    let (from, to) = (node.root().join("var/lib/edge-runtime/identity"), stage.root().join("var/lib/edge-runtime"));
    let stage = stage.run(&format!("mkdir -p {to}; cp -r {from} {to}", from = from.display(), to = to.display()));
    assert_provoked(
        &stage.examined(),
        "resolver",
        "warning",
        "/etc/resolv.conf names no server",
        ">> /etc/resolv.conf",
    );
}
