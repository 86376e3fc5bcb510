//! Checks that the packages keep what the documents promise: services are supervised, a first boot is not delayed, logs
//! are bounded, and a power cut leaves no empty program. Reads the files as text.

use std::path::Path;

fn packaged(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Value of a key of a unit, if it has one.
fn key<'a>(unit: &'a str, name: &str) -> Option<&'a str> {
    unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn services_are_watched_by_systemd() {
    for file in ["edge-runtime/edge-runtime.service", "cloud-bridge/cloud-bridge.service"] {
        let unit = packaged(file);
        for (name, value) in [("Type", "notify"), ("WatchdogSec", "60"), ("Restart", "always")] {
            assert_eq!(key(&unit, name), Some(value), "{file}: {name}");
        }
    }
}

#[test]
fn first_boot_delays_neither_node_nor_boot() {
    let join = packaged("edge-runtime/edge-runtime-firstboot.service");
    assert_eq!(key(&join, "Type"), Some("exec"), "a oneshot is waited for until it ends");
    let node = packaged("edge-runtime/edge-runtime.service");
    assert!(!node.contains("firstboot"), "static pods start before the join");
    assert_eq!(key(&node, "After"), Some("local-fs.target"), "pods need no network");
}

#[test]
fn hints_of_packages_name_verbs_that_answer() {
    assert!(packaged("edge-runtime/postinst").contains("see edge-runtime upgrade --status"));
}

#[test]
fn logs_of_boards_without_systemd_are_bounded() {
    let (script, openrc) = (packaged("tarball/edge-runtime.init"), packaged("tarball/edge-runtime.openrc"));
    for (file, text) in [("init", &script), ("openrc", &openrc)] {
        assert!(text.contains("1048576"), "{file}: no bound for the log");
    }
    let loops = script.split_once("while :; do").map(|(_, rest)| rest.trim_start());
    assert!(loops.is_some_and(|rest| rest.starts_with("cut_log")), "before each start of the daemon");
    assert!(packaged("tarball/edge-runtime.logrotate").contains("size 1M"));
}

#[test]
fn installed_program_is_synced_before_it_has_its_name() {
    let script = packaged("tarball/install.sh");
    let (sync, rename) = (script.find("sync \"$root$3.new\""), script.find("mv -f \"$root$3.new\""));
    assert!(sync.is_some() && sync < rename, "{sync:?}, {rename:?}");
}

#[test]
fn purge_spares_mounts_and_logs_of_others() {
    let script = packaged("edge-runtime/postrm");
    let at = |text: &str| script.find(text).expect("it is in the script");
    let looks = at("grep -q \" ${state}[/ ]\" /proc/self/mounts");
    assert!(looks < at("rm -rf --one-file-system /var/lib/edge-runtime\n"));
    let key = at("rm -rf --one-file-system /var/lib/edge-runtime/identity");
    let may_fail = at("rm -rf --one-file-system /run").min(at("/var/log/pods/*"));
    assert!(key < looks.min(may_fail), "the key goes with a mount, too");
    assert!(!script.contains("--one-file-system /var/log/pods"), "logs of another kubelet");
    assert!(packaged("tarball/install.sh").contains("rm -rf /var/lib/edge-runtime/identity"));
}
