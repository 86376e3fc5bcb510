//! Pods that try: raw packets to the node's loopback, router advertisements, files of the node's memory.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_tests::manifest::{host_path, pod, shell, with, with_spec};
use sampan_tests::ports::free_address;
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::{Value, json};

/// The program of `attack.c` in a folder of its own.
fn build(folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e_security/attack.c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-static", "-O1", "-o"]).arg(folder.join("attack")).arg(source);
    assert!(compiler.status().expect("gcc starts").success(), "attack.c can be built");
}

fn attacker(cluster: &Cluster, node: &EdgeNode) -> Value {
    let folder = cluster.folder().join("attack");
    build(&folder);
    let container = with(
        shell("c", "exec sleep 1000"),
        &json!({"volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": true}]}),
    );
    with_spec(pod("attacker", &node.name, json!([container])), &json!({"volumes": [host_path("a", &folder)]}))
}

/// What the first command that is given prints, or its errors.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("it starts");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The bridge of the node that has this pod.
fn bridge_of(pod: &Value) -> String {
    let ip = pod["status"]["podIP"].as_str().expect("a running pod has it");
    let route = said("ip", &["route", "get", ip]);
    route.split_once(" dev ").and_then(|(_, rest)| rest.split(' ').next()).expect("a link").to_owned()
}

#[test]
fn a_pod_cannot_speak_to_the_nodes_loopback() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("loopback");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let secret = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = secret.local_addr().expect("it has one").port().to_string();
    let serving = json!({"ports": [{"containerPort": 8080, "hostPort": free_address().port()}]});
    let web = pod("web", on, json!([with(shell("c", "exec httpd -f -p 8080 -h /tmp"), &serving)]));
    kubectl.apply_all(&[attacker(&cluster, &node), web]);
    let bridge = bridge_of(&kubectl.wait_ready("attacker"));
    kubectl.wait_ready("web");
    let localnet = format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet");
    let tried = || kubectl.ok(&["exec", "attacker", "--", "/a/attack", "loopback", &port]);
    let open = || std::fs::read_to_string(&localnet).expect("the bridge is there").trim().to_owned();
    assert_eq!(open(), "1", "host ports of 127.0.0.1 need it");
    assert_eq!(tried(), "silence\n");
    // That it tries in earnest.
    assert_eq!(said("nft", &["flush", "chain", "ip", &format!("pods-{bridge}"), "guard"]), "");
    assert_eq!(tried(), "answered\n");

    let _ = kubectl.ok(&["delete", "pod", "web", "--wait=false"]);
    kubectl.wait_gone("pod", "web", 15);
    until(Duration::from_secs(10), "the way is closed with the last host port", || {
        if open() == "0" { Ok(()) } else { Err(open()) }
    });
    assert_eq!(tried(), "silence\n");
    std::fs::write(&localnet, "1").expect("written");
    assert_eq!(tried(), "silence\n", "the guard stays");

    // Users of pods may pass this folder: locks that they could hold, what is logged and commands are root's alone.
    let run = node.root().join("run/edge-runtime");
    for name in ["daemon.lock", "monitor.lock", "monitor.log", "monitor.sock"] {
        let meta = std::fs::metadata(run.join(name)).expect("it is there");
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
    let commands = std::fs::read_dir(run.join("exec")).into_iter().flatten().flatten();
    for folder in commands {
        let mode = std::os::unix::fs::PermissionsExt::mode(&folder.metadata().expect("it is there").permissions());
        assert_eq!(mode & 0o077, 0, "{:?}: {mode:o}", folder.file_name());
    }
}

#[test]
fn a_pod_is_no_router_for_the_node() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("router");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let victim = pod("victim", &node.name, json!([shell("c", "exec sleep 1000")]));
    kubectl.apply_all(&[attacker(&cluster, &node), victim]);
    let bridge = bridge_of(&kubectl.wait_ready("attacker"));
    kubectl.wait_ready("victim");
    let sent = kubectl.ok(&["exec", "attacker", "--", "/a/attack", "router"]);
    assert!(sent.starts_with("sent "), "{sent}");
    std::thread::sleep(Duration::from_millis(500));
    let node_knows = said("ip", &["-6", "address", "show", "dev", &bridge]) + &said("ip", &["-6", "route"]);
    assert!(
        !node_knows.contains("fd66") && !node_knows.contains(&format!("default via fe80 dev {bridge}")),
        "{node_knows}"
    );
    assert!(!node_knows.lines().any(|line| line.starts_with("default") && line.contains(&bridge)), "{node_knows}");
    let pod_knows = kubectl.ok(&["exec", "victim", "--", "ip", "-6", "addr"]);
    assert!(!pod_knows.contains("fd66"), "{pod_knows}");
}

