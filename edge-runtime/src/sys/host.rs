//! Facts about this machine, read once or rarely. Nothing here is kept or interpreted.

use std::net::IpAddr;
use std::path::Path;

/// What does not change while the machine is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    pub cpus: u32,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    pub hostname: String,
    /// `/etc/machine-id`, empty when the file is.
    pub machine_id: String,
    /// DMI or device-tree serial; the machine id where there is none.
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    /// `PRETTY_NAME` of os-release.
    pub os_image: String,
    /// In Go's terms: `amd64`, `arm64`, `arm`.
    pub architecture: &'static str,
}

/// Reads everything; a fact that cannot be read is empty or zero.
pub fn facts() -> HostFacts {
    HostFacts::default()
}

/// The address other nodes see: the source address of the default route, else the first global one.
/// No packet is sent. `None` while there is no network.
pub fn internal_ip() -> Option<IpAddr> {
    None
}

/// Lowest `oom_score_adj` this process may give: its own value without CAP_SYS_RESOURCE, else -1000.
pub fn min_oom_score_adj() -> i32 {
    0
}

/// Bytes and inodes of the file system that holds `path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    pub available_bytes: u64,
    pub total_inodes: u64,
    pub free_inodes: u64,
}

pub fn disk_space(_path: &Path) -> Option<DiskSpace> {
    None
}

/// `MemAvailable` in bytes.
pub fn memory_available() -> Option<u64> {
    None
}

/// `runc://1.1.5`, from `PROGRAM --version`. Blocks for one process start: call once.
pub fn runtime_version(_program: &Path) -> Option<String> {
    None
}
