//! Flags of `standalone`, and what its parts read from them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use apiserver::ServiceRange;
use clap::Args;
use controller_manager::node_lifecycle::{MaskSizes, NodeIpam};
use controller_manager::{podautoscaler, workloads};

use crate::csi::CsiFlags;
use crate::flags::{self, NodeFlags};
use crate::page::PageFlags;
use crate::rules::RuleFlags;

/// Flags of `standalone`.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Folder of all state: the API's database, the authority, the administrator's kubeconfig.
    #[arg(long, value_name = "FOLDER")]
    pub state: PathBuf,
    /// Where nodes connect.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7443")]
    pub listen: SocketAddr,
    /// Where kubectl connects.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6443")]
    pub api_listen: SocketAddr,
    /// A name or address under which others reach this machine (repeatable). The first goes into join commands.
    #[arg(long, value_name = "NAME-OR-ADDRESS")]
    pub advertise: Vec<String>,
    /// Addresses that Services get: an IPv4 range.
    #[arg(long, value_name = "RANGE", default_value = "10.96.0.0/16", value_parser = ServiceRange::parse)]
    pub service_range: ServiceRange,
    /// Restore the copy of the state file if that file is damaged or missing. Changes since the copy are lost. While the bridge
    /// runs with this flag, nodes end no pod because it is missing in the copy: start it without the flag when the API is
    /// complete again.
    #[arg(long)]
    pub restore: bool,
    /// Maximum number of terminated pods to keep; the oldest of more are deleted. 0 keeps all.
    #[arg(long, value_name = "COUNT", default_value_t = workloads::Options::default().terminated_pod_gc_threshold)]
    pub terminated_pod_gc_threshold: usize,
    /// Evict pods from a node that is offline, or not ready, for this long: 90s, 30m, 2h, 7d. Replacements start on
    /// other nodes while the pods may still run there. Absent: pods are not evicted from such a node.
    #[arg(long, value_name = "DURATION", value_parser = evict_after)]
    pub evict_after: Option<Duration>,
    /// Maximum lifetime of service account tokens, whatever a TokenRequest asks for: 24h, 30d; at least 1h. Absent: 136
    /// years, as on Kubernetes.
    #[arg(long, value_name = "DURATION", value_parser = token_life)]
    pub service_account_max_token_expiration: Option<Duration>,
    #[command(flatten)]
    pub subnets: SubnetFlags,
    /// Give Services of type LoadBalancer without a class the addresses of the nodes where their ready pods are; a
    /// Service with the label or annotation `sampan.dev/site` gets those of the nodes with that label. Absent: such
    /// Services get no address.
    #[arg(long, value_name = "KIND", value_parser = ["nodes"])]
    pub load_balancer: Option<String>,
    #[command(flatten)]
    pub nodes: NodeFlags,
    #[command(flatten)]
    pub rules: RuleFlags,
    #[command(flatten)]
    pub csi: CsiFlags,
    #[command(flatten)]
    pub page: PageFlags,
    #[command(flatten)]
    pub autoscalers: AutoscalerFlags,
}

/// How HorizontalPodAutoscalers are looked after; called as the flags of kube-controller-manager are.
#[derive(Debug, Clone, Args)]
pub struct AutoscalerFlags {
    /// Interval between two evaluations of a HorizontalPodAutoscaler.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = flags::period)]
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Time for which the highest recommendation of a HorizontalPodAutoscaler counts before its target is scaled down.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flags::duration)]
    pub horizontal_pod_autoscaler_downscale_stabilization: Duration,
    /// Time after its start during which the CPU usage of a pod counts only while it is ready.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = flags::duration)]
    pub horizontal_pod_autoscaler_cpu_initialization_period: Duration,
}

impl AutoscalerFlags {
    pub(super) fn options(&self) -> podautoscaler::Options {
        podautoscaler::Options {
            sync_period: self.horizontal_pod_autoscaler_sync_period,
            downscale_stabilization: self.horizontal_pod_autoscaler_downscale_stabilization,
            cpu_initialization_period: self.horizontal_pod_autoscaler_cpu_initialization_period,
            ..podautoscaler::Options::default()
        }
    }
}

/// Which addresses the pods of nodes get, for what reads that from Node objects: nodes have subnets of their own.
#[derive(Debug, Clone, Args)]
pub struct SubnetFlags {
    /// Range from which each Node gets its `spec.podCIDRs`: one range, or one of each family with a comma between them.
    /// Absent: Nodes get none.
    #[arg(long, value_name = "RANGE")]
    pub cluster_cidr: Option<String>,
    /// Prefix length of the range of one Node [default: 24 for IPv4, 64 for IPv6].
    #[arg(long, value_name = "BITS", requires = "cluster_cidr")]
    pub node_cidr_mask_size: Option<u32>,
    /// Same as --node-cidr-mask-size, for IPv4.
    #[arg(long, value_name = "BITS", requires = "cluster_cidr")]
    pub node_cidr_mask_size_ipv4: Option<u32>,
    /// Same as --node-cidr-mask-size, for IPv6.
    #[arg(long, value_name = "BITS", requires = "cluster_cidr")]
    pub node_cidr_mask_size_ipv6: Option<u32>,
}

impl SubnetFlags {
    pub(super) fn ipam(&self, services: ServiceRange) -> anyhow::Result<Option<NodeIpam>> {
        let Some(ranges) = &self.cluster_cidr else { return Ok(None) };
        let masks = MaskSizes {
            any: self.node_cidr_mask_size,
            ipv4: self.node_cidr_mask_size_ipv4,
            ipv6: self.node_cidr_mask_size_ipv6,
        };
        NodeIpam::new(ranges, masks, Some(&services.to_string())).map(Some).map_err(anyhow::Error::msg)
    }
}

/// Bounds are those of kube-apiserver.
fn token_life(text: &str) -> anyhow::Result<Duration> {
    let life = flags::duration(text)?;
    anyhow::ensure!((3600..=1 << 32).contains(&life.as_secs()), "must be between 1h and 2^32 seconds");
    Ok(life)
}

fn evict_after(text: &str) -> anyhow::Result<Duration> {
    let after = flags::duration(text)?;
    // Seconds are signed 64-bit numbers in the API.
    anyhow::ensure!(i64::try_from(after.as_secs()).is_ok(), "is too long");
    Ok(after)
}
