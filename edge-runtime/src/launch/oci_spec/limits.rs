//! `linux.resources`: what of the container's requests and limits this node's cgroups can hold. Pure.

use std::collections::HashMap;

use oci_spec::runtime::{LinuxCpu, LinuxDeviceCgroup, LinuxMemory, LinuxPids, LinuxResources};

use super::{Input, SpecError};
use crate::launch::resources::{CFS_PERIOD_US, container_values};

/// A controller that the kernel lacks is left out: the node's condition and an event say so.
pub(super) fn resources(input: &Input, privileged: bool) -> Result<LinuxResources, SpecError> {
    let values = container_values(input.container)?;
    let host = input.host;
    let mut resources = LinuxResources::default();
    resources.set_devices(Some(vec![all_devices(privileged)]));

    let mut unified = HashMap::new();
    if host.cpu_controller {
        let mut cpu = LinuxCpu::default();
        if host.cgroup_v2 {
            // Not as shares: runtimes of different age turn them into different weights.
            unified.insert("cpu.weight".to_owned(), values.cpu_weight.to_string());
        } else {
            cpu.set_shares(Some(values.cpu_shares));
        }
        if let Some(quota) = values.cpu_quota_us {
            cpu.set_quota(Some(quota));
            cpu.set_period(Some(CFS_PERIOD_US));
        }
        resources.set_cpu(Some(cpu));
    }
    if host.memory_controller
        && let Some(limit) = values.memory_limit
    {
        let mut memory = LinuxMemory::default();
        memory.set_limit(Some(limit));
        if host.swap_accounting {
            // Memory and swap together: the container gets no swap.
            memory.set_swap(Some(limit));
        }
        resources.set_memory(Some(memory));
        if host.cgroup_v2 {
            // One process killed for memory takes the container with it, as the kubelet has it.
            unified.insert("memory.oom.group".to_owned(), "1".to_owned());
        }
    }
    if host.pids_controller
        && let Some(limit) = input.pids_limit
    {
        let mut pids = LinuxPids::default();
        pids.set_limit(limit);
        resources.set_pids(Some(pids));
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
