//! A medium that takes 20 ms for each write, while a layer is written to it. The node must not lose its connection, and
//! no probe may fail. Measures and prints how long the node's two loops are blocked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sampan_tests::manifest::{pod, shell, with, with_spec};
use sampan_tests::process::{Process, binary};
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::{Value, json};

use crate::disk::Disk;
use crate::lines::printing;
use crate::tell;

const DELAY_MS: i32 = 20;
const LAYER: usize = 32 << 20;

/// How long a process was blocked in the kernel by a disk, or by another file system's server.
#[derive(Default)]
struct Held {
    since: Option<Instant>,
    longest: Duration,
    all: Duration,
}

impl Held {
    fn look(&mut self, pid: u32) {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let waits = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('D'));
        match (waits, self.since) {
            (true, None) => self.since = Some(Instant::now()),
            (true, Some(since)) => self.longest = self.longest.max(since.elapsed()),
            (false, Some(since)) => {
                self.longest = self.longest.max(since.elapsed());
                self.all += since.elapsed();
                self.since = None;
            }
            (false, None) => {}
        }
    }
}

/// An image with a layer that cannot be compressed.
fn large_image(cluster: &Cluster) -> std::path::PathBuf {
    let (program, archive) = (cluster.folder().join("large-busybox"), cluster.folder().join("large.tar"));
    let mut bytes = std::fs::read("/bin/busybox").expect("busybox-static is installed");
    let mut state: u64 = 88_172_645_463_325_252;
    while bytes.len() < LAYER {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_ne_bytes());
    }
    std::fs::write(&program, bytes).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a mode");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/make-busybox-image.sh");
    let made = Command::new(script).arg(&archive).arg("docker.io/library/large:1").env("BUSYBOX", &program).status();
    assert!(made.expect("the script starts").success(), "the image can be made");
    archive
}

/// Duration of a synced write of a small file meanwhile.
fn synced_write(folder: &Path) -> Duration {
    let began = Instant::now();
    let file = File::create(folder.join("synced")).and_then(|mut file| file.write_all(b"text").map(|()| file));
    file.and_then(|file| file.sync_all()).expect("written");
    began.elapsed()
}

#[test]
fn a_slow_medium_breaks_no_connection_and_fails_no_probe() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("slow");
    let name = format!("edge-{}", cluster.kubectl.namespace);
    let var = cluster.folder().join(&name).join("var");
    let Some(disk) = Disk::sick(cluster.folder(), &var, 256) else { return };
    let mut node = EdgeNode::prepare(&cluster, &name);
    node.start();
    node.wait_ready();
    let _away = disk.away_on_failure();
    let kubectl = &cluster.kubectl;
    let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1});
    let mounts = json!([{"name": "settings", "mountPath": "/settings"}]);
    let more = json!({"livenessProbe": probe, "readinessProbe": probe, "volumeMounts": mounts});
    let volume = json!({"volumes": [{"name": "settings", "configMap": {"name": "settings"}}]});
    let probed = pod("probed", &name, json!([with(shell("c", "exec sleep 1000"), &more)]));
    kubectl.apply_all(&[settings("first"), with_spec(probed, &volume), printing("loud", &name, &["c"])]);
    ["probed", "loud"].iter().for_each(|name| drop(kubectl.wait_ready(name)));
    let archive = large_image(&cluster);
    let lost = || cluster.log().matches(&format!("node {name}: connection")).count();
    let before = lost();

    disk.sickness().slow(DELAY_MS);
    measure("nothing else is written", &node, &cluster, None, &var, &disk);
    let mut import = Command::new(binary("edge-runtime"));
    import.arg("import").arg("--root").arg(node.root()).arg(&archive);
    let import = Process::start(&mut import, &cluster.folder().join("import.log"));
    measure("a layer of 32 MiB is written", &node, &cluster, Some(import), &var, &disk);
    disk.sickness().slow(0);

    assert_eq!(lost(), before, "the connection has held");
    let seen = kubectl.wait_ready("probed");
    assert_eq!(seen["status"]["containerStatuses"][0]["restartCount"], 0, "{seen}");
    assert!(node.edge_ok(&["images"]).contains("large"));
}

/// The ConfigMap in a volume of the probed pod.
fn settings(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"key": value}})
}

fn measure(what: &str, node: &EdgeNode, cluster: &Cluster, job: Option<Process>, folder: &Path, disk: &Disk) {
    let kubectl = &cluster.kubectl;
    let pids =
        [("daemon", node.daemon.as_ref().expect("it runs").pid()), ("monitor", node.monitor_pid().expect("one"))];
    let (done, began, writes) = (AtomicBool::new(false), Instant::now(), disk.sickness().writes());
    let (held, syncs, execs) = std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let mut held: BTreeMap<&str, Held> = BTreeMap::new();
            while !done.load(Ordering::Relaxed) {
                pids.iter().for_each(|(name, pid)| held.entry(name).or_default().look(*pid));
                std::thread::sleep(Duration::from_millis(2));
            }
            held
        });
        let syncs = scope.spawn(|| {
            let mut all = Vec::new();
            while !done.load(Ordering::Relaxed) {
                all.push(synced_write(folder));
                std::thread::sleep(Duration::from_millis(250));
            }
            all
        });
        let (mut job, mut execs, mut round) = (job, Vec::new(), 0);
        while job.as_mut().map_or(began.elapsed() < Duration::from_secs(8), Process::is_running) {
            // A change that the node has to commit and sync.
            kubectl.apply_all(&[settings(&format!("{what}, {round}"))]);
            let at = Instant::now();
            let _ = kubectl.ok(&["exec", "probed", "--", "true"]);
            execs.push(at.elapsed());
            round += 1;
        }
        done.store(true, Ordering::Relaxed);
        (held.join().expect("it looks"), syncs.join().expect("it writes"), execs)
    });
    let spread = |mut all: Vec<Duration>| {
        all.sort();
        let at = |share: usize| all.get(all.len() * share / 100).or(all.last()).copied().unwrap_or_default();
        format!("{:?} median, {:?} longest of {}", at(50), all.last().copied().unwrap_or_default(), all.len())
    };
    tell(&format!(
        "slow, while {what}: {:?}, {} writes of {DELAY_MS} ms",
        began.elapsed(),
        disk.sickness().writes() - writes
    ));
    for (name, held) in held {
        tell(&format!("  the {name} was held {:?} at the longest, {:?} in all", held.longest, held.all));
    }
    tell(&format!("  a synced write beside it: {}", spread(syncs)));
    tell(&format!("  kubectl exec: {}", spread(execs)));
}
