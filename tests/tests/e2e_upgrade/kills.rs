//! Upgrades with a kill at any moment, or a power cut: a version always runs, and no container ends.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use sampan_tests::{Cluster, can_run, until};

use super::installed::Bundle;
use super::set_up;

/// Number of kills: `UPGRADE_KILLS` for more, with `UPGRADE_PODS` pods.
fn wanted(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Kills the watchers of this node; one may have ended already.
fn kill_watchers(root: &str) {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("watch-trial") && line.contains(root) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn s18_kills_at_any_moment_leave_one_version_running_and_the_pods_alone() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("kills");
    let (node, installed) = set_up(&cluster, wanted("UPGRADE_PODS", 3));
    let containers = node.container_pids();
    let root = node.root().display().to_string();
    let bundles = ["one", "two"].map(|name| Bundle::good(cluster.folder(), name));
    let moments = wanted("UPGRADE_KILLS", 6);
    let mut seen = std::collections::BTreeMap::new();
    for moment in 0..moments {
        let mut upgrade = Command::new(sampan_tests::process::binary("edge-runtime"));
        upgrade.args(["upgrade", "--trial", "10", "--root", &root]).arg(bundles[moment % 2].path());
        let mut upgrade = upgrade.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        // Over the whole upgrade: download, checks, switch, and trial.
        let span = 13_000 / u64::try_from(moments).unwrap_or(1).max(1);
        thread::sleep(Duration::from_millis(span * u64::try_from(moment).unwrap_or(0) + 37));
        let victim = ["daemon", "upgrade", "watcher", "all"][moment % 4];
        if matches!(victim, "daemon" | "all") {
            installed.kill();
        }
        if matches!(victim, "upgrade" | "all") {
            let _ = upgrade.kill();
        }
        if matches!(victim, "watcher" | "all") {
            kill_watchers(&root);
        }
        // A killed watcher is restarted only by the next start of the daemon.
        if victim == "watcher" {
            installed.kill();
        }
        let _ = upgrade.wait();
        let state = node.root().join("var/lib/edge-runtime/versions/state.json");
        until(Duration::from_secs(60), "the end of the trial", || {
            let text = std::fs::read_to_string(&state).unwrap_or_default();
            if text.contains("\"trial\"") { Err(text) } else { Ok(()) }
        });
        let program = installed.program();
        node.wait_ready();
        assert_eq!(node.container_pids(), containers, "moment {moment}: {victim}");
        *seen.entry(program.display().to_string()).or_insert(0) += 1;
    }
    assert!(seen.len() > 1, "no upgrade came to anything: {seen:?}");
}

#[test]
fn s18_a_power_cut_in_the_trial_brings_the_old_version_back() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("cut");
    let (node, installed) = set_up(&cluster, 1);
    let before = installed.program();
    let bundle = Bundle::good(cluster.folder(), "one");
    node.edge_ok(&["upgrade", &bundle.path(), "--trial", "60", "--no-wait"]);
    until(Duration::from_secs(20), "the new version runs", || {
        if installed.program() == before { Err("not yet") } else { Ok(()) }.map_err(str::to_owned)
    });
    // The next start finds a trial of another boot.
    let state = node.root().join("var/lib/edge-runtime/versions/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(text.contains(boot.trim()), "{text}");
    kill_watchers(&node.root().display().to_string());
    std::fs::write(&state, text.replace(boot.trim(), "5bd3e2d8-6b6a-4b8e-9d53-5f7a9b1c2d3e")).unwrap();
    installed.kill();
    installed.wait_outcome(&node, false, "started anew");
    installed.wait_program(&before);
    node.wait_ready();
}
