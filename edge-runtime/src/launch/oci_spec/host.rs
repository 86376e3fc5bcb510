//! Looks at this machine for [`HostFacts`]. The one place here that does I/O.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{HostDevice, HostFacts};
use crate::sys::cgroup::{Controllers, MOUNT_POINT};
use crate::sys::host;
use crate::sys::sort::sort;

/// Below `/dev`, but no devices to hand on: other file systems, terminals of the host, the runtime's own links.
const SKIPPED: [&str; 9] = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev", "console", "ptmx"];

impl HostFacts {
    /// Looks at this machine, of whose cgroups this is known already.
    pub fn detect(cgroup_v2: bool, controllers: Controllers) -> Self {
        let cgroup = Path::new(MOUNT_POINT);
        let swap_accounting = match cgroup_v2 {
            // The root has no such file, any group below it does once memory is delegated.
            true => has_below(cgroup, "memory.swap.max"),
            false => cgroup.join("memory/memory.memsw.limit_in_bytes").exists(),
        };
        let mut devices = Vec::new();
        list_devices(Path::new("/dev"), 0, &mut devices);
        Self {
            cgroup_v2,
            memory_controller: controllers.memory,
            cpu_controller: controllers.cpu,
            swap_accounting,
            min_oom_score_adj: host::min_oom_score_adj(),
            capabilities: bounding_set(),
            devices,
            thermal_throttle: thermal_throttle(),
        }
    }
}

fn has_below(folder: &Path, file: &str) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| entry.path().join(file).exists())
}

fn bounding_set() -> Vec<String> {
    let mask = host::capabilities("CapBnd") & host::capabilities("CapPrm");
    let named = NAMES.split_whitespace().enumerate();
    named.filter(|(bit, _)| mask & (1 << bit) != 0).map(|(_, name)| format!("CAP_{name}")).collect()
}

/// By number, as linux/capability.h counts them.
const NAMES: &str = "
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
    NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
    SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
    MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE";

fn list_devices(folder: &Path, depth: u32, devices: &mut Vec<HostDevice>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if SKIPPED.iter().any(|skipped| name == *skipped) {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() && depth < 4 {
            list_devices(&entry.path(), depth + 1, devices);
        } else {
            devices.extend(described(entry.path(), &metadata));
        }
    }
}

impl HostDevice {
    /// The device at `path`, or at the place it links to.
    ///
    /// # Errors
    /// `path` is not a device.
    pub fn at(path: &Path) -> std::io::Result<Self> {
        described(path.to_path_buf(), &fs::metadata(path)?).ok_or_else(|| std::io::Error::other("is no device"))
    }

    /// The devices in a folder below `/dev`, and in folders in it.
    pub fn below(folder: &Path) -> Vec<Self> {
        let mut devices = Vec::new();
        list_devices(folder, 0, &mut devices);
        devices
    }
}

fn described(path: PathBuf, metadata: &fs::Metadata) -> Option<HostDevice> {
    let (kind, number) = (metadata.file_type(), metadata.rdev());
    (kind.is_char_device() || kind.is_block_device()).then(|| HostDevice {
        path,
        block: kind.is_block_device(),
        major: i64::try_from(nix::sys::stat::major(number)).unwrap_or(0),
        minor: i64::try_from(nix::sys::stat::minor(number)).unwrap_or(0),
        mode: metadata.mode(),
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

fn thermal_throttle() -> Vec<String> {
    let cpus = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let mut paths: Vec<String> = cpus
        .map(|cpu| cpu.path().join("thermal_throttle"))
        .filter(|path| path.exists())
        .filter_map(|path| path.into_os_string().into_string().ok())
        .collect();
    sort(&mut paths);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = HostFacts::detect(true, Controllers::default());
        assert!(facts.devices.iter().any(|d| d.path == Path::new("/dev/null") && (d.major, d.minor) == (1, 3)));
        assert!((-1000..=1000).contains(&facts.min_oom_score_adj));
    }
}
