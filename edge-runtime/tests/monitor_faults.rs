//! The monitor with faults around it: a hung OCI runtime, a disk that cannot be written, exhausted descriptors. Running
//! containers continue, other starts succeed, and no wrong event is sent.

mod monitor_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use edge_runtime::monitor::client::{MonitorEvent, Settings};
use monitor_support::{Node, can_run, kill, lives, ticks, wait_until};
use nix::mount::{MsFlags, mount};
use sampan_monitor::protocol::Phase;

async fn sleep_ms(ms: u64) {
    smol::Timer::after(Duration::from_millis(ms)).await;
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// An OCI runtime whose `run` never returns, with a child process; it writes the child's pid to a file.
fn hanging(node: &Node) -> PathBuf {
    let path = node.paths.root().join("hanging-runc");
    let notes = node.paths.root().join("hanging");
    let hang = format!("setsid sleep 9999 & echo $! >>{0}; echo $$ >>{0}; wait", notes.display());
    script(&path, &format!("case \"$*\" in *' run '*) {hang};; *) exec runc \"$@\";; esac"));
    path
}

fn hanging_pids(node: &Node) -> Vec<i32> {
    let text = fs::read_to_string(node.paths.root().join("hanging")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[test]
fn hung_runtime_is_killed_and_delays_no_other() {
    if !can_run() {
        return;
    }
    let node = Node::with(|settings: &mut Settings| {
        (settings.workers, settings.runtime_timeout) = (2, Duration::from_secs(14));
    });
    let runtime = hanging(&node);
    node.run(async {
        let began = Instant::now();
        for n in 0..4 {
            let mut spec = node.bundle(&format!("hung{n}"), "true");
            spec.runtime.clone_from(&runtime);
            node.client.start(spec).await.unwrap();
        }
        node.client.start(node.bundle("well", "sleep 1000")).await.unwrap();
        node.started("well").await;
        assert!(began.elapsed() < Duration::from_secs(14), "it waited for their deadline: {:?}", began.elapsed());
        // A kill does not wait either.
        node.client.kill("hung0", 9).await.unwrap();
        let message = node.start_failed("hung0").await;
        assert!(message.contains("the OCI runtime did not return within"), "{message}");
        node.client.delete("hung0").await.unwrap();
        for n in 1..4 {
            let message = node.start_failed(&format!("hung{n}")).await;
            assert_eq!(message, "the OCI runtime did not return within 14 s");
        }
        let pids = hanging_pids(&node);
        assert_eq!(pids.len(), 8, "each with its child");
        wait_until("their families to be gone", || !pids.iter().any(|pid| lives(*pid)));
    });
}

#[test]
fn a_start_that_hangs_is_ended_by_the_next_monitor_too() {
    if !can_run() {
        return;
    }
    let node = Node::with(|settings| settings.runtime_timeout = Duration::from_secs(3));
    let runtime = hanging(&node);
    node.run(async {
        assert!(node.reconnected().await.is_empty());
        let mut spec = node.bundle("hung", "true");
        spec.runtime = runtime;
        node.client.start(spec).await.unwrap();
        wait_until("it to hang", || hanging_pids(&node).len() == 2);
        node.kill_monitor();
        assert_eq!(node.reconnected().await[0].phase, Phase::Starting);
        node.start_failed("hung").await;
        let pids = hanging_pids(&node);
        wait_until("its family to be gone", || !pids.iter().any(|pid| lives(*pid)));
        node.client.delete("hung").await.unwrap();
    });
}

fn memory_kb(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A file system that turns read-only below open logs. (`MS_REMOUNT | MS_RDONLY` is refused while they are open; a full
/// one refuses writes as well, and lets files be cut.)
#[test]
fn unwritable_log_lines_are_dropped_and_counted() {
    if !can_run() {
        return;
    }
    let node = Node::new();
    let disk = node.paths.root().join("logs");
    fs::create_dir(&disk).unwrap();
    mount(Some("logs"), &disk, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
    let log = disk.join("pod/loud/0.log");
    node.run(async {
        assert!(node.reconnected().await.is_empty());
        let script = "while :; do head -c 20000 /dev/zero | tr '\\0' x; echo; sleep 0.01; done";
        let mut spec = node.bundle("loud", script);
        spec.log_path.clone_from(&log);
        node.client.start(spec).await.unwrap();
        let pid = node.started("loud").await;
        let told = |event: &MonitorEvent| match event {
            MonitorEvent::LogTrouble(reason) => Some(reason.clone()),
            _ => None,
        };
        let reason = node.wait_for(told).await.expect("a reason");
        assert!(reason.contains("No space left") && reason.contains("loud"), "{reason}");
        let monitor = node.monitor_pid().unwrap();
        let before = memory_kb(monitor);
        sleep_ms(3000).await;
        let after = memory_kb(monitor);
        assert!(after < before + 512, "from {before} to {after} kB");
        // A new monitor continues to read, and reports the same.
        node.kill_monitor();
        node.reconnected().await;
        sleep_ms(2500).await;
        assert!(lives(pid));
        mount(None::<&str>, &disk, None::<&str>, MsFlags::MS_REMOUNT, Some("size=64m")).unwrap();
        loop {
            if node.wait_for(told).await.is_none() {
                break;
            }
        }
        wait_until("the log to say so", || {
            fs::read_to_string(&log)
                .is_ok_and(|text| text.contains(" lines dropped, they could not be written: No space"))
        });
        node.client.kill("loud", 9).await.unwrap();
        assert_eq!(node.exited("loud").await.signal, Some(9));
        node.client.delete("loud").await.unwrap();
    });
    nix::mount::umount2(&disk, nix::mount::MntFlags::MNT_DETACH).unwrap();
}

/// A monitor below a shell that has set its limits.
fn limited(settings: &mut Settings, folder: &Path, limits: &str) {
    let path = folder.join("limited");
    script(&path, &format!("{limits}\nexec {} \"$@\"", Node::program()));
    settings.program = path;
}

#[test]
fn descriptor_limit_is_raised_only_for_the_monitor() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let node = Node::with(|settings| limited(settings, folder.path(), "ulimit -Sn 64"));
    node.run(async {
        assert!(node.reconnected().await.is_empty());
        let ids: Vec<String> = (0..30).map(|n| format!("c{n:02}")).collect();
        // A container has the descriptor limit of the OCI runtime. (A runtime in Go before 1.21 passes on the limit
        // that it has raised.)
        let notes = folder.path().join("notes");
        let runtime = folder.path().join("runtime");
        script(&runtime, &format!("ulimit -Sn >>{}; exec runc \"$@\"", notes.display()));
        for id in &ids {
            let mut spec = node.bundle(id, "exec sleep 1000");
            spec.runtime.clone_from(&runtime);
            node.client.start(spec).await.unwrap();
        }
        for id in &ids {
            node.started(id).await;
        }
        assert_eq!(fs::read_to_string(&notes).unwrap(), "64\n".repeat(30));
        let limits = fs::read_to_string(format!("/proc/{}/limits", node.monitor_pid().unwrap())).unwrap();
        let own = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        assert!(!own.contains(" 64 "), "{own}");
        node.kill_monitor();
        let listed = node.reconnected().await;
        assert!(listed.iter().all(|one| matches!(one.phase, Phase::Running { .. })), "{listed:?}");
    });
}

#[test]
fn a_monitor_without_descriptors_takes_nobody_for_ended() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let node = Node::with(|settings| limited(settings, folder.path(), "[ ! -e \"$0.few\" ] || ulimit -n 24"));
    node.run(async {
        assert!(node.reconnected().await.is_empty());
        let ids: Vec<String> = (0..12).map(|n| format!("c{n:02}")).collect();
        for id in &ids {
            node.client.start(node.bundle(id, "sleep 1000")).await.unwrap();
        }
        let mut pids = Vec::new();
        for id in &ids {
            pids.push(node.started(id).await);
        }
        fs::write(folder.path().join("limited.few"), "").unwrap();
        node.kill_monitor();
        let listed = node.reconnected().await;
        let running = listed.iter().filter(|one| matches!(one.phase, Phase::Running { .. })).count();
        assert_eq!(running, ids.len(), "{listed:?}");
        let monitor = node.monitor_pid().unwrap();
        // No descriptor is left for more connections: they are refused, and do not stay pending forever.
        let socket = node.paths.monitor_socket();
        let strangers: Vec<_> = (0..12).filter_map(|_| std::os::unix::net::UnixStream::connect(&socket).ok()).collect();
        let before = ticks(monitor);
        sleep_ms(2000).await;
        let used = ticks(monitor) - before;
        assert!(used < 50, "{used} of 200 ticks");
        drop(strangers);
        assert!(pids.iter().all(|pid| lives(*pid)));
        kill(pids[0], 9);
        assert_eq!(node.exited("c00").await.pid, pids[0]);

        // No descriptor is left to look or to signal with: a signal that was not sent is not reported as sent.
        let descriptors = |limit: &str| {
            let mut set = Command::new("prlimit");
            set.arg(format!("--nofile={limit}")).args(["--pid", &monitor.to_string()]);
            assert!(set.status().unwrap().success());
        };
        descriptors("3:24");
        for (id, pid) in ids.iter().zip(&pids).skip(1) {
            match node.client.kill(id, 9).await {
                Ok(()) => assert_eq!(node.exited(id).await.pid, *pid),
                Err(error) => assert!(error.to_string().contains("Too many open files") && lives(*pid), "{error}"),
            }
        }
        // The remaining ones end with the node.
        descriptors("24");
    });
}

#[test]
fn hung_monitor_and_its_recovery_are_reported() {
    if !can_run() {
        return;
    }
    let node = Node::with(|settings: &mut Settings| settings.patience = Duration::from_secs(2));
    node.run(async {
        node.client.start(node.bundle("runs", "sleep 1000")).await.unwrap();
        node.started("runs").await;
        let monitor = node.monitor_pid().unwrap();
        let silent =
            |event: &MonitorEvent| if let MonitorEvent::Silent(why) = event { Some(why.clone()) } else { None };
        kill(monitor, nix::sys::signal::Signal::SIGSTOP as i32);
        // Without any request to the monitor: it is checked nevertheless.
        let why = node.wait_for(silent).await.unwrap();
        assert!(why.contains(&format!("process {monitor}, state T")), "{why}");
        kill(monitor, nix::sys::signal::Signal::SIGCONT as i32);
        assert_eq!(node.wait_for(silent).await, None);
        node.client.kill("runs", 9).await.unwrap();
        node.exited("runs").await;
    });
}
