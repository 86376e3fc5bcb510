//! Pods connected by CNI plugins: Debian's real ones, and what happens when they fail.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use sampan_tests::manifest::{pod, shell, with};
use sampan_tests::ports::free_address;
use sampan_tests::{Cluster, EdgeNode, can_run, get, until};
use serde_json::{Value, json};

use super::families::{host, node_with, prepared};

const PLUGINS: &str = "/usr/lib/cni";

fn have_plugins() -> bool {
    let there = Path::new(PLUGINS).join("bridge").is_file();
    if !there {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: no CNI plugins (package containernetworking-plugins)");
    }
    there
}

fn put(node: &EdgeNode, name: &str, network: &Value) {
    let folder = node.root().join("etc/cni/net.d");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), network.to_string()).expect("written");
}

/// A bridge of the plugins' own, whose leases lie below the node's root: nothing of the host's is touched.
fn network(node: &EdgeNode) -> Value {
    json!({"cniVersion": "1.0.0", "name": "e2e", "plugins": [
        {"type": "bridge", "bridge": "smp-cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
            "ipam": {"type": "host-local", "dataDir": node.root().join("leases"),
                "ranges": [[{"subnet": "10.84.79.0/24"}]]}},
        {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        {"type": "bandwidth", "capabilities": {"bandwidth": true}},
    ]})
}

fn leases(node: &EdgeNode) -> Vec<String> {
    let entries = std::fs::read_dir(node.root().join("leases/e2e")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with("10.")).collect()
}

/// Families whose table `nat` portmap makes.
const FAMILIES: [(&str, &str); 2] = [("ip", "iptables"), ("ip6", "ip6tables")];

fn nat(family: &str) -> String {
    host("nft", &["list", "table", family, "nat"])
}

/// Whether a table that iptables made has no rules (any more).
fn is_bare(listing: &str) -> bool {
    let frame = |line: &str| {
        ["", "}"].contains(&line) || ["#", "table ", "chain ", "type "].iter().any(|begin| line.starts_with(begin))
    };
    !listing.is_empty() && listing.lines().all(|line| frame(line.trim()))
}

/// What the plugins leave on a host, taken away at the end: their bridge, portmap's chains where there were none, and the
/// tables that it made.
struct Leftovers {
    chains: [bool; 2],
    tables: &'static [bool; 2],
}

impl Leftovers {
    fn watch() -> Self {
        // Before the first of these tests: the others run beside it.
        static MISSING: OnceLock<[bool; 2]> = OnceLock::new();
        let tables = MISSING.get_or_init(|| FAMILIES.map(|(family, _)| nat(family).is_empty()));
        Self { chains: FAMILIES.map(|(_, iptables)| !host(iptables, &["-t", "nat", "-S"]).contains("CNI-")), tables }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        host("ip", &["link", "delete", "smp-cni0"]);
        let script = "$0 -t nat -S | sed -n '/^-A .*CNI-/s/^-A/-D/p' | while read -r rule; do
                eval $0 -t nat $rule; done
            $0 -t nat -S | sed -n 's/^-N \\(CNI-.*\\)/\\1/p' | while read -r chain; do $0 -t nat -X $chain; done";
        for (at, (family, iptables)) in FAMILIES.into_iter().enumerate() {
            if self.chains[at] {
                host("sh", &["-c", script, iptables]);
            }
            if self.tables[at] && is_bare(&nat(family)) {
                host("nft", &["delete", "table", family, "nat"]);
            }
        }
    }
}

#[test]
fn table_with_rules_of_others_is_not_bare() {
    let table = |rule: &str| {
        format!(
            "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat {{\n\tchain PREROUTING {{\n\t\ttype \
             nat hook prerouting priority dstnat; policy accept;\n{rule}\t}}\n}}\n"
        )
    };
    assert!(is_bare(&table("")));
    assert!(!is_bare(&table("\t\tcounter packets 0 bytes 0 jump CNI-HOSTPORT-DNAT\n")));
    assert!(!is_bare(""), "there is none");
}

#[test]
fn real_plugins_connect_pods_and_take_them_back() {
    if !can_run() || !have_plugins() {
        return;
    }
    let cluster = Cluster::start("cni");
    let _leftovers = Leftovers::watch();
    let mut node = prepared(&cluster, "network: {bridge: smp-cnib, subnet: 10.84.80.0/24}\n");
    put(&node, "10-e2e.conflist", &network(&node));
    node.start();
    node.wait_ready();
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    let port = free_address().port();
    let serve = with(
        shell("c", "echo served >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"),
        &json!({"ports": [{"containerPort": 8080, "hostPort": port}]}),
    );
    let mut web = pod("web", &on, json!([serve]));
    web["metadata"]["annotations"] =
        json!({"kubernetes.io/ingress-bandwidth": "8M", "kubernetes.io/egress-bandwidth": "8M"});
    kubectl.apply_all(&[web]);
    let status = kubectl.wait_ready("web");
    let ip = status["status"]["podIP"].as_str().unwrap_or_default().to_owned();
    assert!(ip.starts_with("10.84.79."), "{ip}");
    assert_eq!(leases(&node), std::slice::from_ref(&ip));
    for at in [format!("{ip}:8080"), format!("127.0.0.1:{port}")] {
        let at = at.parse().expect("an address");
        assert_eq!(until(Duration::from_secs(10), "the pod answers", || get(at)), "served\n");
    }
    assert!(host("tc", &["qdisc"]).contains("rate 8Mbit"));

    // The daemon dies, the configuration goes: the pod still runs, and its end is told to the plugins of its begin.
    node.kill();
    std::fs::remove_file(node.root().join("etc/cni/net.d/10-e2e.conflist")).expect("deleted");
    node.start();
    node.wait_connected(&cluster);
    kubectl.apply_all(&[pod("builtin", &on, json!([shell("c", "exec sleep 1000")]))]);
    let builtin = kubectl.wait_ready("builtin");
    assert!(builtin["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.84.80.")), "{builtin}");
    assert_eq!(get(format!("{ip}:8080").parse().expect("an address")).as_deref(), Ok("served\n"));
    let _ = kubectl.ok(&["delete", "pod", "web", "--wait=false"]);
    kubectl.wait_gone("pod", "web", 20);
    assert!(leases(&node).is_empty(), "{:?}", leases(&node));
    assert!(get(format!("127.0.0.1:{port}").parse().expect("an address")).is_err());
}

