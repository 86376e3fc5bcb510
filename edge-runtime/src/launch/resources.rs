//! Requests and limits as cgroup values, for a container and for the cgroups of pod and QoS class. Pure.
//!
//! Formulas of the kubelet (pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/qos/policy.go).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::spec_error::SpecError;
use crate::config::Reserved;
use crate::config::resources::Swap;
use crate::pod::qos::{QosClass, qos_class};
use crate::pod::record::ContainerKind;
use crate::pod::requests;
use crate::pod::spec::{containers_of, is_critical, lasting, with_kinds};
use crate::sys::cgroup::CgroupValues;
use crate::sys::host::HostFacts;

/// The kernel takes no shorter quota.
const MIN_QUOTA_US: i64 = 1000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// No limit on the processor.
pub const NO_QUOTA: i64 = -1;

/// `oom_score_adj` of what must die last, and first.
const GUARANTEED_OOM: i64 = -997;
/// OOM score of the process that holds a pod's shared pid namespace, that of containerd's pause process.
pub const PAUSE_OOM_SCORE_ADJ: i32 = -998;
const BEST_EFFORT_OOM: i64 = 1000;
/// Requests of a container, or of a pod as a whole. `None`: not set, which differs from zero.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    cpu_request: Option<i64>,
    cpu_limit: Option<i64>,
    memory_limit: Option<i64>,
}

/// Values of one container's cgroup.
///
/// A missing limit is that of the whole pod (K8s pkg/kubelet/kuberuntime, `getMemoryLimit`).
///
/// # Errors
/// A quantity is malformed.
pub fn container_values(pod: &Pod, container: &Container) -> Result<CgroupValues, SpecError> {
    let whole = whole(pod)?;
    let mut demand = demand(container.resources.as_ref())?;
    demand.cpu_limit = demand.cpu_limit.or(whole.cpu_limit);
    demand.memory_limit = demand.memory_limit.or(whole.memory_limit);
    Ok(values(demand.cpu_request.or(demand.cpu_limit), demand.cpu_limit, demand.memory_limit))
}

/// Values of the pod's cgroup: its requests, and its limits if all containers have one.
///
/// # Errors
/// A quantity is malformed.
pub fn pod_values(pod: &Pod) -> Result<CgroupValues, SpecError> {
    if qos_class(pod) == QosClass::BestEffort {
        return Ok(values(None, None, None));
    }
    whole(pod)?;
    for container in containers_of(pod) {
        demand(container.resources.as_ref())?;
    }
    let limit = |resource| requests::enforced_limit(pod, resource);
    Ok(values(Some(requests::pod_request(pod, "cpu")), limit("cpu"), limit("memory")))
}

/// The memory limit of the pod's cgroup in bytes, if it has one.
pub fn pod_memory_limit(pod: &Pod) -> Option<u64> {
    pod_values(pod).ok()?.memory_limit_bytes
}

/// Values for all pods of the node together: what is allocatable.
pub fn node_values(facts: &HostFacts, reserved: &Reserved) -> CgroupValues {
    let milli = (u64::from(facts.cpus) * 1000).saturating_sub(*reserved.cpu_millis);
    CgroupValues {
        cpu_shares: Some((milli * 1024 / 1000).clamp(MIN_SHARES.unsigned_abs(), MAX_SHARES.unsigned_abs())),
        // Also without a reserve: a former configuration may have had one.
        memory_limit_bytes: Some(facts.memory_bytes.saturating_sub(*reserved.memory_bytes)).filter(|bytes| *bytes > 0),
        ..CgroupValues::default()
    }
}

/// Swap that a container may use beside its memory, in bytes; none: as much as there is
/// (K8s pkg/kubelet/kuberuntime, `swapConfigurationHelper`).
pub fn swap_limit(pod: &Pod, container: &Container, swap: Swap, memory: u64, swap_total: u64) -> Option<i64> {
    let request = memory_request(container);
    let limit = demand(container.resources.as_ref()).ok().and_then(|demand| demand.memory_limit);
    match swap {
        Swap::Unlimited => None,
        Swap::Limited if qos_class(pod) == QosClass::Burstable && request > 0 && limit != Some(request) => {
            i64::try_from(i128::from(swap_total) * i128::from(request) / i128::from(memory.max(1))).ok()
        }
        Swap::None | Swap::Limited => Some(0),
    }
}

