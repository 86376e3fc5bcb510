//! `linux.resources`: what of the container's requests and limits this node's cgroups can hold. Pure.

use std::collections::HashMap;

use oci_spec::runtime::{LinuxCpu, LinuxDeviceCgroup, LinuxDeviceType, LinuxMemory, LinuxResources};

use super::{Input, SpecError};
use crate::launch::resources::container_values;
use crate::sys::cgroup::CFS_PERIOD_US;
use crate::sys::cgroup::weight::weight_of_shares;

/// A controller that the kernel lacks is left out: the node's condition and an event say so.
pub(super) fn resources(input: &Input, privileged: bool) -> Result<LinuxResources, SpecError> {
    let values = container_values(input.pod, input.container)?;
    let host = input.host;
    let mut resources = LinuxResources::default();
    let granted = input.devices.iter().map(|granted| {
        let mut rule = LinuxDeviceCgroup::default();
        rule.set_allow(true);
        rule.set_typ(Some(if granted.device.block { LinuxDeviceType::B } else { LinuxDeviceType::C }));
        rule.set_major(Some(granted.device.major));
        rule.set_minor(Some(granted.device.minor));
        rule.set_access(Some(granted.access.clone()));
        rule
    });
    resources.set_devices(Some(std::iter::once(all_devices(privileged)).chain(granted).collect()));

    let mut unified = HashMap::new();
    if host.cpu_controller {
        let mut cpu = LinuxCpu::default();
        if host.cgroup_v2 {
            // Not as shares: runtimes of different age turn them into different weights.
            let weight = values.cpu_shares.map(weight_of_shares);
            unified.extend(weight.map(|weight| ("cpu.weight".to_owned(), weight.to_string())));
        } else {
            cpu.set_shares(values.cpu_shares);
        }
        if let Some(quota) = values.cpu_quota_us {
            cpu.set_quota(Some(quota));
            cpu.set_period(Some(CFS_PERIOD_US));
        }
        resources.set_cpu(Some(cpu));
    }
    if host.memory_controller
        && let Some(limit) = values.memory_limit_bytes.and_then(|bytes| i64::try_from(bytes).ok())
    {
        let mut memory = LinuxMemory::default();
        memory.set_limit(Some(limit));
        if host.swap_accounting
            && !host.cgroup_v2
            && let Some(swap) = input.swap_limit
        {
            // Memory and swap together.
            memory.set_swap(Some(limit.saturating_add(swap)));
        }
        resources.set_memory(Some(memory));
    }
    if host.memory_controller && host.cgroup_v2 {
        // One process killed for memory, be it the pod's, takes its container with it, as the kubelet has it.
        unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    if host.memory_controller
        && host.cgroup_v2
        && host.swap_accounting
        && let Some(swap) = input.swap_limit
    {
        unified.insert("memory.swap.max".to_owned(), swap.to_string());
    }
    resources.set_unified((!unified.is_empty()).then_some(unified));
    Ok(resources)
}

/// Denying all leaves the OCI runtime's own list: null, zero, random, tty and their like.
fn all_devices(allow: bool) -> LinuxDeviceCgroup {
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(allow);
    rule.set_access(Some("rwm".to_owned()));
    rule
}
