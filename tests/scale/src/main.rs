//! `swarm`: thousands of nodes in one process, for measuring one bridge. Each is a real TLS connection with its own
//! certificate, a real websocket and the real session core; only the containers are missing: a received pod is reported
//! Running and Ready at once. `docs/scale.md` has its use and the results. The bridge must run with
//! `--deleted-nodes-return`: these nodes have never joined.
//!
//! | module | owns |
//! |---|---|
//! | `identity` | certificates in bulk, from the bridge's authority |
//! | `wire` | one connection: TCP from one of many loopback addresses, TLS, websocket; bytes are counted |
//! | `node` | one node: session, memory, reports, reconnects |
//! | `sensors` | the devices of a node |
//! | `orders` | a node's execution of the orders of jobs |
//! | `fleet` | all nodes, and their common counters |
//! | `process` | memory and CPU time of the bridge, from /proc |
//! | `phases` | the phases of a measurement, in order |
//! | `shared_object` | the phase of one large ConfigMap that all nodes hold |
//! | `devices` | the phase of devices at all nodes |
//! | `apart` | the phase of pods with anti-affinity |
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
    /// Address of the bridge's link.
    #[arg(long, default_value = "127.0.0.1:7443")]
    link: SocketAddr,
    /// Address of a second bridge, which nodes use if the first does not answer.
    #[arg(long)]
    other_link: Option<SocketAddr>,
    /// PEM of the bridge's authority.
    #[arg(long)]
    ca: PathBuf,
    /// PEM of its key.
    #[arg(long)]
    ca_key: PathBuf,
    /// Kubeconfig for the API, to create pods.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Process id of the bridge.
    #[arg(long)]
    pid: u32,
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Number of nodes that connect at the same time at the start.
    #[arg(long, default_value_t = 200)]
    ramp: usize,
    /// Seconds of idle time to measure.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Number of pods that are created one by one for the latency.
    #[arg(long, default_value_t = 300)]
    pods: usize,
    /// Pods that are created per second.
    #[arg(long, default_value_t = 10)]
    rate: u32,
    /// Number of pods of each node from the start.
    #[arg(long, default_value_t = 0)]
    pods_per_node: usize,
    /// Number of nodes that stop reading for the second half of the pods.
    #[arg(long, default_value_t = 0)]
    stuck: usize,
    /// Command that restarts the bridge and prints its new process id: the reconnect storm.
    #[arg(long)]
    restart: Option<String>,
    /// Size in KiB of a ConfigMap that a pod on every node names, and that is changed once; 0: none.
    #[arg(long, default_value_t = 0)]
    shared_kib: usize,
    /// Number of devices of each node; their definitions must exist; 0: none.
    #[arg(long, default_value_t = 0)]
    devices_per_node: usize,
    /// Seconds between two values of a device.
    #[arg(long, default_value_t = 60)]
    devices_report: u64,
    /// Start half of the nodes at the other bridge.
    #[arg(long)]
    spread: bool,
    /// Concurrency of a fleet job; the definitions of jobs must exist; 0: no job.
    #[arg(long, default_value_t = 0)]
    job_concurrency: usize,
    /// Percentage of the nodes at which the job fails.
    #[arg(long, default_value_t = 2)]
    job_fails: usize,
    /// Percentage of the nodes that are offline when the job begins. Half of them reconnect, the others not before its
    /// deadline.
    #[arg(long, default_value_t = 10)]
    job_offline: usize,
    /// Average duration of a node's work for the job.
    #[arg(long, default_value_t = 2)]
    job_seconds: u64,
    /// Seconds until the job's deadline.
    #[arg(long, default_value_t = 120)]
    job_deadline: u64,
    /// Command that restarts bridges while the job runs, once for each of these shares of finished nodes, and prints
    /// the process id of the measured one.
    #[arg(long)]
    job_restart: Option<String>,
    #[arg(long, value_delimiter = ',', default_value = "30,60")]
    job_restart_at: Vec<usize>,
    /// Replicas of a Deployment with anti-affinity, for the first 1,000 nodes; 0: none.
    #[arg(long, default_value_t = 0)]
    apart: usize,
    /// File into which the bridge writes the lengths of its steps: its environment names it as `SAMPAN_STEPS`.
    #[arg(long)]
    steps: Option<PathBuf>,
    /// Prefix of the nodes' names.
    #[arg(long, default_value = "swarm")]
    prefix: String,
}

fn main() -> anyhow::Result<()> {
    // It fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, phases::run(Arguments::parse()))
}
