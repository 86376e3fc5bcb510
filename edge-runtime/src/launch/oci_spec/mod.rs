//! From a pod's container to its OCI runtime configuration. Pure: everything that must be looked up comes in.
//!
//! Follows what the kubelet asks of a CRI runtime and what containerd makes of it, so that a container sees the
//! same world here as on any other node.

mod capabilities;
mod host;
mod input;
mod limits;
mod mounts;
mod scope;
mod seccomp;
#[cfg(test)]
mod tests;

pub use input::{
    GrantedDevice, HostDevice, HostFacts, Input, Mount, Namespaces, PidNamespace, Propagation, Seccomp, SpecError,
};

use std::path::PathBuf;

use crate::net::namespaces::IDS;
use crate::pod::spec::is_privileged;
use k8s_openapi::api::core::v1::{Container, SecurityContext};
use oci_spec::runtime::{
    Linux, LinuxDevice, LinuxDeviceType, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceType, Process, Root,
    Spec, User as ProcessUser,
};

/// Hidden from a container, as the kubelet asks for (pkg/securitycontext).
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Not writable in a container.
const READ_ONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The configuration to be written as `config.json` of the bundle.
///
/// # Errors
/// The pod asks for what cannot be expressed; names the field.
pub fn build(input: &Input) -> Result<Spec, SpecError> {
    if input.argv.is_empty() {
        return Err(SpecError::NoCommand);
    }
    let mut root = Root::default();
    root.set_path(input.rootfs.clone());
    root.set_readonly(Some(security(input.container).and_then(|s| s.read_only_root_filesystem).unwrap_or(false)));
    let mut spec = Spec::default();
    // The newest that runc 1.1, crun and youki all take.
    spec.set_version("1.0.2".to_owned());
    spec.set_root(Some(root));
    spec.set_mounts(Some(mounts::mounts(input)?));
    spec.set_process(Some(process(input)?));
    // The namespace has its name already.
    spec.set_hostname(None);
    spec.set_linux(Some(linux(input)?));
    spec.set_annotations(if input.systemd { Some(scope::annotations(input)?) } else { None });
    Ok(spec)
}

pub(super) fn security(container: &Container) -> Option<&SecurityContext> {
    container.security_context.as_ref()
}

/// `procMount: Unmasked`, which admission grants in a user namespace only.
fn is_proc_unmasked(input: &Input) -> bool {
    security(input.container).and_then(|s| s.proc_mount.as_deref()) == Some("Unmasked")
}

fn process(input: &Input) -> Result<Process, SpecError> {
    let mut user = ProcessUser::default();
    user.set_uid(input.user.uid);
    user.set_gid(input.user.gid);
    user.set_additional_gids(Some(input.user.all_groups()));

    let mut process = Process::default();
    process.set_terminal(Some(input.container.tty.unwrap_or(false)));
    process.set_user(user);
    process.set_args(Some(input.argv.clone()));
    process.set_env(Some(input.env.iter().map(|(name, value)| format!("{name}={value}")).collect()));
    process.set_cwd(PathBuf::from(if input.cwd.is_empty() { "/" } else { &input.cwd }));
    process.set_capabilities(Some(capabilities::capabilities(input)?));
    process.set_rlimits(None);
    let may_escalate = security(input.container).and_then(|s| s.allow_privilege_escalation).unwrap_or(true);
    process.set_apparmor_profile(input.apparmor.clone());
    process.set_no_new_privileges(Some(!may_escalate));
    process.set_oom_score_adj(Some(input.oom_score_adj.max(input.host.min_oom_score_adj)));
    Ok(process)
}

fn linux(input: &Input) -> Result<Linux, SpecError> {
    let privileged = is_privileged(input.container);
    let masks = !privileged && !is_proc_unmasked(input);
    let paths = |list: &[&str]| masks.then(|| list.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>());
    let masked = paths(&MASKED_PATHS).map(|mut all| {
        all.extend(input.host.thermal_throttle.iter().cloned());
        all
    });
    let mut linux = Linux::default();
    linux.set_namespaces(Some(namespaces(input)));
    if let Some(user) = &input.namespaces.user {
        // Fails for a field that is missing only, and without a mapping the runtime would refuse the container.
        let ids = LinuxIdMappingBuilder::default().container_id(0_u32).host_id(user.first_id).size(IDS).build().ok();
        linux.set_uid_mappings(ids.map(|ids| vec![ids]));
        linux.set_gid_mappings(ids.map(|ids| vec![ids]));
    }
    linux.set_cgroups_path(Some(PathBuf::from(&input.cgroup_path)));
    linux.set_resources(Some(limits::resources(input, privileged)?));
    linux.set_masked_paths(masked);
    linux.set_readonly_paths(paths(&READ_ONLY_PATHS));
    linux.set_seccomp(match &input.seccomp {
        Seccomp::Unconfined => None,
        Seccomp::RuntimeDefault => Some(seccomp::runtime_default(&capabilities::set(input)?)),
        Seccomp::Profile(profile) => Some((**profile).clone()),
    });
    linux.set_rootfs_propagation(mounts::rootfs_propagation(&input.mounts).map(str::to_owned));
    let hosts: &[HostDevice] = if privileged { &input.host.devices } else { &[] };
    let twice = |host: &&HostDevice| input.devices.iter().any(|granted| granted.device.path == host.path);
    let granted = input.devices.iter().map(|granted| &granted.device);
    let devices: Vec<LinuxDevice> = hosts.iter().filter(|host| !twice(host)).chain(granted).map(device).collect();
    linux.set_devices((!devices.is_empty()).then_some(devices));
    Ok(linux)
}

fn namespaces(input: &Input) -> Vec<LinuxNamespace> {
    let wanted = &input.namespaces;
    let namespace = |typ, path: Option<PathBuf>| {
        let mut namespace = LinuxNamespace::default();
        namespace.set_typ(typ);
        namespace.set_path(path);
        namespace
    };
    let mut all = vec![namespace(LinuxNamespaceType::Mount, None)];
    match &wanted.pid {
        PidNamespace::Private => all.push(namespace(LinuxNamespaceType::Pid, None)),
        PidNamespace::Shared(path) => all.push(namespace(LinuxNamespaceType::Pid, Some(path.clone()))),
        PidNamespace::Host => {}
    }
    let user = wanted.user.as_ref().map(|user| user.path.clone());
    let pinned = [
        (LinuxNamespaceType::User, &user),
        (LinuxNamespaceType::Network, &wanted.net),
        (LinuxNamespaceType::Ipc, &wanted.ipc),
        (LinuxNamespaceType::Uts, &wanted.uts),
    ];
    all.extend(pinned.into_iter().filter_map(|(typ, path)| Some(namespace(typ, Some(path.clone()?)))));
    // On v1 a container sees its hierarchy's real paths, as everywhere; a privileged one sees them on v2 too.
    if input.host.cgroup_v2 && !is_privileged(input.container) {
        all.push(namespace(LinuxNamespaceType::Cgroup, None));
    }
    all
}

fn device(host: &HostDevice) -> LinuxDevice {
    let mut device = LinuxDevice::default();
    device.set_path(host.path.clone());
    device.set_typ(if host.block { LinuxDeviceType::B } else { LinuxDeviceType::C });
    device.set_major(host.major);
    device.set_minor(host.minor);
    device.set_file_mode(Some(host.mode & 0o7777));
    device.set_uid(Some(host.uid));
    device.set_gid(Some(host.gid));
    device
}