/// K8s pkg/kubelet/eviction/helpers.go counts /etc/hosts as the pod's ephemeral storage.
#[test]
fn what_a_pod_writes_to_its_names_counts_as_its_own() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("names");
    let node = cluster.node("edge");
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let fill = |path: &str| {
        let script = format!("dd if=/dev/zero of={path} bs=1M count=24 2>/dev/null; exec sleep 1000");
        with(shell("c", &script), &json!({"resources": {"limits": {"ephemeral-storage": "8Mi"}}}))
    };
    let writers = [
        ("hosts", "/etc/hosts"),
        ("resolv", "/etc/resolv.conf"),
        ("hostname", "/etc/hostname"),
        ("words", "/dev/termination-log"),
    ];
    for (name, path) in writers {
        kubectl.apply_all(&[pod(name, on, json!([fill(path)]))]);
    }
    for (name, _) in writers {
        let gone = kubectl.wait_phase(name, "Failed");
        let expected = "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. ";
        assert_eq!((&gone["status"]["reason"], &gone["status"]["message"]), (&json!("Evicted"), &json!(expected)));
    }
    let run = said("df", &["--output=used", "-k", &node.root().join("run/edge-runtime").display().to_string()]);
    let kilobytes: u64 = run.lines().last().and_then(|line| line.trim().parse().ok()).expect("a number");
    assert!(kilobytes < 8192, "in the node's memory: {kilobytes} KiB");
}

#[test]
fn no_pod_starts_while_its_rules_cannot_be_made() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("norules");
    let mut node = EdgeNode::prepare(&cluster, &format!("edge-{}", cluster.kubectl.namespace));
    let (folder, broken) = (cluster.folder().join("bin"), cluster.folder().join("broken"));
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = format!("#!/bin/sh\n[ -e {} ] && exit 3\nPATH={} exec nft \"$@\"\n", broken.display(), path());
    let nft = folder.join("nft");
    std::fs::write(&nft, script).expect("written");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&nft, executable).expect("its mode");
    std::fs::write(&broken, "").expect("written");
    node.env.push(("PATH".into(), format!("{}:{}", folder.display(), path())));
    node.start();
    node.wait_ready();
    let (kubectl, on) = (&cluster.kubectl, node.name.as_str());
    let outside = with_spec(pod("outside", on, json!([shell("c", "exec sleep 1000")])), &json!({"hostNetwork": true}));
    kubectl.apply_all(&[pod("inside", on, json!([shell("c", "exec sleep 1000")])), outside]);
    kubectl.wait_ready("outside");
    until(Duration::from_secs(20), "the reason is told", || {
        let events = kubectl.run(&["get", "events", "--field-selector", "involvedObject.name=inside"])?;
        let told = events.contains("FailedCreatePodSandBox") && events.contains("nft refused the rules");
        assert!(!told || events.matches("Failed to create pod sandbox: ").count() == 1, "said once: {events}");
        if told { Ok(()) } else { Err(events) }
    });
    std::fs::remove_file(&broken).expect("it is there");
    kubectl.wait_ready("inside");
}

/// The first process of a shared pid namespace has the same user as root in the pod, which has no capability to trace
/// others. CRI runtimes also confine their pause process.
#[test]
fn the_pause_process_is_no_way_out() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("pause");
    let node = cluster.node("edge");
    let kubectl = &cluster.kubectl;
    let script = "grep -E '^(Seccomp|CapEff):' /proc/1/status; ls /proc/1/root/ && echo followed; \
                  cat /proc/1/environ && echo read; (: >/proc/1/mem) && echo opened; echo end; exec sleep 1000";
    let wanted = pod("p", &node.name, json!([shell("c", script)]));
    kubectl.apply_all(&[with_spec(wanted, &json!({"shareProcessNamespace": true}))]);
    kubectl.wait_ready("p");
    let told = kubectl.wait_log("p", "end\n");
    assert!(told.contains("Seccomp:\t2\n") && told.contains("CapEff:\t0000000000000000\n"), "{told}");
    for way in ["followed", "read", "opened"] {
        assert!(!told.contains(way), "{told}");
    }
}

fn path() -> String {
    std::env::var("PATH").expect("a PATH")
}