/// `oom_score_adj` of a container, by QoS class, priority and share of `memory_capacity` bytes.
pub fn oom_score_adj(pod: &Pod, is_static: bool, container: &Container, memory_capacity: u64) -> i32 {
    i32::try_from(oom_score(pod, is_static, container, memory_capacity)).unwrap_or(0)
}

fn oom_score(pod: &Pod, is_static: bool, container: &Container, memory_capacity: u64) -> i64 {
    let Some(spec) = &pod.spec else { return BEST_EFFORT_OOM };
    if is_critical(pod, is_static) && spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return GUARANTEED_OOM;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => return GUARANTEED_OOM,
        QosClass::BestEffort => return BEST_EFFORT_OOM,
        QosClass::Burstable => {}
    }
    let spare = spare_memory(spec);
    let score = |request: i64| {
        let request = request.saturating_add(spare);
        1000 - i64::try_from(1000 * i128::from(request) / i128::from(memory_capacity.max(1))).unwrap_or(1000)
    };
    let mut adjust = score(memory_request(container));
    if with_kinds(spec).any(|(one, kind)| kind == ContainerKind::Sidecar && one.name == container.name) {
        // A sidecar outlives the containers that it serves.
        let least = spec.containers.iter().map(memory_request).min().unwrap_or(0);
        adjust = adjust.min(score(least));
    }
    adjust.clamp(1000 + GUARANTEED_OOM, BEST_EFFORT_OOM - 1)
}

fn values(cpu_request: Option<i64>, cpu_limit: Option<i64>, memory_limit: Option<i64>) -> CgroupValues {
    let shares = (i128::from(cpu_request.unwrap_or(0)) * 1024 / 1000).clamp(MIN_SHARES.into(), MAX_SHARES.into());
    let shares = u64::try_from(shares).unwrap_or(MIN_SHARES.unsigned_abs());
    CgroupValues {
        cpu_shares: Some(shares),
        cpu_quota_us: cpu_limit.filter(|milli| *milli > 0).map(|milli| milli.saturating_mul(100).max(MIN_QUOTA_US)),
        memory_limit_bytes: memory_limit.filter(|bytes| *bytes > 0).and_then(|bytes| u64::try_from(bytes).ok()),
        pids_limit: None,
    }
}

/// Demand of the pod as a whole, from `spec.resources`.
fn whole(pod: &Pod) -> Result<Demand, SpecError> {
    demand(pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()))
}

fn demand(resources: Option<&ResourceRequirements>) -> Result<Demand, SpecError> {
    let Some(resources) = resources else { return Ok(Demand::default()) };
    let read = |list: &Option<BTreeMap<String, Quantity>>, list_name: &str, resource: &str| {
        let Some(given) = list.as_ref().and_then(|list| list.get(resource)) else { return Ok(None) };
        let field = || format!("resources.{list_name}.{resource}");
        let amount = requests::amount(resource, given);
        amount.map(Some).ok_or_else(|| SpecError::Quantity { field: field(), value: given.0.clone() })
    };
    Ok(Demand {
        cpu_request: read(&resources.requests, "requests", "cpu")?,
        cpu_limit: read(&resources.limits, "limits", "cpu")?,
        memory_limit: read(&resources.limits, "limits", "memory")?,
    })
}

fn memory_request(container: &Container) -> i64 {
    requests::request(container.resources.as_ref(), "memory").unwrap_or(0)
}

/// Share of each container in what the pod as a whole requests beyond its containers.
fn spare_memory(spec: &PodSpec) -> i64 {
    let (count, sum) = lasting(spec)
        .fold((0i64, 0i64), |(count, sum), container| (count + 1, sum.saturating_add(memory_request(container))));
    let whole = requests::request(spec.resources.as_ref(), "memory").unwrap_or(0);
    whole.saturating_sub(sum).max(0) / count.max(1)
}

#[cfg(test)]
mod tests;
