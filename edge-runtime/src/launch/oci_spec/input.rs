//! What [`super::build`] is given: the pod's words, and the answers to all questions that need the node.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, SecurityContext};
use oci_spec::runtime::LinuxSeccomp;

use crate::launch::user::User;
use crate::net::namespaces::PodNamespaces;
use crate::pod::cpus::Given;
use crate::volume::mounts::Mount;

/// Everything the OCI configuration of one container attempt depends on.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    /// Command and arguments, image defaults applied, `$(VAR)` expanded. Not empty.
    pub argv: Vec<String>,
    /// Environment in its final order, image defaults first, expanded.
    pub env: Vec<(String, String)>,
    /// Absolute; the image's or `/` if the container names none.
    pub cwd: String,
    /// Mounted root file system on the host.
    pub rootfs: PathBuf,
    /// Volumes and files made by the node (`/etc/hosts`, `/etc/resolv.conf`, `/dev/termination-log`, a shared
    /// `/dev/shm`, ...). One at the place of a default mount replaces it.
    pub mounts: Vec<Mount>,
    /// Pinned namespace files of the pod; `None` shares the host's.
    pub namespaces: PodNamespaces,
    pub pid: PidNamespace,
    /// `linux.cgroupsPath`: absolute below each hierarchy's root, or slice, prefix and name of a scope of systemd's.
    pub cgroup_path: String,
    /// systemd makes the container's cgroup.
    pub systemd: bool,
    /// Result of [`crate::launch::user::resolve`].
    pub user: User,
    /// Wanted value; clamped to what the node may set.
    pub oom_score_adj: i32,
    /// Devices of the node, in addition to those of every container.
    pub devices: Vec<GrantedDevice>,
    /// Names and values for the OCI runtime. The node's own replace them.
    pub annotations: Vec<(String, String)>,
    /// `None`: all CPUs, shared.
    pub cpus: Option<Given>,
    /// Swap beside the memory, bytes; none: as much as there is.
    pub swap_limit: Option<i64>,
    pub seccomp: Seccomp,
    /// Name of a profile that the kernel has loaded.
    pub apparmor: Option<String>,
    pub host: &'a HostFacts,
}

/// A device node that a container gets without being privileged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedDevice {
    pub device: HostDevice,
    /// Access rights: letters of `rwm`.
    pub access: String,
}

/// The system call filter of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seccomp {
    #[default]
    Unconfined,
    /// Made here, by the container's capabilities.
    RuntimeDefault,
    /// Given by the administrator.
    Profile(Box<LinuxSeccomp>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PidNamespace {
    /// One of its own for this container.
    #[default]
    Private,
    Host,
    /// Shared by the pod.
    Shared(PathBuf),
}

/// Features of this node; detected once by [`HostFacts::detect`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Pure cgroup v2; otherwise v1 controllers are used.
    pub cgroup_v2: bool,
    pub memory_controller: bool,
    pub cpu_controller: bool,
    /// The kernel accounts swap to cgroups (v1: `memory.memsw.*` exists).
    pub swap_accounting: bool,
    /// Lowest value this process may set: its own without CAP_SYS_RESOURCE.
    pub min_oom_score_adj: i32,
    /// Bounding set of the daemon, `CAP_...`: all that `privileged` can mean here.
    pub capabilities: Vec<String>,
    /// Device nodes below `/dev`, for privileged containers.
    pub devices: Vec<HostDevice>,
    /// `/sys/devices/system/cpu/cpuN/thermal_throttle` that exist; masked, since they tell of neighbours' load.
    pub thermal_throttle: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDevice {
    pub path: PathBuf,
    pub block: bool,
    pub major: i64,
    pub minor: i64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

impl HostDevice {
    /// Type in the OCI runtime's spelling.
    pub(super) fn kind(&self) -> &'static str {
        if self.block { "b" } else { "c" }
    }
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(super) fn security(container: &Container) -> Option<&SecurityContext> {
    container.security_context.as_ref()
}
