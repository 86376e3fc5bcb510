//! Requests and limits as cgroup values, for a container and for the cgroups of pod and QoS class. Pure.
//!
//! Formulas of the kubelet (pkg/kubelet/cm/helpers_linux.go, pkg/kubelet/qos/policy.go).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::oci_spec::SpecError;
use crate::pod::qos::{QosClass, qos_class};
use crate::sys::quantity;

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

/// The kernel takes no shorter quota.
const MIN_QUOTA_US: i64 = 1000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;

/// `oom_score_adj` of what must die last, and first.
const GUARANTEED_OOM: i64 = -997;
const BEST_EFFORT_OOM: i64 = 1000;
/// `SystemCriticalPriority`: pods at or above it are critical.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// What a container, or a pod as a whole, asks for. `None`: not asked, which is not zero.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    cpu_request: Option<i64>,
    cpu_limit: Option<i64>,
    memory_limit: Option<i64>,
}

/// Values of one container's cgroup.
///
/// # Errors
/// A quantity is malformed.
pub fn container_values(container: &Container) -> Result<CgroupValues, SpecError> {
    let demand = demand(container)?;
    Ok(values(demand.cpu_request.or(demand.cpu_limit), demand.cpu_limit, demand.memory_limit))
}

/// Values of the pod's cgroup: sums over its containers, or the largest init container. Limits apply only where
/// every container has one.
///
/// # Errors
/// A quantity is malformed.
pub fn pod_values(pod: &Pod) -> Result<CgroupValues, SpecError> {
    let Some(spec) = &pod.spec else { return Ok(values(None, None, None)) };
    if qos_class(pod) == QosClass::BestEffort {
        return Ok(values(None, None, None));
    }
    let request = total(spec, |d| Some(d.cpu_request.or(d.cpu_limit).unwrap_or(0)))?;
    Ok(values(request, total(spec, |d| d.cpu_limit)?, total(spec, |d| d.memory_limit)?))
}

/// `oom_score_adj` of a container, by QoS class, priority and share of `memory_capacity` bytes.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity: u64) -> i32 {
    i32::try_from(oom_score(pod, container, memory_capacity)).unwrap_or(0)
}

fn oom_score(pod: &Pod, container: &Container, memory_capacity: u64) -> i64 {
    let Some(spec) = &pod.spec else { return BEST_EFFORT_OOM };
    let critical = spec.priority.is_some_and(|p| p >= CRITICAL_PRIORITY) || is_static(pod);
    if critical && spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return GUARANTEED_OOM;
    }
    match qos_class(pod) {
        QosClass::Guaranteed => return GUARANTEED_OOM,
        QosClass::BestEffort => return BEST_EFFORT_OOM,
        QosClass::Burstable => {}
    }
    let score = |request: i64| {
        1000 - i64::try_from(1000 * i128::from(request) / i128::from(memory_capacity.max(1))).unwrap_or(1000)
    };
    let mut adjust = score(memory_request(container));
    let is_sidecar = spec.init_containers.iter().flatten().any(|c| c.name == container.name)
        && container.restart_policy.as_deref() == Some("Always");
    if is_sidecar {
        // A sidecar outlives the containers that it serves.
        let least = spec.containers.iter().map(memory_request).min().unwrap_or(0);
        adjust = adjust.min(score(least));
    }
    adjust.clamp(1000 + GUARANTEED_OOM, BEST_EFFORT_OOM - 1)
}

fn is_static(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.and_then(|a| a.get("kubernetes.io/config.source")).is_some_and(|source| source != "api")
}

/// Sum over app containers and sidecars, or what an init container needs beside the sidecars before it, whichever
/// is more. `None` if one of them has none.
fn total(spec: &PodSpec, pick: impl Fn(&Demand) -> Option<i64>) -> Result<Option<i64>, SpecError> {
    let (mut sidecars, mut most_init) = (Some(0i64), Some(0i64));
    for container in spec.init_containers.iter().flatten() {
        let own = pick(&demand(container)?);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = add(sidecars, own);
            most_init = most_init.zip(sidecars).map(|(a, b)| a.max(b));
        } else {
            most_init = most_init.zip(add(sidecars, own)).map(|(a, b)| a.max(b));
        }
    }
    let mut sum = sidecars;
    for container in &spec.containers {
        sum = add(sum, pick(&demand(container)?));
    }
    Ok(sum.zip(most_init).map(|(sum, init)| sum.max(init)))
}

fn add(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a?.checked_add(b?)
}

fn values(cpu_request: Option<i64>, cpu_limit: Option<i64>, memory_limit: Option<i64>) -> CgroupValues {
    let shares = (i128::from(cpu_request.unwrap_or(0)) * 1024 / 1000).clamp(MIN_SHARES.into(), MAX_SHARES.into());
    let shares = u64::try_from(shares).unwrap_or(MIN_SHARES.unsigned_abs());
    CgroupValues {
        cpu_shares: shares,
        cpu_weight: weight(shares),
        cpu_quota_us: cpu_limit.filter(|milli| *milli > 0).map(|milli| milli.saturating_mul(100).max(MIN_QUOTA_US)),
        memory_limit: memory_limit.filter(|bytes| *bytes > 0),
    }
}

