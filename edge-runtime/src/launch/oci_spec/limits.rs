//! `linux.resources`: what of the container's requests and limits this node's cgroups can hold. Pure.

use serde_json::{Map, Value, json};

use super::input::Input;
use crate::launch::resources::container_values;
use crate::launch::spec_error::SpecError;
use crate::sys::cgroup::weight::weight_of_shares;
use crate::sys::cgroup::{CFS_PERIOD_US, CgroupValues};

/// Values of the container's cgroup. A container that has CPUs for itself is not throttled on them (K8s feature gate
/// `DisableCPUQuotaWithExclusiveCPUs`).
///
/// # Errors
/// A quantity is malformed.
pub(super) fn values(input: &Input) -> Result<CgroupValues, SpecError> {
    let values = container_values(input.pod, input.container)?;
    let exclusive = input.cpus.is_some_and(|given| given.exclusive);
    Ok(CgroupValues { cpu_quota_us: values.cpu_quota_us.filter(|_| !exclusive), ..values })
}

/// Omits a controller that the kernel lacks: the node's condition and an event report that.
pub(super) fn resources(input: &Input, privileged: bool) -> Result<Value, SpecError> {
    let values = values(input)?;
    let host = input.host;
    // Denying all leaves the OCI runtime's own list: null, zero, random, tty and their like.
    let mut devices = vec![json!({"allow": privileged, "access": "rwm"})];
    devices.extend(input.devices.iter().map(|granted| {
        let device = &granted.device;
        json!({"allow": true, "type": device.kind(), "major": device.major, "minor": device.minor, "access": granted.access})
    }));

    let mut unified = Map::new();
    let cpus = input.cpus.map(|given| given.cpus.to_string());
    let mut cpu = cpus.as_ref().map(|cpus| json!({"cpus": cpus}));
    if host.cpu_controller {
        // On v2 not as shares: runtimes of different age turn them into different weights.
        let weight = values.cpu_shares.filter(|_| host.cgroup_v2).map(weight_of_shares);
        unified.extend(weight.map(|weight| ("cpu.weight".to_owned(), weight.to_string().into())));
        let shares = values.cpu_shares.filter(|_| !host.cgroup_v2);
        let period = values.cpu_quota_us.map(|_| CFS_PERIOD_US);
        cpu = Some(json!({"shares": shares, "quota": values.cpu_quota_us, "period": period, "cpus": cpus}));
    }
    let swap = input.swap_limit.filter(|_| host.swap_accounting);
    let limit = values.memory_limit_bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let memory = limit.filter(|_| host.memory_controller).map(|limit| {
        // Memory and swap together.
        let both = swap.filter(|_| !host.cgroup_v2).map(|swap| limit.saturating_add(swap));
        json!({"limit": limit, "swap": both})
    });
    if host.memory_controller && host.cgroup_v2 {
        // A process killed for memory, even at the pod's limit, takes its container with it, as in the kubelet.
        unified.insert("memory.oom.group".to_owned(), "1".into());
        unified.extend(swap.map(|swap| ("memory.swap.max".to_owned(), swap.to_string().into())));
    }
    let unified = (!unified.is_empty()).then_some(unified);
    Ok(json!({"devices": devices, "cpu": cpu, "memory": memory, "unified": unified}))
}
