//! The container's mounts: what every container has, then the pod's own, shorter paths first. Pure.

use crate::pod::spec::is_privileged;
use oci_spec::runtime::Mount as OciMount;

use super::{Input, Mount, Propagation, SpecError};

pub(super) fn mounts(input: &Input) -> Result<Vec<OciMount>, SpecError> {
    if let Some(relative) = input.mounts.iter().find(|m| !m.target.is_absolute()) {
        return Err(SpecError::RelativeMount(relative.target.clone()));
    }
    let replaced = |target: &str| input.mounts.iter().any(|m| m.target.as_os_str() == target);
    let mut all: Vec<OciMount> =
        defaults(input).into_iter().filter(|(target, ..)| !replaced(target)).map(mount).collect();
    let mut own: Vec<&Mount> = input.mounts.iter().collect();
    // A mount would hide what is mounted below it earlier. Stable: equal depths keep the pod's order.
    own.sort_by_key(|m| m.target.components().count());
    all.extend(own.into_iter().map(volume));
    Ok(all)
}

/// Propagation of the root, which bounds that of the mounts in it.
pub(super) fn rootfs_propagation(mounts: &[Mount]) -> Option<&'static str> {
    let has = |propagation| mounts.iter().any(|m| m.propagation == propagation);
    if has(Propagation::Bidirectional) {
        Some("rshared")
    } else if has(Propagation::HostToContainer) {
        Some("rslave")
    } else {
        None
    }
}

type Default = (&'static str, &'static str, &'static str, Vec<&'static str>);

fn defaults(input: &Input) -> Vec<Default> {
    let write = if is_privileged(input.container) { "rw" } else { "ro" };
    let shm = if input.namespaces.ipc.is_none() {
        // With the host's IPC namespace come the host's shared memory objects.
        ("/dev/shm", "bind", "/dev/shm", vec!["rbind", "rprivate", "rw"])
    } else {
        ("/dev/shm", "tmpfs", "shm", vec!["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"])
    };
    vec![
        ("/proc", "proc", "proc", vec!["nosuid", "noexec", "nodev"]),
        ("/dev", "tmpfs", "tmpfs", vec!["nosuid", "strictatime", "mode=755", "size=65536k"]),
        (
            "/dev/pts",
            "devpts",
            "devpts",
            vec!["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        shm,
        ("/dev/mqueue", "mqueue", "mqueue", vec!["nosuid", "noexec", "nodev"]),
        ("/sys", "sysfs", "sysfs", vec!["nosuid", "noexec", "nodev", write]),
        ("/sys/fs/cgroup", "cgroup", "cgroup", vec!["nosuid", "noexec", "nodev", "relatime", write]),
    ]
}

fn mount((target, typ, source, options): Default) -> OciMount {
    let mut mount = OciMount::default();
    mount.set_destination(target.into());
    mount.set_typ(Some(typ.to_owned()));
    mount.set_source(Some(source.into()));
    mount.set_options(Some(options.into_iter().map(str::to_owned).collect()));
    mount
}

fn volume(own: &Mount) -> OciMount {
    let mut mount = OciMount::default();
    mount.set_destination(own.target.clone());
    mount.set_source(Some(own.source.clone()));
    mount.set_typ(Some("bind".to_owned()));
    let propagation = match own.propagation {
        Propagation::None => "rprivate",
        Propagation::HostToContainer => "rslave",
        Propagation::Bidirectional => "rshared",
    };
    let mut options = vec!["rbind".to_owned(), propagation.to_owned()];
    options.extend(own.locked.iter().map(|option| (*option).to_owned()));
    options.push(
        if own.recursive_read_only {
            "rro"
        } else if own.read_only {
            "ro"
        } else {
            "rw"
        }
        .to_owned(),
    );
    mount.set_options(Some(options));
    mount
}
