//! Fleet jobs for a hundred simulated nodes, real bridges: some nodes fail, some are offline, bridges are killed in the middle. What
//! is judged is in the swarm (`tests/scale/src/jobs.rs`): each node's verdict, that each was given its order once, and how many were at
//! work at the same time.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sampan_tests::ports::free_address;
use sampan_tests::process::{Process, binary};
use sampan_tests::{Cluster, can_run, until};

/// A bridge of its own over the cluster's API.
fn replica(cluster: &Cluster, listen: SocketAddr, number: u16) -> Process {
    let mut command = Command::new(binary("cloud-bridge"));
    command.arg("serve").arg("--kubeconfig").arg(&cluster.kubectl.kubeconfig).arg("--listen").arg(listen.to_string());
    command.arg("--deleted-nodes-return");
    let mut process = Process::start(&mut command, &cluster.folder().join(format!("replica-{number}.log")));
    until(Duration::from_secs(20), "the replica is up", || {
        assert!(process.is_running(), "{}", process.log());
        std::net::TcpStream::connect(listen).map_err(|error| error.to_string())
    });
    process
}

/// Files with the authority that all bridges share, and its key.
fn authority(cluster: &Cluster) -> (PathBuf, PathBuf) {
    let secret = until(Duration::from_secs(20), "the authority", || {
        let path = "/api/v1/namespaces/sampan-system/secrets/bridge-authority";
        cluster.kubectl.run(&["get", "--raw", path])
    });
    let secret: serde_json::Value = serde_json::from_str(&secret).expect("JSON");
    let file = |key: &str| {
        let path = cluster.folder().join(key);
        let text = STANDARD.decode(secret["data"][key].as_str().expect("a key")).expect("base64");
        std::fs::write(&path, text).expect("a file");
        path
    };
    (file("tls.crt"), file("tls.key"))
}

fn define(cluster: &Cluster) {
    let definitions = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/bridge/operations/crds.yaml");
    let _ = cluster.kubectl.ok(&["apply", "-f", definitions]);
    for plural in ["nodeupgradejobs", "imageprepulljobs", "configupdatejobs"] {
        let name = format!("crd/{plural}.operations.kubeedge.io");
        let _ = cluster.kubectl.ok(&["wait", "--for=condition=Established", "--timeout=30s", &name]);
    }
}

/// A command that asks this test to restart a bridge, and prints the process id that it gets.
struct Restarts {
    asked: PathBuf,
    done: PathBuf,
}

impl Restarts {
    fn new(folder: &Path) -> Self {
        Self { asked: folder.join("restart-asked"), done: folder.join("restart-done") }
    }

    fn command(&self) -> String {
        let (asked, done) = (self.asked.display(), self.done.display());
        format!("touch {asked}; while [ ! -e {done} ]; do sleep 0.05; done; cat {done}; rm -f {done}")
    }

    /// Restarts a bridge when that is asked for.
    fn serve(&self, restart: impl FnOnce() -> u32) {
        if self.asked.exists() {
            let pid = restart();
            std::fs::remove_file(&self.asked).expect("the request");
            let part = self.done.with_extension("part");
            std::fs::write(&part, pid.to_string()).expect("an answer");
            std::fs::rename(&part, &self.done).expect("an answer");
        }
    }
}

/// The swarm until it ends. `restart` gives the new process id.
fn run(swarm: &mut Process, restarts: &Restarts, mut restart: impl FnMut() -> u32) {
    while swarm.is_running() {
        restarts.serve(&mut restart);
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = swarm.log();
    {
        use std::io::Write;
        // Printed for the reader of the test's log.
        let _ = writeln!(std::io::stderr(), "{said}");
    }
    assert!(said.contains("each ordered once"), "{said}");
    assert_eq!(said.matches("bridge restarted").count(), 2, "{said}");
}

fn swarm(cluster: &Cluster, link: SocketAddr, pid: u32, restarts: &Restarts) -> Command {
    let (ca, key) = authority(cluster);
    let mut command = Command::new(binary("swarm"));
    command.arg("--link").arg(link.to_string()).arg("--ca").arg(ca).arg("--ca-key").arg(key);
    command.arg("--kubeconfig").arg(&cluster.kubectl.kubeconfig).arg("--pid").arg(pid.to_string());
    command.args(["--nodes", "100", "--idle", "1", "--pods", "0", "--prefix", &cluster.kubectl.namespace]);
    command.args(["--job-concurrency", "10", "--job-fails", "4", "--job-offline", "10", "--job-seconds", "1"]);
    command.arg("--job-deadline").arg(deadline()).arg("--job-restart").arg(restarts.command());
    command
}

/// Seconds until which nodes that stay away are waited for; the others have to be done by then.
fn deadline() -> String {
    let patience: u64 = std::env::var("TEST_PATIENCE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    (70 * patience).to_string()
}

fn none_panicked(log: &str) {
    let panic = log.lines().find(|line| line.contains("panic at") || line.contains("panicked"));
    assert_eq!(panic, None);
}

#[test]
fn s17_a_job_ends_rightly_over_two_bridges_that_are_killed() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("jobs-two");
    define(&cluster);
    let links = [free_address(), free_address()];
    let mut bridges = [replica(&cluster, links[0], 0), replica(&cluster, links[1], 1)];
    let restarts = Restarts::new(cluster.folder());
    let mut command = swarm(&cluster, links[0], bridges[0].pid(), &restarts);
    command.arg("--other-link").arg(links[1].to_string()).arg("--spread");
    let mut swarm = Process::start(&mut command, &cluster.folder().join("swarm.log"));
    let mut times = 0;
    run(&mut swarm, &restarts, || {
        // One after the other.
        let which = times % 2;
        times += 1;
        bridges[which].kill();
        bridges[which] = replica(&cluster, links[which], u16::try_from(which).unwrap_or_default());
        bridges[0].pid()
    });
    bridges.iter().for_each(|bridge| none_panicked(&bridge.log()));
}

#[test]
fn s17_a_job_ends_rightly_over_the_end_of_a_bridge_with_its_api() {
    if !can_run() || std::env::var_os("TEST_KUBECONFIG").is_some() {
        return;
    }
    let mut cluster = Cluster::start_with("jobs-alone", &["--deleted-nodes-return"]);
    define(&cluster);
    let restarts = Restarts::new(cluster.folder());
    let state = cluster.folder().join("bridge");
    let pid = cluster.bridge.as_ref().expect("a bridge").pid();
    let mut command = Command::new(binary("swarm"));
    command.arg("--link").arg(cluster.listen.to_string()).arg("--ca").arg(state.join("pki/ca.crt"));
    command.arg("--ca-key").arg(state.join("pki/ca.key")).arg("--kubeconfig").arg(&cluster.kubectl.kubeconfig);
    command.arg("--pid").arg(pid.to_string());
    command.args(["--nodes", "100", "--idle", "1", "--pods", "0", "--prefix", "alone"]);
    command.args(["--job-concurrency", "10", "--job-fails", "4", "--job-offline", "10", "--job-seconds", "1"]);
    command.arg("--job-deadline").arg(deadline()).arg("--job-restart").arg(restarts.command());
    let mut swarm = Process::start(&mut command, &cluster.folder().join("swarm.log"));
    run(&mut swarm, &restarts, || {
        cluster.kill_bridge();
        cluster.start_bridge();
        cluster.bridge.as_ref().expect("a bridge").pid()
    });
    none_panicked(&cluster.log());
}
