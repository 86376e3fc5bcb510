//! `swarm`: thousands of nodes in one process, for measuring one bridge. Each is a real TLS connection with a
//! certificate of its own, a real websocket and the real session core; only the containers are missing: a pod it
//! receives is reported Running and Ready at once. `docs/scale.md` tells how it is used and what came out. The bridge
//! must run with `--deleted-nodes-return`: these nodes have never joined.
//!
//! | module | owns |
//! |---|---|
//! | `identity` | certificates in bulk, from the bridge's authority |
//! | `wire` | one connection: TCP from one of many loopback addresses, TLS, websocket; bytes are counted |
//! | `node` | one node: session, memory, reports, reconnects |
//! | `sensors` | the devices behind a node |
//! | `orders` | what a node does of the orders of jobs |
//! | `fleet` | all nodes, and what they counted together |
//! | `process` | memory and CPU time of the bridge, from /proc |
//! | `phases` | what is measured, one after the other |
//! | `shared_object` | the phase of one large ConfigMap that all nodes hold |
//! | `devices` | the phase of devices behind all nodes |
//! | `apart` | the phase of pods that keep each other off |
//! | `steps` | lengths of the steps of the bridge's thread |
//! | `jobs` | the phase of one fleet job for all nodes |

mod apart;
mod devices;
mod fleet;
mod identity;
mod jobs;
mod node;
mod orders;
mod phases;
mod process;
mod sensors;
mod shared_object;
mod steps;
mod wire;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// What to measure.
#[derive(Debug, Clone, Parser)]
#[command(name = "swarm", about = "Thousands of nodes without containers, to measure a bridge with")]
struct Arguments {
    /// The bridge's link.
    #[arg(long, default_value = "127.0.0.1:7443")]
    link: SocketAddr,
    /// A second bridge to which nodes turn when the first does not answer.
    #[arg(long)]
    other_link: Option<SocketAddr>,
    /// PEM of the bridge's authority.
    #[arg(long)]
    ca: PathBuf,
    /// PEM of its key.
    #[arg(long)]
    ca_key: PathBuf,
    /// How the API is reached, for pods.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Process id of the bridge.
    #[arg(long)]
    pid: u32,
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Nodes that connect at the same time at the start.
    #[arg(long, default_value_t = 200)]
    ramp: usize,
    /// Seconds of quiet that are measured.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Pods that are created one by one for the latency.
    #[arg(long, default_value_t = 300)]
    pods: usize,
    /// Pods that are created per second.
    #[arg(long, default_value_t = 10)]
    rate: u32,
    /// Pods that each node has from the start.
    #[arg(long, default_value_t = 0)]
    pods_per_node: usize,
    /// Nodes that stop to read for the second half of the pods.
    #[arg(long, default_value_t = 0)]
    stuck: usize,
    /// Command that restarts the bridge and prints its new process id: the reconnect storm.
    #[arg(long)]
    restart: Option<String>,
    /// KiB of a ConfigMap that a pod on every node names, and that is changed once; 0: none.
    #[arg(long, default_value_t = 0)]
    shared_kib: usize,
    /// Devices that each node has, whose definitions have to be there; 0: none.
    #[arg(long, default_value_t = 0)]
    devices_per_node: usize,
    /// Seconds between two values of a device.
    #[arg(long, default_value_t = 60)]
    devices_report: u64,
    /// Half of the nodes begin at the other bridge.
    #[arg(long)]
    spread: bool,
    /// Nodes that a fleet job has under way at the same time, whose definitions have to be there; 0: no job.
    #[arg(long, default_value_t = 0)]
    job_concurrency: usize,
    /// Percent of the nodes at which it fails.
    #[arg(long, default_value_t = 2)]
    job_fails: usize,
    /// Percent of the nodes that are offline when it begins. Half of them come back, the others not before its deadline.
    #[arg(long, default_value_t = 10)]
    job_offline: usize,
    /// How long a node works for it, on average.
    #[arg(long, default_value_t = 2)]
    job_seconds: u64,
    /// Seconds until its deadline.
    #[arg(long, default_value_t = 120)]
    job_deadline: u64,
    /// Command that restarts bridges in the middle of it, once for each of these shares of nodes that are done, and prints the
    /// process id of the one that is measured.
    #[arg(long)]
    job_restart: Option<String>,
    #[arg(long, value_delimiter = ',', default_value = "30,60")]
    job_restart_at: Vec<usize>,
    /// Replicas of a Deployment that keep each other off, for the first 1,000 nodes; 0: none.
    #[arg(long, default_value_t = 0)]
    apart: usize,
    /// The file in which the bridge says how long its steps are: its environment names it as `SAMPAN_STEPS`.
    #[arg(long)]
    steps: Option<PathBuf>,
    /// Beginning of the nodes' names.
    #[arg(long, default_value = "swarm")]
    prefix: String,
}

fn main() -> anyhow::Result<()> {
    // Fails only when one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, phases::run(Arguments::parse()))
}
