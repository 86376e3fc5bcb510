//! Versions that fail in each way: the old one runs at the end, and the reason is reported.

use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use sampan_tests::{Cluster, can_run};
use serde_json::json;

use super::installed::{Bundle, sha256};
use super::{set_up, wait_condition};

#[test]
fn s18_a_version_that_crashes_or_hangs_goes_back_by_itself() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("bad");
    let (node, installed) = set_up(&cluster, 2);
    let (before, containers) = (installed.program(), node.container_pids());
    for (name, run, reason) in [
        ("crashes", "exit 3", "ended 3 times"),
        ("hangs", "exec sleep 98761", "not ready"),
        ("deaf", "trap '' TERM; while :; do sleep 1; done", "not ready"),
        ("forks", "(sleep 98761 &) ; exit 0", "ended 3 times"),
    ] {
        let bundle = Bundle::script(cluster.folder(), name, run);
        let said = node.edge(&["upgrade", &bundle.path(), "--trial", "12"]).expect_err(name);
        assert!(said.contains("is in force again") && said.contains(reason), "{name}: {said}");
        // A program that ignores SIGTERM is waited for.
        installed.wait_program(&before);
        wait_condition(&cluster, &node, "False", reason);
        assert_eq!(node.container_pids(), containers, "{name}");
    }
    let _ = Command::new("pkill").args(["-f", "^sleep 98761$"]).status();
    node.wait_ready();
}

#[test]
fn s18_what_is_no_version_for_this_machine_does_not_even_begin() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("refused");
    let (node, installed) = set_up(&cluster, 1);
    let (before, pid) = (installed.program(), installed.pid());
    let refused = |bundle: &Bundle, why: &str| {
        let said = node.edge(&["upgrade", &bundle.path(), "--trial", "10"]).expect_err(why);
        assert!(said.contains(why), "{why}: {said}");
        assert_eq!((installed.program(), installed.pid()), (before.clone(), pid), "{why}");
    };
    let folder = cluster.folder();
    refused(&Bundle::good(folder, "arch").pack(&json!({"architecture": "riscv64"})), "riscv64");
    refused(&Bundle::good(folder, "version").pack(&json!({"version": "9.9.9"})), "9.9.9");
    refused(&Bundle::good(folder, "path").pack(&json!({"version": "../../etc"})), "../../etc");
    refused(&Bundle::script(folder, "selftest", "exit 0 ;; selftest*) echo no luck; exit 1"), "no luck");
    refused(&Bundle::script(folder, "config", "exit 0 ;; esac; case $1 in run) echo key a; exit 1"), "key a");
    // For another architecture: the manifest matches, but the kernel refuses it.
    let other = Bundle::good(folder, "elf");
    let mut bytes = std::fs::read(other.folder().join("edge-runtime")).unwrap();
    // `e_machine`, elf(5): none.
    bytes[18..20].copy_from_slice(&[0xff, 0xff]);
    std::fs::write(other.folder().join("edge-runtime"), bytes).unwrap();
    refused(&other.pack(&json!({})), "Exec format error");
    let damaged = Bundle::good(folder, "damaged");
    std::fs::write(damaged.folder().join("edge-admin"), "x").unwrap();
    let pack = Command::new("tar").arg("-C").arg(damaged.folder()).args(["-cf", &damaged.path(), "."]).status();
    assert!(pack.unwrap().success());
    refused(&damaged, "damaged");
    let file = folder.join("garbage.tar");
    std::fs::write(&file, vec![0x55; 100_000]).unwrap();
    let said = node.edge(&["upgrade", &file.display().to_string()]).unwrap_err();
    assert!(said.contains("garbage.tar"), "{said}");

    // A full disk at the folder of the versions.
    let versions = node.root().join("var/lib/edge-runtime/versions");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&versions).status();
    assert!(mount.unwrap().success());
    let full = Bundle::good(folder, "full");
    let said = node.edge(&["upgrade", &full.path(), "--trial", "10"]).unwrap_err();
    assert!(Command::new("umount").arg(&versions).status().unwrap().success());
    assert!(said.contains("No space left"), "{said}");
    assert_eq!((installed.program(), installed.pid()), (before, pid));
}

#[test]
fn only_what_one_of_the_keys_signed_comes_where_there_are_keys() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("signed");
    let (node, installed) = set_up(&cluster, 1);
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key = STANDARD.encode(pair.public_key().as_ref());
    let config = std::fs::read_to_string(node.root().join("etc/edge-runtime/config.yaml")).unwrap();
    node.configure(&format!("{config}upgrade: {{keys: ['{key}'], trial-seconds: 10}}\n"));
    let before = installed.program();
    let bundle = Bundle::good(cluster.folder(), "one");
    let said = node.edge(&["upgrade", &bundle.path()]).unwrap_err();
    assert!(said.contains("is not signed"), "{said}");
    let digest = format!("sha256:{}", sha256(bundle.path().as_ref()));
    let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap().sign(digest.as_bytes());
    let signature = format!("{}.sig", bundle.path());
    std::fs::write(&signature, STANDARD.encode(other)).unwrap();
    let said = node.edge(&["upgrade", &bundle.path()]).unwrap_err();
    assert!(said.contains("is of none of upgrade.keys"), "{said}");
    assert_eq!(installed.program(), before);
    std::fs::write(&signature, STANDARD.encode(pair.sign(digest.as_bytes()))).unwrap();
    let said = node.edge(&["upgrade", &bundle.path()]).expect("it stays");
    assert!(said.contains("10 s") && installed.program() != before, "{said}");
}
