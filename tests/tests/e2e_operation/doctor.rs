//! Findings of doctor for real faults.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sampan_tests::process::{Process, binary, signal};
use sampan_tests::{Cluster, EdgeNode, can_run, until};
use serde_json::Value;

use super::{assert_provoked, examined, found};

fn assert_found(examined: &(Vec<Value>, i32), check: &str, severity: &str, cure: &str) {
    assert_provoked(examined, check, severity, "", cure);
}

fn without(findings: &[Value], checks: &[&str]) {
    for check in checks {
        assert!(found(findings, check).is_none(), "{:#}", found(findings, check).expect("it is there"));
    }
}

#[test]
fn healthy_node_has_no_findings_and_each_fault_has_one() {
    if !can_run() {
        return;
    }
    let mut cluster = Cluster::start("doctor");
    let mut node = cluster.node(&format!("edge-{}", cluster.kubectl.namespace));
    let own =
        ["config", "cgroups", "oci-runtime", "joined", "certificate", "bridge", "link", "daemon", "drift", "ready"];
    // The state of the link is written with each heartbeat.
    let (well, _) = until(Duration::from_secs(30), "the daemon says that it is connected", || {
        let (findings, code) = examined(node.root(), |_| ());
        if found(&findings, "link").is_none() { Ok((findings, code)) } else { Err(format!("{findings:#?}")) }
    });
    without(&well, &own);
    let bridge = well.iter().find(|one| one["check"] == "bridge").expect("it was tried");
    assert!(bridge["what"].as_str().is_some_and(|text| text.contains(" ms")), "{bridge}");
    let text = node.edge(&["doctor", "--all"]).unwrap_or_else(|text| text);
    assert!(text.contains("ok       bridge: "), "{text}");

    // A configuration that the daemon once accepted may be invalid now.
    let config = node.root().join("etc/edge-runtime/config.yaml");
    let right = std::fs::read_to_string(&config).expect("a file");
    std::fs::write(&config, format!("{right}max-podz: 3\n")).expect("written");
    assert_found(&examined(node.root(), |_| ()), "config", "warning", "config.yaml");
    std::fs::write(&config, format!("{right}metrics: {{listen: 'port 80'}}\n")).expect("written");
    let wrong = examined(node.root(), |_| ());
    assert_found(&wrong, "config", "error", "--print-config");
    assert!(
        found(&wrong.0, "config").expect("found")["what"].as_str().is_some_and(|what| what.contains("metrics.listen"))
    );
    assert_eq!(wrong.1, 4);
    std::fs::write(&config, &right).expect("written");

    // A PATH without runc and nft.
    let bare = |command: &mut Command| {
        command.env("PATH", "/nowhere");
    };
    assert_found(&examined(node.root(), bare), "oci-runtime", "error", "apt-get install runc");

    // Stop the daemon's loop.
    let daemon = node.daemon.as_ref().expect("it runs").pid();
    signal(daemon, "STOP");
    let stuck = examined(node.root(), |_| ());
    signal(daemon, "CONT");
    assert_found(&stuck, "ready", "error", "systemctl restart edge-runtime");

    cluster.kill_bridge();
    let cut = until(Duration::from_secs(40), "the daemon has noticed", || {
        let all = examined(node.root(), |_| ());
        if found(&all.0, "link").is_some() { Ok(all) } else { Err(format!("{:#?}", all.0)) }
    });
    assert_found(&cut, "bridge", "error", "no firewall");
    assert_found(&cut, "link", "warning", "journalctl");

    node.kill();
    let dead = examined(node.root(), |_| ());
    assert_found(&dead, "daemon", "error", "systemctl enable --now edge-runtime");
    assert_eq!(dead.1, 4);
    without(&dead.0, &["config", "joined", "certificate"]);

    // An expired certificate, and a malformed identity.
    let file = node.root().join("var/lib/edge-runtime/identity/identity.json");
    let right = std::fs::read(&file).expect("it has joined");
    let mut identity: Value = serde_json::from_slice(&right).expect("JSON");
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(vec!["node".to_owned()]).expect("parameters");
    (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
    identity["certificate"] = params.self_signed(&key).expect("a certificate").pem().into();
    identity["key"] = key.serialize_pem().into();
    std::fs::write(&file, identity.to_string()).expect("written");
    assert_found(&examined(node.root(), |_| ()), "certificate", "error", "edge-runtime join");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(3 * 86_400);
    identity["certificate"] = params.self_signed(&key).expect("a certificate").pem().into();
    let moved = identity.to_string().replace(&cluster.listen.to_string(), "bridge.invalid:7443");
    std::fs::write(&file, moved).expect("written");
    let soon = examined(node.root(), |_| ());
    assert_provoked(&soon, "certificate", "warning", "ends in 7", "renews it by itself");
    assert_provoked(&soon, "bridge", "error", "bridge.invalid", "getent hosts NAME");
    std::fs::write(&file, "{").expect("written");
    assert_found(&examined(node.root(), |_| ()), "joined", "error", "cloud-bridge token create");
    std::fs::write(&file, right).expect("written");
    cluster.start_bridge();
}

#[test]
fn a_bare_device_has_not_joined_and_a_full_or_read_only_disk_is_one() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    let disk = Mounted::tmpfs(root, "size=40m");
    let bare = examined(root, |_| ());
    assert_found(&bare, "joined", "warning", "sudo edge-runtime join");
    without(&bare.0, &["daemon"]);
    assert_found(&bare, "disk-memory", "warning", "on a disk");
    std::fs::write(root.join("filler"), vec![1; 64 << 20]).expect_err("there is no such room");
    assert_found(&examined(root, |_| ()), "disk", "error", "du -xh");
    std::fs::remove_file(root.join("filler")).expect("removed");
    disk.remount("ro");
    assert_found(&examined(root, |_| ()), "disk", "error", "remount,rw");
    disk.remount("rw,noexec");
    assert_found(&examined(root, |_| ()), "disk-exec", "error", "/etc/fstab");
}

