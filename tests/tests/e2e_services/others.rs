//! Other software on the machine: programs that delete the node's tables, and other proxies. In a separate network.

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sampan_tests::{Cluster, EdgeNode, Kubectl, Uplink, can_run, until};
use serde_json::json;

use super::{address, answered_by, client, fetch, server, service};

/// A cluster, and a node in a separate network with the pods `client` and `a`, and the Service `web` of `a`.
fn alone(test: &str) -> (Rc<Uplink>, Cluster, EdgeNode, String) {
    let uplink = Rc::new(Uplink::new());
    let cluster = Cluster::start_at(test, uplink.bridge_ip(), &[]);
    let name = format!("edge-{}", cluster.kubectl.namespace);
    let direct = format!("https://{}", cluster.listen);
    let mut node = EdgeNode::prepare_behind(&cluster, &name, &direct, Some(Rc::clone(&uplink)));
    node.start();
    node.wait_ready();
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &name), server("a", &name, "web")]);
    ["client", "a"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let url = format!("http://{}:80/", address(kubectl, "web"));
    answered_by(&node, "client", &url, &["a"]);
    (uplink, cluster, node, url)
}

fn nft(uplink: &Uplink, args: &[&str]) -> String {
    let output = uplink.command(Path::new("nft")).args(args).output().expect("nft starts");
    assert!(output.status.success(), "nft {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The rules, without counters.
fn rules(uplink: &Uplink) -> Vec<String> {
    let all = nft(uplink, &["-s", "list", "ruleset"]);
    // Chains that were added later are listed later.
    let mut lines: Vec<String> = all.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn condition(kubectl: &Kubectl, node: &str) -> Option<String> {
    let node = kubectl.get("node", node).ok()?;
    let all = node["status"]["conditions"].as_array()?;
    Some(all.iter().find(|one| one["type"] == "ServicesHandledElsewhere")?["status"].as_str()?.to_owned())
}

#[test]
fn s12_tables_that_somebody_deletes_are_back_at_once() {
    if !can_run() {
        return;
    }
    let (uplink, cluster, node, url) = alone("services-flush");
    nft(&uplink, &["delete", "table", "inet", "faults"]);
    let before = rules(&uplink);
    let tables = nft(&uplink, &["list", "tables"]);
    let of = |kind: &str| {
        let found = tables.lines().find(|line| line.starts_with(&format!("table ip {kind}-")));
        found.expect("a table").trim_start_matches("table ip ").to_owned()
    };
    for deletion in
        ["flush ruleset", &format!("delete table ip {}", of("services")), &format!("delete table ip {}", of("pods"))]
    {
        // The interval of checks, and of repairs.
        std::thread::sleep(Duration::from_secs(3));
        nft(&uplink, &[deletion]);
        let begin = Instant::now();
        until(Duration::from_secs(60), &format!("the rules are back after {deletion}"), || {
            let now = rules(&uplink);
            if now == before { Ok(()) } else { Err(format!("{now:#?}")) }
        });
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(20), "rules are back {took:?} after {deletion}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        answered_by(&node, "client", &url, &["a"]);
    }
    let events = cluster.kubectl.ok(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"]);
    assert!(events.contains("RulesDeleted"), "{events}");
}

#[test]
fn s12_beside_kube_proxy_the_node_stands_down_and_afterwards_serves_again() {
    if !can_run() {
        return;
    }
    let (uplink, cluster, mut node, url) = alone("services-beside");
    let name = node.name.clone();
    let kubectl = &cluster.kubectl;
    assert_eq!(condition(kubectl, &name), None);
    let ours = || nft(&uplink, &["list", "tables"]).contains("services-");
    let has = |wanted: bool, when: &str| {
        until(Duration::from_secs(20), &format!("tables: {wanted} {when}"), || {
            if ours() == wanted { Ok(()) } else { Err(nft(&uplink, &["list", "tables"])) }
        });
    };
    let told = |wanted: &str| {
        until(Duration::from_secs(20), &format!("the condition is {wanted}"), || match condition(kubectl, &name) {
            Some(status) if status == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    nft(&uplink, &["add table ip kube-proxy { comment \"mine\"; set x { type ipv4_addr; }; }"]);
    has(false, "beside kube-proxy");
    told("True");
    assert!(fetch(&node, "client", &url).is_err(), "nobody serves it");
    // Names still resolve.
    let answer = fetch(&node, "client", "http://web:80/").expect_err("nobody serves it");
    assert!(!answer.contains("bad address"), "{answer}");
    // A change or a restart does not create them.
    kubectl.apply_all(&[server("b", &name, "web")]);
    kubectl.wait_ready("b");
    node.kill();
    node.start();
    until(Duration::from_secs(20), "the daemon knows its pods", || node.edge(&["ps"]));
    std::thread::sleep(Duration::from_secs(2));
    assert!(!ours());
    assert!(nft(&uplink, &["list", "table", "ip", "kube-proxy"]).contains("set x"), "it is not ours");
    nft(&uplink, &["delete table ip kube-proxy"]);
    has(true, "alone again");
    told("False");
    answered_by(&node, "client", &url, &["a", "b"]);
    // The kernel sends no event for links, so the periodic check finds it.
    uplink.inside(&["ip", "link", "add", "cilium_net", "type", "bridge"]);
    has(false, "beside Cilium");
    uplink.inside(&["ip", "link", "del", "cilium_net"]);
    has(true, "without it");
}

#[test]
fn processes_of_the_node_reach_services_without_a_default_route() {
    if !can_run() {
        return;
    }
    let (uplink, cluster, node, url) = alone("services-route");
    let kubectl = &cluster.kubectl;
    let mut host = client("host", &node.name);
    host["spec"]["hostNetwork"] = true.into();
    kubectl.apply_all(&[host]);
    kubectl.wait_ready("host");
    uplink.inside(&["ip", "route", "del", "default"]);
    answered_by(&node, "host", &url, &["a"]);
    // No node on the bridge answers for an address without a Service.
    let unused = url.replace(&address(kubectl, "web"), "10.96.0.77");
    let said = fetch(&node, "host", &unused).expect_err("nobody has it");
    assert!(said.contains("refused"), "it was asked on the bridge: {said}");
    // A route that other software deletes is restored by the next check.
    uplink.inside(&["ip", "route", "flush", "proto", "115"]);
    answered_by(&node, "host", &url, &["a"]);
}

#[test]
fn s06_a_service_that_is_refused_blocks_nobody_else() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("services-refused");
    let kubectl = &cluster.kubectl;
    let name = format!("edge-{}", kubectl.namespace);
    let mut node = EdgeNode::prepare(&cluster, &name);
    // An `nft` that refuses rules of the Service `poison`, as a kernel might.
    let programs = cluster.folder().join("programs");
    std::fs::create_dir_all(&programs).expect("a folder");
    let script = "#!/bin/sh\ncat >\"$0.$$\"\ngrep -q /poison/ \"$0.$$\" && echo no >&2 && exit 1\n\
        exec /usr/sbin/nft \"$@\" <\"$0.$$\"\n";
    std::fs::write(programs.join("nft"), script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(programs.join("nft"), mode).expect("set");
    let path = std::env::var("PATH").unwrap_or_default();
    node.env.push(("PATH".into(), format!("{}:{path}", programs.display())));
    node.start();
    node.wait_ready();
    kubectl.apply_all(&[service("web", "web", &json!({})), client("client", &name), server("a", &name, "web")]);
    ["client", "a"].iter().for_each(|pod| drop(kubectl.wait_ready(pod)));
    let url = format!("http://{}:80/", address(kubectl, "web"));
    answered_by(&node, "client", &url, &["a"]);
    kubectl.apply_all(&[
        service("poison", "web", &json!({})),
        service("second", "web", &json!({})),
        server("b", &name, "web"),
    ]);
    kubectl.wait_ready("b");
    answered_by(&node, "client", &url, &["a", "b"]);
    answered_by(&node, "client", &format!("http://{}:80/", address(kubectl, "second")), &["a", "b"]);
    assert!(fetch(&node, "client", &format!("http://{}:80/", address(kubectl, "poison"))).is_err());
    until(Duration::from_secs(20), "it is told who is left out", || {
        let told = kubectl.run(&["get", "events", "-A", "-o", "jsonpath={.items[*].message}"])?;
        if told.contains(&format!("left out: {}/poison", kubectl.namespace)) { Ok(()) } else { Err(told) }
    });
}
