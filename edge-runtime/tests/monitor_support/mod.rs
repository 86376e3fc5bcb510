//! A node's worth of folders, a monitor made from the real binary, and containers of busybox run by the real runc.
#![allow(dead_code, unreachable_pub, clippy::print_stderr)]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use edge_runtime::monitor::client::{MonitorClient, MonitorEvent, Settings};
use edge_runtime::paths::Paths;
use sampan_monitor::exit::ExitRecord;
use sampan_monitor::protocol::{ContainerState, Phase, StartContainer};
use sampan_sys::tasks::Tasks;
use smol::channel::Receiver;

/// Whether containers can run here; prints why not.
pub fn can_run() -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return false;
    }
    for program in ["/usr/sbin/runc", "/bin/busybox"] {
        if !Path::new(program).exists() {
            eprintln!("skipped: needs {program}");
            return false;
        }
    }
    true
}

pub struct Node {
    pub executor: Tasks,
    pub client: MonitorClient,
    pub paths: Paths,
    events: Receiver<MonitorEvent>,
    /// Events that a wait for another one has passed over.
    passed: RefCell<VecDeque<MonitorEvent>>,
    dir: Rc<tempfile::TempDir>,
    cgroup: String,
}

impl Node {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts with other settings of the monitor.
    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::Builder::new().prefix("monitor-").tempdir().unwrap();
        let rootfs = dir.path().join("rootfs");
        for folder in ["bin", "proc", "dev", "sys", "tmp", "etc"] {
            fs::create_dir_all(rootfs.join(folder)).unwrap();
        }
        fs::copy("/bin/busybox", rootfs.join("bin/busybox")).unwrap();
        std::os::unix::fs::symlink("busybox", rootfs.join("bin/sh")).unwrap();
        Self::at(Rc::new(dir), change)
    }

    /// A daemon that starts again on the same node.
    pub fn again(&self) -> Self {
        Self::at(self.dir.clone(), |_| {})
    }

    /// The real binary.
    pub fn program() -> String {
        std::env::var("EDGE_RUNTIME_BIN").unwrap_or(env!("CARGO_BIN_EXE_edge-runtime").to_owned())
    }

    fn at(dir: Rc<tempfile::TempDir>, change: impl FnOnce(&mut Settings)) -> Self {
        let executor = Tasks::default();
        let (sender, events) = smol::channel::bounded(4);
        let paths = Paths::new(dir.path());
        let mut settings = Settings { program: Self::program().into(), ..Settings::default() };
        change(&mut settings);
        let client = MonitorClient::connect_or_spawn(&executor, paths.clone(), settings, sender);
        let cgroup = format!("/{}", dir.path().file_name().unwrap().to_str().unwrap());
        Self { executor, client, paths, events, passed: RefCell::default(), dir, cgroup }
    }

    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let limit = async {
            smol::Timer::after(Duration::from_secs(60)).await;
            panic!("took more than a minute");
        };
        smol::block_on(self.executor.run(smol::future::or(future, limit)))
    }

    pub fn log_path(&self, id: &str) -> PathBuf {
        self.paths.container_log("default", "pod", "uid", id, 0)
    }

    pub fn log_text(&self, id: &str) -> String {
        fs::read_to_string(self.log_path(id)).unwrap_or_default()
    }

    /// Makes the bundle of a container that runs `script`.
    pub fn bundle(&self, id: &str, script: &str) -> StartContainer {
        self.bundle_with(id, &["/bin/busybox", "sh", "-c", script], serde_json::json!({}))
    }

    pub fn bundle_with(&self, id: &str, argv: &[&str], resources: serde_json::Value) -> StartContainer {
        let bundle = self.paths.bundle(id);
        fs::create_dir_all(&bundle).unwrap();
        let cgroup = format!("{}/{id}", self.cgroup);
        let config = serde_json::json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false, "user": {"uid": 0, "gid": 0}, "args": argv, "cwd": "/",
                "env": ["PATH=/bin"], "noNewPrivileges": true,
            },
            "root": {"path": self.dir.path().join("rootfs"), "readonly": true},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                {
                    "destination": "/dev/pts", "type": "devpts", "source": "devpts",
                    "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
                },
            ],
            "linux": {
                "cgroupsPath": cgroup, "resources": resources,
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
            },
        });
        fs::write(bundle.join("config.json"), config.to_string()).unwrap();
        StartContainer {
            id: id.to_owned(),
            bundle,
            runtime: "runc".into(),
            runtime_root: self.paths.runtime_root(),
            runtime_args: Vec::new(),
            log_path: self.log_path(id),
            log_max_bytes: 10 << 20,
            log_max_files: 5,
            cgroup: Some(cgroup),
            ..StartContainer::default()
        }
    }

    /// The first event, now or later, that `pick` takes. The others are kept.
    pub async fn wait_for<T>(&self, mut pick: impl FnMut(&MonitorEvent) -> Option<T>) -> T {
        let kept = self.passed.borrow().iter().position(|e| pick(e).is_some());
        if let Some(at) = kept {
            let event = self.passed.borrow_mut().remove(at).unwrap();
            return pick(&event).unwrap();
        }
        loop {
            let event = self.events.recv().await.unwrap();
            if let Some(found) = pick(&event) {
                return found;
            }
            self.passed.borrow_mut().push_back(event);
        }
    }

    pub async fn reconnected(&self) -> Vec<ContainerState> {
        self.wait_for(|e| match e {
            MonitorEvent::Reconnected { containers } => Some(containers.clone()),
            _ => None,
        })
        .await
    }

    pub async fn started(&self, id: &str) -> i32 {
        self.wait_for(|e| match e {
            MonitorEvent::Started { id: i, pid, .. } if i == id => Some(*pid),
            MonitorEvent::StartFailed { id: i, message } if i == id => panic!("{message}"),
            _ => None,
        })
        .await
    }

    pub async fn exited(&self, id: &str) -> ExitRecord {
        self.wait_for(|e| match e {
            MonitorEvent::Exited(record) if record.id == id => Some(record.clone()),
            _ => None,
        })
        .await
    }

    pub async fn start_failed(&self, id: &str) -> String {
        self.wait_for(|e| match e {
            MonitorEvent::StartFailed { id: i, message } if i == id => Some(message.clone()),
            _ => None,
        })
        .await
    }

    pub fn monitor_pid(&self) -> Option<i32> {
        let root = self.dir.path().to_str().unwrap().to_owned();
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            let words: Vec<&str> = line.split('\0').collect();
            (words.contains(&"--stay") && words.contains(&root.as_str())).then_some(pid)
        })
    }

    pub fn kill_monitor(&self) {
        let pid = self.monitor_pid().expect("a monitor runs");
        kill(pid, 9);
        wait_until("the monitor to die", || self.monitor_pid() != Some(pid));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if Rc::strong_count(&self.dir) > 1 {
            return;
        }
        let clean = async {
            // The first call after a loss may fail: the connection notices it only then.
            let listed = loop {
                if let Ok(listed) = self.client.list().await {
                    break listed;
                }
                smol::Timer::after(Duration::from_millis(10)).await;
            };
            for container in listed {
                if matches!(container.phase, Phase::Running { .. } | Phase::Starting) {
                    while self.client.delete(&container.id).await.is_err() {
                        let _ = self.client.kill(&container.id, 9).await;
                        smol::Timer::after(Duration::from_millis(10)).await;
                    }
                }
                let _ = self.client.delete(&container.id).await;
            }
            let _ = self.client.shutdown_if_idle().await;
        };
        let limit = async {
            smol::Timer::after(Duration::from_secs(10)).await;
            eprintln!("containers of {} could not be cleaned up", self.dir.path().display());
        };
        smol::block_on(self.executor.run(smol::future::or(clean, limit)));
        if let Some(pid) = self.monitor_pid() {
            kill(pid, 9);
        }
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_cgroup(&hierarchy.path().join(self.cgroup.trim_start_matches('/')));
        }
        remove_cgroup(Path::new(&format!("/sys/fs/cgroup{}", self.cgroup)));
    }
}

/// Removes a cgroup and those below it: a killed OCI runtime leaves them behind.
fn remove_cgroup(cgroup: &Path) {
    for below in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if below.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&below.path());
        }
    }
    let _ = fs::remove_dir(cgroup);
}

pub fn kill(pid: i32, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).unwrap();
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
}

pub fn lives(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z "))
}

/// Time of the processor that a process has used, in ticks: 100 a second.
pub fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // `utime` and `stime` of proc_pid_stat(5), counted from behind the name.
    let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

/// How often a process has gone to sleep, and woken up again.
pub fn sleeps(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ids that runc knows below `root`.
pub fn runc_list(node: &Node) -> Vec<String> {
    let out = Command::new("runc").arg("--root").arg(node.paths.runtime_root()).args(["list", "-q"]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}
