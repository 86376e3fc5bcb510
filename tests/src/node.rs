//! One edge node under test, with a root folder of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;
use crate::process::{Process, binary};
use crate::uplink::Uplink;
use crate::wait::until;

/// The OCI runtime of the nodes: `TEST_OCI_RUNTIME`, else runc.
#[must_use]
pub fn oci_runtime() -> String {
    std::env::var("TEST_OCI_RUNTIME").unwrap_or_else(|_| "runc".into())
}

/// Whether systemd manages the nodes' cgroups: `TEST_CGROUP_DRIVER` is `systemd`.
#[must_use]
pub fn with_systemd() -> bool {
    std::env::var("TEST_CGROUP_DRIVER").is_ok_and(|driver| driver == "systemd")
}

/// The image all tests use.
pub const BUSYBOX: &str = "docker.io/library/busybox:latest";

/// A node. Dropping it ends its containers and cleans the host.
pub struct EdgeNode {
    pub name: String,
    /// `None` while it is stopped or killed.
    pub daemon: Option<Process>,
    /// Command that runs the daemon, for example in its own mount namespace; the program and its arguments are
    /// appended.
    pub wrapper: Vec<String>,
    /// More environment for the daemon.
    pub env: Vec<(String, String)>,
    root: PathBuf,
    kubectl: Kubectl,
    /// The network in which it runs, if not the host's.
    pub uplink: Option<Rc<Uplink>>,
    /// Length of the daemon's log at its last start, in bytes.
    log_before: usize,
}

impl EdgeNode {
    /// Creates a node that has joined and imported the image, but is not started.
    ///
    /// # Panics
    /// Joining or importing fails.
    #[must_use]
    pub fn prepare(cluster: &Cluster, name: &str) -> Self {
        match &cluster.proxy {
            Some(proxy) => {
                // A token works once: a join that is interrupted would end the test.
                let _calm = proxy.calm();
                Self::prepare_behind(cluster, name, &proxy.url(), None)
            }
            None => Self::prepare_behind(cluster, name, &format!("https://{}", cluster.listen), None),
        }
    }

    /// Same as [`EdgeNode::prepare`], with a bridge at this address and optionally a separate network.
    ///
    /// # Panics
    /// Joining or importing fails.
    #[must_use]
    pub fn prepare_behind(cluster: &Cluster, name: &str, bridge: &str, uplink: Option<Rc<Uplink>>) -> Self {
        let mut node = Self::bare(cluster, name);
        node.uplink = uplink;
        node.edge_ok(&["join", "--bridge", bridge, "--token", &cluster.token(name), "--node", name]);
        node.import_busybox(cluster);
        node
    }

    /// Creates a node that has not joined or started.
    ///
    /// # Panics
    /// Its root folder cannot be created.
    #[must_use]
    pub fn bare(cluster: &Cluster, name: &str) -> Self {
        let root = cluster.folder().join(name);
        // The daemon would create it accessible to root only: on a device every user may pass through `/run`.
        std::fs::create_dir_all(root.join("run")).expect("a root folder");
        let kubectl = cluster.kubectl.clone();
        Self {
            name: name.into(),
            daemon: None,
            wrapper: Vec::new(),
            env: Vec::new(),
            root,
            kubectl,
            uplink: None,
            log_before: 0,
        }
    }

    /// # Panics
    /// The image cannot be made or imported.
    pub fn import_busybox(&self, cluster: &Cluster) {
        let archive = cluster.folder().join("busybox.tar");
        if !archive.exists() {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/make-busybox-image.sh");
            let made = Command::new(script).arg(&archive).status().expect("the script starts");
            assert!(made.success(), "the busybox image can be made");
        }
        self.edge_ok(&["import", &archive.display().to_string()]);
    }

    /// Runs a verb of edge-runtime on this node's root.
    ///
    /// # Errors
    /// Its exit code is not 0; the error has both its outputs.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn edge(&self, args: &[&str]) -> Result<String, String> {
        let (verb, rest) = args.split_first().expect("a verb");
        let output = self.command().arg(verb).arg("--root").arg(&self.root).args(rest).output().expect("starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(text + &String::from_utf8_lossy(&output.stderr))
    }