#[test]
fn a_node_of_another_cluster_is_told_that_the_authority_is_another() {
    if !can_run() {
        return;
    }
    let (first, second) = (Cluster::start("ours"), Cluster::start("theirs"));
    let node = EdgeNode::prepare(&first, &format!("edge-{}", first.kubectl.namespace));
    let file = node.root().join("var/lib/edge-runtime/identity/identity.json");
    let text = std::fs::read_to_string(&file).expect("it has joined");
    let moved = text.replace(&first.listen.to_string(), &second.listen.to_string());
    assert_ne!(moved, text);
    std::fs::write(&file, moved).expect("written");
    assert_found(&examined(node.root(), |_| ()), "bridge", "error", "its authority is another one");
}

#[test]
fn a_daemon_that_is_not_the_program_that_is_installed() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("drift");
    let node = EdgeNode::bare(&cluster, "edge");
    let program = cluster.folder().join("edge-runtime");
    let built = std::fs::read(binary("edge-runtime")).expect("it is built");
    let install = |bytes: &[u8]| {
        let new = program.with_extension("new");
        std::fs::write(&new, bytes).expect("written");
        let runs = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&new, runs).expect("it is ours");
        std::fs::rename(&new, &program).expect("as dpkg does it");
    };
    let start = || {
        let mut command = Command::new(&program);
        command.arg("run").arg("--root").arg(node.root()).env("HTTPS_PROXY", "http://proxy.invalid:3128");
        Process::start(&mut command, &node.root().join("daemon.log"))
    };
    let drifts = || {
        until(Duration::from_secs(20), "the daemon answers", || {
            let all = examined(node.root(), |_| ());
            let answers = all.0.iter().any(|one| one["check"] == "ready" && one["severity"] == "ok");
            if answers { Ok(()) } else { Err(format!("{:#?}", all.0)) }
        });
        // The first check may have begun before the daemon was ready.
        examined(node.root(), |_| ())
    };
    install(&built);
    let mut daemon = start();
    let right = drifts();
    without(&right.0, &["drift"]);
    assert_provoked(&right, "proxy", "info", "HTTPS_PROXY", "");
    install(&built);
    assert_provoked(
        &drifts(),
        "drift",
        "warning",
        "is not the one that is installed",
        "systemctl restart edge-runtime",
    );
    daemon.stop();
    // The same program, which reports an older version.
    let (version, older) = (env!("CARGO_PKG_VERSION"), "0.0.0");
    assert_eq!(version.len(), older.len());
    let mut old = built;
    let all: Vec<usize> = old.iter().enumerate().filter(|(_, byte)| **byte == b'0').map(|(at, _)| at).collect();
    for at in all {
        if old[at..].starts_with(version.as_bytes()) {
            old[at..at + older.len()].copy_from_slice(older.as_bytes());
        }
    }
    install(&old);
    let mut daemon = start();
    let what = format!("version {older} runs, and {version} is installed");
    assert_provoked(&drifts(), "drift", "warning", &what, "systemctl restart edge-runtime");
    daemon.stop();
}

/// A mount that ends with the test.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn tmpfs(at: &'a Path, options: &str) -> Self {
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).status().expect("mount starts");
        assert!(done.success());
        Self(at)
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let done = Command::new("mount").args(["-o", &options]).arg(self.0).status().expect("mount starts");
        assert!(done.success(), "{options}");
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
