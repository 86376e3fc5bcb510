//! The container's mounts: what every container has, then the pod's own, shorter paths first. Pure.

use serde_json::{Value, json};

use super::input::{Input, text};
use crate::launch::spec_error::SpecError;
use crate::pod::spec::is_privileged;
use crate::sys::sort::sort_by_key;
use crate::volume::mounts::{Mount, Propagation};

pub(super) fn mounts(input: &Input) -> Result<Vec<Value>, SpecError> {
    if let Some(relative) = input.mounts.iter().find(|m| !m.target.is_absolute()) {
        return Err(SpecError::RelativeMount(relative.target.clone()));
    }
    let replaced = |target: &str| input.mounts.iter().any(|m| m.target.as_os_str() == target);
    let mut all: Vec<Value> = defaults(input).into_iter().filter(|(target, ..)| !replaced(target)).map(mount).collect();
    let mut own: Vec<&Mount> = input.mounts.iter().collect();
    // A mount would hide what is mounted below it earlier. Stable: equal depths keep the pod's order.
    sort_by_key(&mut own, |m| m.target.components().count());
    all.extend(own.into_iter().map(volume));
    Ok(all)
}

/// Propagation of the root, which bounds that of the mounts in it.
pub(super) fn rootfs_propagation(mounts: &[Mount]) -> Option<&'static str> {
    let most = mounts.iter().map(|m| m.propagation).max()?;
    (most != Propagation::Private).then(|| option(most))
}

fn option(propagation: Propagation) -> &'static str {
    match propagation {
        Propagation::Private => "rprivate",
        Propagation::HostToContainer => "rslave",
        Propagation::Bidirectional => "rshared",
    }
}

type Default = (&'static str, &'static str, &'static str, Vec<&'static str>);

fn defaults(input: &Input) -> Vec<Default> {
    let write = if is_privileged(input.container) { "rw" } else { "ro" };
    let shm = if input.namespaces.ipc.is_none() {
        // The host's IPC namespace includes the host's shared memory objects.
        ("/dev/shm", "bind", "/dev/shm", vec!["rbind", "rprivate", "rw"])
    } else {
        ("/dev/shm", "tmpfs", "shm", vec!["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"])
    };
    let terminals = vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    vec![
        ("/proc", "proc", "proc", vec!["nosuid", "noexec", "nodev"]),
        ("/dev", "tmpfs", "tmpfs", vec!["nosuid", "strictatime", "mode=755", "size=65536k"]),
        ("/dev/pts", "devpts", "devpts", terminals),
        shm,
        ("/dev/mqueue", "mqueue", "mqueue", vec!["nosuid", "noexec", "nodev"]),
        ("/sys", "sysfs", "sysfs", vec!["nosuid", "noexec", "nodev", write]),
        ("/sys/fs/cgroup", "cgroup", "cgroup", vec!["nosuid", "noexec", "nodev", "relatime", write]),
    ]
}

fn mount((target, kind, source, options): Default) -> Value {
    json!({"destination": target, "type": kind, "source": source, "options": options})
}

fn volume(own: &Mount) -> Value {
    let access = match (own.recursive_read_only, own.read_only) {
        (true, _) => "rro",
        (false, true) => "ro",
        (false, false) => "rw",
    };
    let mut options = vec!["rbind", option(own.propagation)];
    options.extend(own.locked.iter().chain([&access]));
    json!({"destination": text(&own.target), "type": "bind", "source": text(&own.source), "options": options})
}
