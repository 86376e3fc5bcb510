//! Types of the cgroup tree: errors, existing groups, values to set and to read. Pure.

use std::io;
use std::path::PathBuf;

use crate::systemd::BusError;

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("{action} {}: {source}", path.display())]
    Path { action: &'static str, path: PathBuf, source: io::Error },
    #[error("no cgroup file system is mounted below {}", .0.display())]
    NotMounted(PathBuf),
    #[error("cgroup {} still holds processes", .0.display())]
    Busy(PathBuf),
    #[error(
        "cgroup-driver is systemd, but this machine was not started by systemd (there is no /run/systemd/system): \
         set cgroup-driver to cgroupfs, or remove it, in the node's configuration"
    )]
    NoSystemd,
    #[error(
        "cgroup-driver is systemd, which works with cgroup v2 alone, and this machine has v1: boot it with \
         systemd.unified_cgroup_hierarchy=1 on the kernel's command line, or set cgroup-driver to cgroupfs"
    )]
    SystemdOnV1,
    #[error(
        "pods of this node run in cgroups of the other cgroup-driver, {0}: set cgroup-driver back and drain the node, \
         or end its pods with 'edge-runtime reset', before it is changed"
    )]
    DriverChanged(&'static str),
    #[error(transparent)]
    Systemd(#[from] BusError),
    #[error("cgroup parent {0:?} is not an absolute path without '..'")]
    Parent(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CgroupVersion {
    /// Controllers on v1 hierarchies (a "hybrid" host counts as this: its v2 tree has no controllers).
    V1,
    V2,
}

/// Controllers this kernel offers and we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Controllers {
    pub cpu: bool,
    pub memory: bool,
    pub pids: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodCgroupClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// Limits of one pod's cgroup. `None` leaves the kernel's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CgroupValues {
    /// v1 scale, 2 to 262144; turned into a weight on v2.
    pub cpu_shares: Option<u64>,
    /// Microseconds per 100 ms period.
    pub cpu_quota_us: Option<i64>,
    pub memory_limit_bytes: Option<u64>,
    pub pids_limit: Option<u64>,
}
