//! A bridge with its API: the embedded one, or `serve` over the API server of `TEST_KUBECONFIG`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::faults::{Cuts, FaultProxy};
use crate::kubectl::Kubectl;
use crate::node::EdgeNode;
use crate::ports::free_address;
use crate::process::{Process, binary};
use crate::wait::until;

/// What a test runs against. Everything ends and is deleted when it is dropped.
pub struct Cluster {
    /// `None` while it is killed.
    pub bridge: Option<Process>,
    pub listen: SocketAddr,
    /// Set for the bridge at its next start.
    pub env: Vec<(String, String)>,
    /// More flags for the bridge at its next start.
    pub flags: Vec<String>,
    /// Stands between every node and the bridge when `TEST_LINK_CUTS` asks for cuts.
    pub proxy: Option<FaultProxy>,
    pub kubectl: Kubectl,
    folder: tempfile::TempDir,
    real: Option<PathBuf>,
    api_listen: SocketAddr,
}

impl Cluster {
    /// Starts a bridge and waits until its API answers. Every test has a namespace of its own.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn start(test: &str) -> Self {
        Self::start_with(test, &[])
    }

    /// Same as [`Cluster::start`], with more flags for the bridge.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn start_with(test: &str, flags: &[&str]) -> Self {
        let mut cluster = Self::launch(test, Ipv4Addr::LOCALHOST.into(), flags);
        if let Some(cuts) = Cuts::from_env() {
            let proxy = FaultProxy::start(Ipv4Addr::LOCALHOST.into(), cluster.listen);
            proxy.keep_cutting(cuts);
            cluster.proxy = Some(proxy);
        }
        cluster
    }

    /// Same as [`Cluster::start`], for nodes that reach the bridge at this address, without any cuts.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn start_at(test: &str, ip: IpAddr, flags: &[&str]) -> Self {
        Self::launch(test, ip, flags)
    }

    fn launch(test: &str, ip: IpAddr, flags: &[&str]) -> Self {
        let mut builder = tempfile::Builder::new();
        // To be passed by pods with users of their own, as `/run` is on a device.
        let passable = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        let folder = builder.prefix("smp-").permissions(passable).tempdir_in("/tmp").expect("a folder");
        let real = std::env::var_os("TEST_KUBECONFIG").map(PathBuf::from);
        let kubeconfig = real.clone().unwrap_or_else(|| folder.path().join("bridge/kubeconfig"));
        let namespace = format!("{test}-{}", std::process::id());
        let mut cluster = Self {
            bridge: None,
            listen: SocketAddr::new(ip, free_address().port()),
            env: Vec::new(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            proxy: None,
            api_listen: free_address(),
            kubectl: Kubectl::new(&kubeconfig, &namespace),
            folder,
            real,
        };
        cluster.start_bridge();
        cluster.kubectl.apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}\n"));
        if cluster.real.is_some() {
            // Admission refuses pods until the controller manager has made it.
            until(Duration::from_secs(20), "the default service account", || {
                cluster.kubectl.get("serviceaccount", "default")
            });
        }
        cluster
    }

    /// Starts the bridge (again).
    ///
    /// # Panics
    /// Its API does not answer within 20 s.
    pub fn start_bridge(&mut self) {
        let state = self.folder.path().join("bridge");
        let mut command = Command::new(binary("cloud-bridge"));
        match &self.real {
            None => {
                command.arg("standalone").arg("--state").arg(&state);
                command.arg("--api-listen").arg(self.api_listen.to_string());
            }
            Some(kubeconfig) => {
                command.arg("serve").arg("--kubeconfig").arg(kubeconfig);
                command.args(["--kubelet-address", &kubelet_address()]);
                if let Some(ca) = std::env::var_os("TEST_KUBELET_CLIENT_CA") {
                    command.arg("--kubelet-client-ca").arg(ca);
                }
            }
        }
        command.arg("--listen").arg(self.listen.to_string()).args(&self.flags).envs(self.env.iter().cloned());
        let mut bridge = Process::start(&mut command, &self.folder.path().join("bridge.log"));
        let listen = self.listen;
        until(Duration::from_secs(20), "the bridge is up", || {
            if !bridge.is_running() {
                return Err(format!("it ended: {}", bridge.log()));
            }
            std::net::TcpStream::connect(listen).map_err(|error| error.to_string())?;
            self.kubectl.run(&["get", "--raw", "/readyz"])
        });
        self.bridge = Some(bridge);
    }

    /// SIGKILL.
    pub fn kill_bridge(&mut self) {
        if let Some(mut bridge) = self.bridge.take() {
            bridge.kill();
        }
    }

    /// Runs a verb of `cloud-bridge` for this bridge.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Output {
        let mut command = Command::new(binary("cloud-bridge"));
        command.args(args);
        match &self.real {
            None => command.arg("--state").arg(self.folder.path().join("bridge")),
            Some(kubeconfig) => command.arg("--kubeconfig").arg(kubeconfig),
        };
        command.output().expect("cloud-bridge starts")
    }

    /// Runs a verb as [`command`](Self::command) does; returns standard output.
    ///
    /// # Errors
    /// Its exit code is not 0; the error has both its outputs.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn bridge_verb(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(text) } else { Err(text + &String::from_utf8_lossy(&output.stderr)) }
    }

    /// A join token for a node of this name.
    ///
    /// # Panics
    /// The bridge gives none.
    #[must_use]
    pub fn token(&self, node: &str) -> String {
        let text = self.bridge_verb(&["token", "create", node]).unwrap_or_else(|error| error);
        let token = text.split_whitespace().find(|word| word.starts_with("sampan1."));
        token.unwrap_or_else(|| panic!("no token in {text}")).to_owned()
    }

    /// Joins and starts a node with the busybox image on it, and waits until it is Ready.
    #[must_use]
    pub fn node(&self, name: &str) -> EdgeNode {
        // On a shared API server a node must not get the pods that an earlier test's namespace takes along.
        let name = format!("{name}-{}", self.kubectl.namespace);
        let mut node = EdgeNode::prepare(self, &name);
        node.start();
        node.wait_ready();
        node
    }

    /// Whether the API forwards `nodes/NAME/proxy`: a real API server does not to loopback (K8s
    /// apimachinery/pkg/util/proxy: "address not allowed"). A notice when it does not.
    #[must_use]
    pub fn proxies_to_nodes(&self) -> bool {
        use std::io::Write;
        let loopback = kubelet_address().parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let refused = self.real.is_some() && loopback;
        if refused {
            // Only a notice: nothing to do when stderr is gone.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: the API server does not proxy to loopback: set TEST_KUBELET_ADDRESS"
            );
        }
        !refused
    }

    /// Where the embedded API listens; `None` over a real API server.
    #[must_use]
    pub fn api_address(&self) -> Option<SocketAddr> {
        self.real.is_none().then_some(self.api_listen)
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the bridge logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("bridge.log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            use std::io::Write;
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            // Only for the reader of a failure.
            let _ = writeln!(std::io::stderr(), "bridge log, newest first:\n{}", tail.join("\n"));
        }
        if self.real.is_some() {
            // The namespace of a real API server outlives the test otherwise.
            let _ = self.kubectl.run(&["delete", "namespace", &self.kubectl.namespace, "--wait=false"]);
        }
    }
}

/// Where a real API server reaches the bridge's kubelet ports: `TEST_KUBELET_ADDRESS`, else loopback.
#[must_use]
pub fn kubelet_address() -> String {
    std::env::var("TEST_KUBELET_ADDRESS").unwrap_or_else(|_| "127.0.0.1".into())
}