    fn command(&self) -> Command {
        let program = binary("edge-runtime");
        if let Some(pid) = self.monitor_apart() {
            let mut command = Command::new("nsenter");
            // Its network too, which may be an uplink's.
            command.arg(format!("--mount=/proc/{pid}/ns/mnt")).arg(format!("--net=/proc/{pid}/ns/net"));
            command.arg("--").arg(&program);
            return command;
        }
        self.uplink.as_ref().map_or_else(|| Command::new(&program), |uplink| uplink.command(&program))
    }

    /// The monitor, if its mounts are not the host's: its mount namespace has those of the containers.
    fn monitor_apart(&self) -> Option<u32> {
        (!self.wrapper.is_empty()).then(|| self.monitor_pid())?
    }

    fn wrapped(&self, command: Command) -> Command {
        if self.monitor_apart().is_some() {
            return command;
        }
        let Some((program, rest)) = self.wrapper.split_first() else { return command };
        let mut outer = Command::new(program);
        outer.args(rest).arg(command.get_program()).args(command.get_args());
        outer
    }

    /// # Panics
    /// The verb fails.
    pub fn edge_ok(&self, args: &[&str]) -> String {
        self.edge(args).unwrap_or_else(|error| panic!("edge-runtime {args:?}: {error}"))
    }

