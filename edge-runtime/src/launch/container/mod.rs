//! From a prepared pod to one container attempt that the monitor can start, as an ordered list of
//! steps: folders, root file system, environment, user, mounts, OCI configuration. And the way back.

mod block;
mod cwd;
mod disk;
mod edits;
mod granted;
mod image_volumes;
mod own_boot;
mod pause;
mod process;
mod resize;
mod termination;
mod variables;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use k8s_openapi::api::core::v1::{Container, Pod};

use self::granted::granted;
use self::process::Process;
use super::base::{Base, Objects};
use super::cgroups::{cgroup_of_container, class};
use super::cpus::Cpus;
use super::devices::plugins::Plugins;
use super::devices::{Devices, Grant};
use super::error::ContainerError;
use super::look::Look;
use super::runtimes::Runtimes;
use super::sandbox::Sandbox;
use super::security::{apparmor, seccomp};
use super::{oci_spec, resources, user, user_ns};
use crate::pod::record::ProcessUser;
use crate::pod::spec::{name, namespace, uid};
use crate::store::image_record::ImageRecord;
use crate::sys::cgroup::Driver;
use crate::sys::host::HostFacts;
use crate::volume::image_volume;
use sampan_monitor::protocol::StartContainer;

/// Which attempt of which container.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub container: &'a Container,
    pub number: u32,
    /// Id in the OCI runtime.
    pub id: &'a str,
    /// Comes from a manifest of this node, according to its record: any client can set an annotation.
    pub is_static: bool,
    /// A process whose pid namespace the container joins.
    pub join_pid: Option<i32>,
    /// Images of the image volumes that it mounts, by volume.
    pub image_volumes: &'a BTreeMap<String, ImageRecord>,
}

/// A container ready to be started.
#[derive(Debug)]
pub struct Ready {
    pub start: StartContainer,
    pub user: ProcessUser,
    /// Reason and message of Warning events.
    pub warnings: Vec<(&'static str, String)>,
    /// Work of a helper before the start.
    pub looks: Vec<Look>,
}

/// Prepares containers on this node, and removes what they leave.
pub struct Containers {
    base: Rc<Base>,
    runtimes: Rc<Runtimes>,
    host: Rc<HostFacts>,
    oci_facts: oci_spec::HostFacts,
    pub(super) apparmor: apparmor::Support,
    /// The OCI runtime can make everything below a mount read-only.
    recursive_read_only: bool,
    devices: Devices,
    /// Resources of device plugins. A container that wants some is prepared when they are allocated.
    pub plugins: Plugins,
    pub cpus: Cpus,
}

impl Containers {
    pub(super) fn new(
        base: Rc<Base>,
        runtimes: Rc<Runtimes>,
        (host, oci_facts, apparmor, recursive_read_only): (Rc<HostFacts>, oci_spec::HostFacts, apparmor::Support, bool),
    ) -> Self {
        let devices = Devices::load(base.config.devices.clone(), &base.paths);
        let plugins = Plugins::load(&base.config, &base.paths);
        Self { base, runtimes, host, oci_facts, apparmor, recursive_read_only, devices, plugins, cpus: Cpus::default() }
    }

    /// Keeps all allocations of plugins on the disk, before a container starts that has one of them.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn save_allocations(&mut self) -> std::io::Result<()> {
        self.plugins.kept.save(&self.base.paths)
    }

    pub fn free_allocations(&mut self, uid: &str) -> bool {
        self.plugins.kept.free(uid, &self.base.paths)
    }

    /// Resource names of the board's devices with how many there are.
    pub fn device_capacity(&self) -> BTreeMap<String, u64> {
        self.devices.capacity()
    }

    pub(super) fn free_devices(&mut self, uid: &str) {
        self.devices.free(uid, &self.base.paths);
    }

    /// The steps of one attempt.
    ///
    /// # Errors
    /// Waiting reason and message of the container; completed steps are undone.
    pub fn prepare(
        &mut self,
        sandbox: &Sandbox,
        pod: &Pod,
        attempt: &Attempt<'_>,
        image: &ImageRecord,
        objects: Objects<'_>,
    ) -> Result<Ready, ContainerError> {
        let grants = self.devices.allocate(pod, attempt.container, &self.base.paths)?;
        let done = self.steps(sandbox, pod, attempt, image, objects, &grants);
        if done.is_err()
            && let Err(error) = self.remove(uid(pod), &attempt.container.name, attempt.number, attempt.id)
        {
            log::warn!("container {}: undoing a failed preparation: {error}", attempt.id);
        }
        done
    }