#[test]
fn a_failing_plugin_speaks_and_its_delete_is_tried_again() {
    if !can_run() || !have_plugins() {
        return;
    }
    let cluster = Cluster::start("cnifail");
    let _leftovers = Leftovers::watch();
    let bin = cluster.folder().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    let config =
        format!("network: {{bridge: smp-cnif, subnet: 10.84.81.0/24, cni: {{bin-dirs: ['{}']}}}}\n", bin.display());
    let node = node_with(&cluster, &config);
    put(&node, "10-e2e.conflist", &network(&node));
    let (kubectl, on) = (&cluster.kubectl, node.name.clone());
    kubectl.apply_all(&[pod("lost", &on, json!([shell("c", "exec sleep 1000")]))]);
    let event = |wanted: &str, reason: &str| {
        until(Duration::from_secs(20), wanted, || {
            let events = kubectl.run(&["get", "events", "-o", "json"])?;
            if events.contains(wanted) && events.contains(reason) { Ok(()) } else { Err(events) }
        });
    };
    let failed = "plugin type=\\\"bandwidth\\\" name=\\\"e2e\\\" failed (delete): failed to find plugin";
    event(failed, "FailedCreatePodSandBox");
    // Its end waits for the plugins, and comes when they are there again.
    let _ = kubectl.ok(&["delete", "pod", "lost", "--wait=false"]);
    for plugin in std::fs::read_dir(PLUGINS).expect("plugins").flatten() {
        std::os::unix::fs::symlink(plugin.path(), bin.join(plugin.file_name())).expect("a link");
    }
    kubectl.wait_gone("pod", "lost", 40);
    assert!(leases(&node).is_empty());
}

#[test]
fn a_node_without_configuration_says_so() {
    if !can_run() || !have_plugins() {
        return;
    }
    let cluster = Cluster::start("cninone");
    let _leftovers = Leftovers::watch();
    let mut node = prepared(&cluster, "network: {mode: cni, bridge: smp-cnin}\n");
    node.start();
    let kubectl = &cluster.kubectl;
    until(Duration::from_secs(20), "the node is not ready for want of a network", || {
        let object = kubectl.get("node", &node.name)?;
        let conditions = object["status"]["conditions"].to_string();
        let said = conditions.contains("NetworkPluginNotReady") && conditions.contains("cni config uninitialized");
        if said { Ok(()) } else { Err(conditions) }
    });
    put(&node, "10-e2e.conflist", &network(&node));
    node.wait_ready();
    kubectl.apply_all(&[pod("late", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    kubectl.wait_ready("late");
    let _ = kubectl.ok(&["delete", "pod", "late", "--wait=false"]);
    kubectl.wait_gone("pod", "late", 20);
    assert!(leases(&node).is_empty());
    // The one at which pods ask for names is there, and no bridge.
    assert!(!host("ip", &["-br", "link"]).lines().any(|line| line.starts_with("smp-cnin")));
}