    /// Writes its `config.yaml`, for the next start.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn configure(&self, config: &str) {
        let folder = self.root.join("etc/edge-runtime");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("config.yaml"), config).expect("written");
    }

    /// Starts the daemon. Unless a test says otherwise, the state of the host's disk and memory causes no evictions.
    ///
    /// # Panics
    /// Its configuration cannot be written.
    pub fn start(&mut self) {
        let folder = self.root.join("etc/edge-runtime");
        std::fs::create_dir_all(&folder).expect("a folder");
        let config = std::fs::read_to_string(folder.join("config.yaml")).unwrap_or_default();
        if !config.contains("eviction:") {
            let off = ["memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"];
            let off = off.map(|signal| format!("{signal}: '0'")).join(", ");
            let text = format!("{}\neviction: {{hard: {{{off}, imagefs.inodesFree: '0'}}}}\n", config.trim_end());
            std::fs::write(folder.join("config.yaml"), text.trim_start()).expect("written");
        }
        let runtime = oci_runtime();
        let config = std::fs::read_to_string(folder.join("config.yaml")).unwrap_or_default();
        if runtime != "runc" && !config.contains("runtime:") {
            std::fs::write(folder.join("config.yaml"), format!("{config}runtime: {{command: {runtime}}}\n"))
                .expect("written");
        }
        let config = std::fs::read_to_string(folder.join("config.yaml")).unwrap_or_default();
        if with_systemd() && !config.contains("cgroup-driver:") {
            std::fs::write(folder.join("config.yaml"), format!("{config}cgroup-driver: systemd\n")).expect("written");
        }
        let mut command = self.wrapped(self.command());
        command.arg("run").arg("--root").arg(&self.root);
        command.env("EDGE_RUNTIME_LOG", std::env::var("EDGE_RUNTIME_LOG").unwrap_or_else(|_| "info".into()));
        command.envs(self.env.iter().cloned());
        self.log_before = self.log().len();
        self.daemon = Some(Process::start(&mut command, &self.root.join("daemon.log")));
    }

    /// Sends SIGKILL to the daemon.
    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// Waits until the API shows the node Ready.
    ///
    /// # Panics
    /// It does not within 30 s.
    pub fn wait_ready(&self) -> Value {
        until(Duration::from_secs(30), &format!("node {} is Ready", self.name), || {
            let node =
                self.kubectl.get("node", &self.name).map_err(|error| format!("{error}; daemon log: {}", self.log()))?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
            if ready { Ok(node) } else { Err(format!("{node:#}")) }
        })
    }

    /// Waits until the bridge has this node's session again, so that a change of a label reaches the node.
    ///
    /// # Panics
    /// It does not within 40 s.
    pub fn wait_connected(&self, cluster: &Cluster) {
        let line = format!("node {}: connected", self.name);
        let ended = format!("node {}: connection", self.name);
        until(Duration::from_secs(40), &format!("node {} is connected", self.name), || {
            // The bridge may not have noticed yet that the previous daemon died.
            if !self.log().get(self.log_before..).is_some_and(|log| log.contains("connected to the bridge")) {
                return Err(self.log());
            }
            let log = cluster.log();
            // The bridge's log is appended to across its restarts; this line marks a start.
            let chapter = log.rfind("nodes connect to").map_or(&log[..], |at| &log[at..]);
            match (chapter.rfind(&line), chapter.rfind(&ended)) {
                (Some(connected), Some(gone)) if gone > connected => Err("it was, and is no more".to_owned()),
                (Some(_), _) => Ok(()),
                (None, _) => Err(self.log()),
            }
        });
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.root.join("daemon.log")).unwrap_or_default()
    }

    /// Pid of this node's monitor, if it runs.
    #[must_use]
    pub fn monitor_pid(&self) -> Option<u32> {
        let root = self.root.to_string_lossy().into_owned();
        std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<&str> = std::str::from_utf8(&line).ok()?.split('\0').collect();
            (words.get(1) == Some(&"monitor") && words.contains(&root.as_str())).then_some(pid)
        })
    }

    /// Waits until no container of this node runs.
    ///
    /// # Panics
    /// One still does after 15 s.
    pub fn wait_no_container(&self) {
        until(Duration::from_secs(15), "no container is left", || {
            let left = self.container_pids();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }

    /// Kills the daemon and restarts it without a reachable bridge, then kills one of its containers: the next start
    /// can use only what is on this node. Returns the containers that ran before, in the form of
    /// [`Self::container_pids`].
    ///
    /// # Panics
    /// No container runs.
    pub fn restart_offline(&mut self, cluster: &mut Cluster) -> std::collections::BTreeMap<String, u32> {
        cluster.kill_bridge();
        self.kill();
        self.start();
        let containers = self.container_pids();
        crate::process::signal(*containers.values().next().expect("it runs"), "KILL");
        containers
    }

    /// Simulates a power cut: the disk stays, and nothing that ran and nothing of `/run`. The next start sees another
    /// boot id, from a file in `folder`.
    ///
    /// # Panics
    /// The host does not allow it.
    pub fn cut_power(&mut self, folder: &Path) {
        self.kill();
        let helpers = self.monitor_pid().into_iter().chain(self.dns_pid());
        for pid in helpers.chain(self.container_pids().into_values()) {
            crate::process::signal(pid, "KILL");
        }
        let run = self.root.join("run");
        let table = std::fs::read_to_string("/proc/self/mounts").expect("a file of the kernel");
        let below = table.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for mount in below.filter(|mount| Path::new(mount).starts_with(&self.root)) {
            let _ = Command::new("umount").args(["-l", mount]).status();
        }
        std::fs::remove_dir_all(&run).expect("removed");
        std::fs::create_dir(&run).expect("a folder");
        let id = folder.join("boot_id");
        std::fs::write(&id, "5bd3e2d8-6b6a-4b8e-9d53-5f7a9b1c2d3e\n").expect("written");
        let script = format!("mount --bind {} /proc/sys/kernel/random/boot_id && exec \"$0\" \"$@\"", id.display());
        self.wrapper = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned).into();
    }

    /// Pid of the DNS helper, if it runs.
    #[must_use]
    pub fn dns_pid(&self) -> Option<u32> {
        let root = self.root.display().to_string();
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.get(1) == Some(&&b"dns"[..]) && words.contains(&root.as_bytes())
        })
    }

    /// Processes of this node's containers: pid by container id.
    #[must_use]
    pub fn container_pids(&self) -> std::collections::BTreeMap<String, u32> {
        let root = self.root.join("run/edge-runtime/runc");
        let ids = std::fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let pid = |id: &std::ffi::OsStr| {
            // `list` exists in runc and crun, `state` in every OCI runtime.
            let output = Command::new(oci_runtime()).arg("--root").arg(&root).arg("state").arg(id).output().ok()?;
            let state: Value = serde_json::from_slice(&output.stdout).ok()?;
            (state["status"] == "running").then(|| u32::try_from(state["pid"].as_u64()?).ok())?
        };
        ids.filter_map(|id| Some((id.to_str()?.to_owned(), pid(&id)?))).collect()
    }
}

impl Drop for EdgeNode {
    fn drop(&mut self) {
        use std::io::Write;
        self.kill();
        let reset = self.edge(&["reset", "--all"]);
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            // Helps to find the cause of a failure.
            let _ = writeln!(std::io::stderr(), "node log, newest first:\n{}\nreset: {reset:?}", tail.join("\n"));
            // If the node could not be reset.
            if let Some(pid) = self.monitor_pid() {
                crate::process::signal(pid, "KILL");
            }
        } else {
            assert!(reset.is_ok(), "reset: {reset:?}");
        }
        let _ = self.kubectl.run(&["delete", "node", &self.name, "--wait=false"]);
    }
}
