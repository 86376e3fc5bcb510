//! Requests and limits as cgroup values, for a container and for the cgroups of pod and QoS class. Pure.
//!
//! Formulas of the kubelet (pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/qos/policy.go).

use k8s_openapi::api::core::v1::{Container, Pod};

use super::oci_spec::SpecError;

/// Values in cgroup v1 terms; `weight` is the v2 counterpart of `shares`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupValues {
    /// `cpu.shares`, 2 to 262144.
    pub cpu_shares: u64,
    /// `cpu.weight`, 1 to 10000.
    pub cpu_weight: u64,
    /// `cpu.cfs_quota_us` over [`CFS_PERIOD_US`]; none: unlimited.
    pub cpu_quota_us: Option<i64>,
    /// `memory.limit_in_bytes` / `memory.max`; none: unlimited.
    pub memory_limit: Option<i64>,
}

/// `cpu.cfs_period_us`.
pub const CFS_PERIOD_US: u64 = 100_000;

/// Values of one container's cgroup.
pub fn container_values(container: &Container) -> Result<CgroupValues, SpecError> {
    let _ = container;
    Ok(CgroupValues::default())
}

/// Values of the pod's cgroup: sums over its containers, or the largest init container.
pub fn pod_values(pod: &Pod) -> Result<CgroupValues, SpecError> {
    let _ = pod;
    Ok(CgroupValues::default())
}

/// Cgroup of a pod below `parent` (`/kubepods`): `parent/[burstable|besteffort]/podUID`.
pub fn pod_cgroup(parent: &str, pod: &Pod) -> String {
    let _ = pod;
    parent.to_owned()
}

/// `oom_score_adj` of a container, by QoS class, priority and share of `memory_capacity` bytes.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: u64) -> i32 {
    let _ = (pod, container, memory_capacity);
    0
}