/// `cpu.weight` for `cpu.shares`, by the curve through (2, 1), (1024, 100) and (262144, 10000) that runc has used
/// since 1.3.2. Computed here because runtimes of different age differ.
pub fn weight(shares: u64) -> u64 {
    if shares <= 2 {
        return 1;
    }
    if shares >= 262_144 {
        return 10_000;
    }
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    {
        let log = (shares as f64).log2();
        10f64.powf((log * log + 125.0 * log) / 612.0 - 7.0 / 34.0).ceil() as u64
    }
}

fn demand(container: &Container) -> Result<Demand, SpecError> {
    let Some(resources) = &container.resources else { return Ok(Demand::default()) };
    let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
    Ok(Demand {
        cpu_request: read(requests, "requests", "cpu", quantity::milli)?,
        cpu_limit: read(limits, "limits", "cpu", quantity::milli)?,
        memory_limit: read(limits, "limits", "memory", quantity::value)?,
    })
}

fn memory_request(container: &Container) -> i64 {
    let resources = container.resources.as_ref();
    let requests = resources.and_then(|r| r.requests.as_ref());
    let limits = resources.and_then(|r| r.limits.as_ref());
    let of = |list| read(list, "", "memory", quantity::value).ok().flatten();
    of(requests).or_else(|| of(limits)).unwrap_or(0)
}

fn read(
    list: Option<&BTreeMap<String, Quantity>>,
    list_name: &str,
    resource: &str,
    parse: impl Fn(&str) -> Option<i64>,
) -> Result<Option<i64>, SpecError> {
    let Some(Quantity(text)) = list.and_then(|l| l.get(resource)) else { return Ok(None) };
    let field = || format!("resources.{list_name}.{resource}");
    parse(text).map(Some).ok_or_else(|| SpecError::Quantity { field: field(), value: text.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(containers: Value, init: Value) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": init}}),
        )
        .unwrap()
    }

    fn app(requests: Value, limits: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
    }

    fn first(pod: &Pod) -> &Container {
        &pod.spec.as_ref().unwrap().containers[0]
    }

    #[test]
    fn container_values_as_the_kubelet_computes_them() {
        let p = pod(json!([app(json!({"cpu": "250m"}), json!({"cpu": "1500m", "memory": "64Mi"}))]), json!([]));
        let got = container_values(first(&p)).unwrap();
        assert_eq!((got.cpu_shares, got.cpu_quota_us, got.memory_limit), (256, Some(150_000), Some(64 << 20)));
        let none = pod(json!([{"name": "c"}]), json!([]));
        let got = container_values(first(&none)).unwrap();
        assert_eq!((got.cpu_shares, got.cpu_weight, got.cpu_quota_us, got.memory_limit), (2, 1, None, None));
        let limit_only = pod(json!([app(json!({}), json!({"cpu": "5m"}))]), json!([]));
        let got = container_values(first(&limit_only)).unwrap();
        assert_eq!((got.cpu_shares, got.cpu_quota_us), (5, Some(1000)));
        let bad = pod(json!([app(json!({"cpu": "lots"}), json!({}))]), json!([]));
        assert!(container_values(first(&bad)).unwrap_err().to_string().contains("lots"));
    }

    #[test]
    fn weights_follow_the_curve() {
        assert_eq!([2, 102, 512, 1024, 2000, 262_144].map(weight), [1, 17, 59, 100, 170, 10_000]);
        assert!((2..5000).all(|s| weight(s) <= weight(s + 1)));
    }

    #[test]
    fn pod_limits_need_a_limit_in_every_container() {
        let limited = app(json!({"cpu": "100m"}), json!({"cpu": "200m", "memory": "10Mi"}));
        let open = app(json!({"cpu": "100m"}), json!({}));
        let both = pod_values(&pod(json!([limited, limited]), json!([]))).unwrap();
        assert_eq!((both.cpu_shares, both.cpu_quota_us, both.memory_limit), (204, Some(40_000), Some(20 << 20)));
        let half = pod_values(&pod(json!([limited, open]), json!([]))).unwrap();
        assert_eq!((half.cpu_shares, half.cpu_quota_us, half.memory_limit), (204, None, None));
        let init = app(json!({"cpu": "1"}), json!({"cpu": "1", "memory": "50Mi"}));
        let with_init = pod_values(&pod(json!([limited]), json!([init]))).unwrap();
        assert_eq!((with_init.cpu_shares, with_init.memory_limit), (1024, Some(50 << 20)));
        let best_effort = pod_values(&pod(json!([{"name": "c"}]), json!([]))).unwrap();
        assert_eq!((best_effort.cpu_shares, best_effort.memory_limit), (2, None));
    }

    #[test]
    fn oom_scores_by_class() {
        let gib = 1u64 << 30;
        let score = |requests, limits| {
            let p = pod(json!([app(requests, limits)]), json!([]));
            oom_score_adj(&p, first(&p), 4 * gib)
        };
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(score(full.clone(), full), -997);
        assert_eq!(score(json!({}), json!({})), 1000);
        assert_eq!(score(json!({"memory": "1Gi"}), json!({})), 750);
        assert_eq!(score(json!({"cpu": "1"}), json!({})), 999);
        assert_eq!(score(json!({"memory": "8Gi"}), json!({})), 3);
    }
}
