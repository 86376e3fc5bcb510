//! Converts a pod's container to its OCI runtime configuration. Pure: looked-up facts are inputs.
//!
//! Follows the kubelet's requests to a CRI runtime and their implementation in containerd, so that a container has the
//! same environment as on any other node.

mod capabilities;
mod host;
mod input;
mod limits;
mod mounts;
mod scope;
mod seccomp;
#[cfg(test)]
mod tests;

pub use input::{GrantedDevice, HostDevice, HostFacts, Input, PidNamespace, Seccomp};

use input::{security, text};

use super::spec_error::SpecError;
use crate::net::namespaces::IDS;
use crate::pod::spec::is_privileged;
use serde_json::{Map, Value, json};

/// Hidden from a container, as the kubelet asks for (pkg/securitycontext).
const MASKED_PATHS: &str = "
    /proc/asound /proc/acpi /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list
    /proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware /sys/devices/virtual/powercap";

/// Not writable in a container.
const READ_ONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The configuration to be written as `config.json` of the bundle.
///
/// # Errors
/// The pod asks for what cannot be expressed; names the field.
pub fn build(input: &Input) -> Result<Value, SpecError> {
    if input.argv.is_empty() {
        return Err(SpecError::NoCommand);
    }
    let read_only = security(input.container).and_then(|s| s.read_only_root_filesystem).unwrap_or(false);
    Ok(without_nulls(json!({
        // The newest that runc 1.1, crun and youki all take.
        "ociVersion": "1.0.2",
        "root": {"path": text(&input.rootfs), "readonly": read_only},
        "mounts": mounts::mounts(input)?,
        "process": process(input)?,
        "linux": linux(input)?,
        "annotations": annotations(input)?,
    })))
}

fn annotations(input: &Input) -> Result<Value, SpecError> {
    let mut all = Map::new();
    all.extend(input.annotations.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
    if input.systemd {
        all.extend(scope::annotations(input)?.into_iter().map(|(name, value)| (name, value.into())));
    }
    Ok(if all.is_empty() { Value::Null } else { Value::Object(all) })
}

/// Removes null fields: OCI runtimes distinguish them from missing ones.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// `procMount: Unmasked`, which admission grants in a user namespace only.
fn is_proc_unmasked(input: &Input) -> bool {
    security(input.container).and_then(|s| s.proc_mount.as_deref()) == Some("Unmasked")
}

fn process(input: &Input) -> Result<Value, SpecError> {
    let env: Vec<String> = input.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    // No capability is inheritable or ambient: a process that is not root gets them only from a file's capabilities.
    let capabilities = capabilities::set(input)?;
    let may_escalate = security(input.container).and_then(|s| s.allow_privilege_escalation).unwrap_or(true);
    Ok(json!({
        "terminal": input.container.tty.unwrap_or(false),
        "user": {"uid": input.user.uid, "gid": input.user.gid, "additionalGids": input.user.all_groups()},
        "args": input.argv,
        "env": env,
        "cwd": if input.cwd.is_empty() { "/" } else { input.cwd.as_str() },
        "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
        "apparmorProfile": input.apparmor,
        "noNewPrivileges": !may_escalate,
        "oomScoreAdj": input.oom_score_adj.max(input.host.min_oom_score_adj),
    }))
}

fn linux(input: &Input) -> Result<Value, SpecError> {
    let privileged = is_privileged(input.container);
    let masks = !privileged && !is_proc_unmasked(input);
    let thermal = input.host.thermal_throttle.iter().map(String::as_str);
    let masked = masks.then(|| MASKED_PATHS.split_whitespace().chain(thermal).collect::<Vec<_>>());
    let user = input.namespaces.user.as_ref();
    let ids = user.map(|user| json!([{"containerID": 0, "hostID": user.first_id, "size": IDS}]));
    let hosts: &[HostDevice] = if privileged { &input.host.devices } else { &[] };
    let twice = |host: &&HostDevice| input.devices.iter().any(|granted| granted.device.path == host.path);
    let granted = input.devices.iter().map(|granted| &granted.device);
    let devices: Vec<Value> = hosts.iter().filter(|host| !twice(host)).chain(granted).map(device).collect();
    let seccomp = match &input.seccomp {
        Seccomp::Unconfined => None,
        Seccomp::RuntimeDefault => Some(seccomp::runtime_default(&capabilities::set(input)?)),
        Seccomp::Profile(profile) => Some((**profile).clone()),
    };
    Ok(json!({
        "namespaces": namespaces(input),
        "uidMappings": ids,
        "gidMappings": ids,
        "cgroupsPath": input.cgroup_path,
        "resources": limits::resources(input, privileged)?,
        "maskedPaths": masked,
        "readonlyPaths": masks.then_some(READ_ONLY_PATHS),
        "seccomp": seccomp,
        "rootfsPropagation": mounts::rootfs_propagation(&input.mounts),
        "devices": (!devices.is_empty()).then_some(devices),
    }))
}

fn namespaces(input: &Input) -> Vec<Value> {
    let (pinned, own) = (&input.namespaces, |kind: &str| json!({"type": kind}));
    let mut all = vec![own("mount")];
    let pid = match &input.pid {
        PidNamespace::Shared(path) => Some(path),
        PidNamespace::Private | PidNamespace::Host => None,
    };
    if input.pid == PidNamespace::Private {
        all.push(own("pid"));
    }
    let user = pinned.user.as_ref().map(|user| &user.path);
    let (net, ipc, uts) = (pinned.net.as_ref(), pinned.ipc.as_ref(), pinned.uts.as_ref());
    for (kind, path) in [("pid", pid), ("user", user), ("network", net), ("ipc", ipc), ("uts", uts)] {
        all.extend(path.map(|path| json!({"type": kind, "path": text(path)})));
    }
    // On v1 a container sees its hierarchy's real paths, as everywhere; a privileged one sees them on v2 too.
    if input.host.cgroup_v2 && !is_privileged(input.container) {
        all.push(own("cgroup"));
    }
    all
}

fn device(host: &HostDevice) -> Value {
    json!({
        "path": text(&host.path), "type": host.kind(), "major": host.major, "minor": host.minor,
        "fileMode": host.mode & 0o7777, "uid": host.uid, "gid": host.gid,
    })
}