    fn steps(
        &self,
        sandbox: &Sandbox,
        pod: &Pod,
        attempt: &Attempt<'_>,
        image: &ImageRecord,
        objects: Objects<'_>,
        grants: &[Grant],
    ) -> Result<Ready, ContainerError> {
        let (Base { paths, config: settings, .. }, container) = (&*self.base, attempt.container);
        let (uid, bundle) = (uid(pod), paths.bundle(attempt.id));
        let dir = paths.attempt(uid, &container.name, attempt.number);
        let given = self.plugins.kept.of(uid, &container.name);
        // First: it fails most often (a ConfigMap that is not there yet) and costs nothing.
        let Process { argv, env, cwd, warnings } =
            process::of(sandbox, pod, container, image, objects, edits::env(given))?;
        let seccomp = seccomp::of(pod, container, &paths.seccomp(), settings.security.seccomp_default)?;
        let apparmor = apparmor::of(pod, container, self.apparmor, apparmor::loaded)?;
        let own_users = sandbox.prepared.namespaces.user.as_ref();
        let own_ids = own_users.map(|user| File::open(&user.path)).transpose()?;
        let root = self.root_file_system(&dir, &bundle, image, own_users.zip(own_ids.as_ref()))?;
        let user = user::resolve(pod, container, &image.config.user, &root).map_err(ContainerError::config)?;
        for (volume, image) in attempt.image_volumes {
            image_volume::mount(paths, uid, volume, image, own_ids.as_ref())?;
        }
        let (mut mounts, mut looks) = self.mounts(sandbox, pod, container, &env, &dir)?;
        edits::mounts(given, &mut mounts, &mut looks)?;
        let first = own_users.map(|user| user.first_id);
        mounts.extend(image_volumes::make(&image.config.volumes, &root, &dir, &mounts, first)?);
        if let Some(user) = own_users {
            looks.extend(user_ns::map(user, &bundle, &paths.pod(uid), &mut mounts)?);
        }
        let handler = self.runtimes.of_prepared(&paths.pod(uid), pod, objects)?;
        cwd::check(&root, &cwd)?;
        cwd::check_program(&root, argv.first().map_or("", String::as_str))?;
        Runtimes::mark(&bundle, &handler, &cwd)?;
        let memory = self.host.memory_bytes;
        let mut devices = granted(grants, &user)?;
        devices.extend(edits::devices(given, &user)?);
        devices.extend(block::devices(container, &sandbox.prepared.volumes, &user)?);
        let input = oci_spec::Input {
            pod,
            container,
            argv,
            env,
            cwd,
            mounts,
            pid: pid_namespace(pod, attempt.join_pid),
            devices,
            annotations: edits::annotations(given),
            cpus: self.cpus.of(uid, &container.name),
            oom_score_adj: resources::oom_score_adj(pod, attempt.is_static, container, memory),
            swap_limit: resources::swap_limit(pod, container, settings.resources.swap, memory, self.host.swap_bytes),
            user,
            seccomp,
            apparmor,
            ..self.input(sandbox, pod, container, attempt.id, root)
        };
        let user = ProcessUser { uid: input.user.uid, gid: input.user.gid, groups: input.user.all_groups() };
        write_config(&bundle, &input)?;
        let start = StartContainer {
            log_path: paths.container_log(namespace(pod), name(pod), uid, &container.name, attempt.number),
            log_bytes_per_second: settings.logs.bytes_per_second(),
            stdin: container.stdin.unwrap_or(false),
            stdin_once: container.stdin_once.unwrap_or(false),
            terminal: container.tty.unwrap_or(false),
            ..self.start(pod, uid, attempt.id, &handler)
        };
        Ok(Ready { start, user, warnings, looks })
    }

    /// What the OCI configurations of all containers of a pod have in common.
    fn input<'a>(
        &'a self,
        sandbox: &Sandbox,
        pod: &'a Pod,
        container: &'a Container,
        id: &str,
        rootfs: PathBuf,
    ) -> oci_spec::Input<'a> {
        oci_spec::Input {
            pod,
            container,
            argv: Vec::new(),
            env: Vec::new(),
            cwd: "/".to_owned(),
            rootfs,
            mounts: Vec::new(),
            namespaces: sandbox.prepared.namespaces.clone(),
            pid: oci_spec::PidNamespace::Private,
            cgroup_path: self.base.cgroups.runtime_path(class(pod), uid(pod), id),
            systemd: self.base.config.cgroup_driver == Driver::Systemd,
            user: user::User::default(),
            oom_score_adj: 0,
            devices: Vec::new(),
            annotations: Vec::new(),
            cpus: None,
            swap_limit: None,
            seccomp: oci_spec::Seccomp::RuntimeDefault,
            apparmor: None,
            host: &self.oci_facts,
        }
    }

    /// Request to the monitor for a container.
    fn start(&self, pod: &Pod, uid: &str, id: &str, handler: &str) -> StartContainer {
        let Base { paths, config, cgroups, .. } = &*self.base;
        let runtime = self.runtimes.of_handler(handler, paths);
        StartContainer {
            id: id.to_owned(),
            bundle: paths.bundle(id),
            runtime: runtime.program,
            runtime_root: runtime.root,
            runtime_args: runtime.args,
            log_max_bytes: *config.logs.max_bytes,
            log_max_files: *config.logs.max_files,
            cgroup: Some(cgroup_of_container(cgroups, pod, uid, id)),
            ..StartContainer::default()
        }
    }
}

fn pid_namespace(pod: &Pod, join_pid: Option<i32>) -> oci_spec::PidNamespace {
    let host_pid = pod.spec.as_ref().and_then(|spec| spec.host_pid).unwrap_or(false);
    match join_pid {
        _ if host_pid => oci_spec::PidNamespace::Host,
        Some(pid) => oci_spec::PidNamespace::Shared(format!("/proc/{pid}/ns/pid").into()),
        None => oci_spec::PidNamespace::Private,
    }
}

fn write_config(bundle: &Path, input: &oci_spec::Input<'_>) -> Result<(), ContainerError> {
    let spec = oci_spec::build(input).map_err(ContainerError::config)?;
    Ok(std::fs::write(bundle.join("config.json"), spec.to_string())?)
}
