//! From a prepared pod to one container attempt that the monitor can start, as an ordered list of
//! steps: folders, root file system, environment, user, mounts, OCI configuration. And the way back.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::devices::Grant;
use super::launcher::{Launcher, Objects, Prepared};
use super::look::Look;
use super::runtimes::Runtimes;
use super::sandbox::{class, spec, uid};
use super::security::{apparmor, seccomp};
use super::{oci_spec, own_boot, resources, termination, user, user_ns, variables};
use crate::clock;
use crate::image::rootfs;
use crate::image::rootfs::Mapping;
use crate::net::namespaces::UserNamespace;
use crate::pod::env::{self, Environment, Sources};
use crate::pod::ephemeral::definition;
use crate::pod::event::StartFailure;
use crate::pod::record::ProcessUser;
use crate::pod::services;
use crate::store::image_record::ImageRecord;
use crate::store::secrets;
use crate::sys::cgroup::Driver;
use crate::sys::files;
use crate::volume::mounts::{self, MountContext};
use crate::volume::{DownwardFacts, downward, image_volume};
use sampan_monitor::protocol::StartContainer;

/// Which attempt of which container.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    pub container: &'a Container,
    pub number: u32,
    /// Id in the OCI runtime.
    pub id: &'a str,
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
    /// What a helper has to do before the start.
    pub looks: Vec<Look>,
}

pub(crate) type Failure = (StartFailure, String);

pub(super) fn config(error: impl std::fmt::Display) -> Failure {
    (StartFailure::Config, error.to_string())
}

pub(super) fn create(error: impl std::fmt::Display) -> Failure {
    (StartFailure::Create, error.to_string())
}

impl Launcher {
    /// The steps of one attempt.
    ///
    /// # Errors
    /// What the waiting reason and message of the container become; what was made is undone.
    pub fn prepare_container(
        &mut self,
        pod: &Pod,
        attempt: &Attempt<'_>,
        image: &ImageRecord,
        ips: &[IpAddr],
        objects: Objects<'_>,
    ) -> Result<Ready, Failure> {
        let mut prepared = self.prepared(pod, ips, objects).map_err(|failure| create(failure.message))?;
        prepared.devices = self.devices.allocate(pod, attempt.container, &self.paths).map_err(create)?;
        let done = self.container_steps(pod, attempt, image, ips, objects, &prepared);
        if done.is_err()
            && let Err(error) = self.remove_container(&uid(pod), &attempt.container.name, attempt.number, attempt.id)
        {
            log::warn!("container {}: undoing a failed preparation: {error}", attempt.id);
        }
        done
    }

    fn container_steps(
        &self,
        pod: &Pod,
        attempt: &Attempt<'_>,
        image: &ImageRecord,
        ips: &[IpAddr],
        objects: Objects<'_>,
        prepared: &Prepared,
    ) -> Result<Ready, Failure> {
        let container = attempt.container;
        let uid = uid(pod);
        let bundle = self.paths.bundle(attempt.id);
        let dir = self.paths.attempt(&uid, &container.name, attempt.number);

        // The pod may have been resized since it was made: while init containers ran, or by the end of an attempt.
        // The cgroup is there: with systemd's driver nothing has to wait for them.
        if let Err(error) = self.pod_cgroup(pod, &uid) {
            log::warn!("pod {uid}: its cgroup keeps its former values: {}", error.message);
        }

        // Environment first: it fails most often (a ConfigMap that is not there yet) and costs nothing.
        let facts = self.downward(pod, ips);
        let environment = environment(pod, container, &facts, objects)?;
        let host_name = self.host_name(pod).map_err(|failure| config(failure.message))?;
        let has_terminal = container.tty.unwrap_or(false);
        let env = variables::merged(&host_name, has_terminal, &image.config.env, &environment.vars);
        let argv = env::argv(container, &image.config.entrypoint, &image.config.cmd, &environment.vars);
        if argv.is_empty() {
            return Err(create("no command specified"));
        }

        let seccomp = seccomp::of(pod, container, &self.paths.seccomp(), self.config.security.seccomp_default)?;
        let apparmor = apparmor::of(pod, container, self.apparmor, apparmor::loaded).map_err(create)?;
        let own_users = prepared.namespaces.user.as_ref();
        let own_ids = own_users.map(|user| File::open(&user.path)).transpose().map_err(create)?;
        let root = self.root_file_system(&dir, &bundle, image, own_users.zip(own_ids.as_ref()))?;
        let user = user::resolve(pod, container, &image.config.user, &root).map_err(config)?;
        let termination_log = dir.join("termination-log");
        termination_file(&termination_log).map_err(create)?;
        let lookup: BTreeMap<&str, &str> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        for (volume, image) in attempt.image_volumes {
            image_volume::mount(&self.paths, &uid, volume, &image.layers, own_ids.as_ref()).map_err(create)?;
        }
        let pod_files = self.pod_files(&uid);
        if !pod_files.exists() {
            // An earlier version prepared the pod, and kept them elsewhere.
            self.pod_etc_files(pod, &uid, ips).map_err(|failure| create(failure.message))?;
        }
        let (mut mounts, looks) = mounts::container_mounts(&MountContext {
            paths: &self.paths,
            pod,
            container,
            volumes: &prepared.volumes,
            env: &|name| lookup.get(name).map(|value| (*value).to_owned()),
            pod_files: &pod_files,
            termination_log: &termination_log,
            recursive_read_only: self.recursive_read_only,
        })
        .map_err(|error| if error.is_of_image() { create(error) } else { config(error) })?;
        let mut looks: Vec<Look> = looks.into_iter().map(Look::Volume).collect();
        if let Some(user) = own_users {
            looks.extend(user_ns::map(user, &bundle, &self.paths.pod(&uid), &mut mounts).map_err(create)?);
        }
        let handler = self.runtimes.of_prepared(&self.paths.pod(&uid), pod, objects).map_err(create)?;
        let cwd = working_dir(container, image);
        super::cwd::check(&root, &cwd).map_err(create)?;
        Runtimes::mark(&bundle, &handler, &cwd).map_err(create)?;
        let runtime = self.runtimes.of_handler(&handler, &self.paths);
        let devices = granted(&prepared.devices, &user).map_err(create)?;
        let swap = self.config.resources.swap;
        let input = oci_spec::Input {
            pod,
            container,
            argv,
            env,
            cwd,
            rootfs: root,
            mounts: mounts.into_iter().map(bind).collect(),
            namespaces: namespaces(pod, prepared, attempt.join_pid),
            hostname: String::new(),
            cgroup_path: self.cgroups.runtime_path(class(pod), &uid, attempt.id),
            systemd: self.config.cgroup_driver == Driver::Systemd,
            user,
            oom_score_adj: resources::oom_score_adj(pod, container, self.facts.memory_bytes),
            pids_limit: None,
            devices,
            swap_limit: resources::swap_limit(pod, container, swap, self.facts.memory_bytes, self.facts.swap_bytes),
            seccomp,
            apparmor,
            host: &self.oci_facts,
        };
        let user = ProcessUser { uid: input.user.uid, gid: input.user.gid, groups: input.user.all_groups() };
        let spec = oci_spec::build(&input).map_err(config)?;
        spec.save(bundle.join("config.json")).map_err(create)?;

        let meta = &pod.metadata;
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let start = StartContainer {
            id: attempt.id.to_owned(),
            bundle,
            runtime: runtime.program,
            runtime_root: runtime.root,
            runtime_args: runtime.args,
            log_path: self.paths.container_log(namespace, name, &uid, &container.name, attempt.number),
            log_max_bytes: self.config.logs.max_bytes,
            log_max_files: self.config.logs.max_files,
            log_bytes_per_second: self.config.logs.bytes_per_second,
            cgroup: Some(self.cgroups.container_path(class(pod), &uid, attempt.id)),
            stdin: container.stdin.unwrap_or(false),
            stdin_once: container.stdin_once.unwrap_or(false),
            terminal: has_terminal,
        };
        let warnings = (!environment.invalid.is_empty())
            .then(|| ("InvalidEnvironmentVariableNames", environment.invalid.join("; ")))
            .into_iter()
            .collect();
        Ok(Ready { start, user, warnings, looks })
    }

    fn root_file_system(
        &self,
        dir: &Path,
        bundle: &Path,
        image: &ImageRecord,
        user: Option<(&UserNamespace, &File)>,
    ) -> Result<PathBuf, Failure> {
        let (upper, work, root) = (dir.join("upper"), dir.join("work"), bundle.join("rootfs"));
        files::private_dir(dir).map_err(create)?;
        files::private_dir(bundle).map_err(create)?;
        files::open_dir(&root).map_err(create)?;
        if !rootfs::is_mounted(&root, &upper).map_err(create)? {
            clock::boot_id().and_then(|boot| own_boot::renew(dir, &boot, &self.trash)).map_err(create)?;
        }
        // The container's root folder itself must be open to its users.
        for path in [&upper, &work] {
            files::open_dir(path).map_err(create)?;
        }
        if let Some((user, _)) = user {
            user_ns::give(&self.paths, bundle, &upper, user).map_err(create)?;
        }
        let scratch = user_ns::scratch(bundle);
        let mapping = user.map(|(_, user_ns)| Mapping { user_ns, scratch: &scratch });
        rootfs::mount_rootfs(&self.paths.layers(), &image.layers, &upper, &work, &root, mapping.as_ref())
            .map_err(create)?;
        Ok(root)
    }

    /// Takes away what [`Launcher::prepare_container`] made; log files stay. Safe at any time after the
    /// container has ended, also twice.
    ///
    /// # Errors
    /// Something is still in use.
    pub fn remove_container(&self, uid: &str, container: &str, attempt: u32, id: &str) -> Result<(), String> {
        let bundle = self.paths.bundle(id);
        rootfs::unmount_rootfs(&bundle.join("rootfs")).map_err(|error| error.to_string())?;
        user_ns::unmap(&bundle);
        files::remove_tree(&bundle).map_err(|error| error.to_string())?;
        self.trash.throw(&self.paths.attempt(uid, container, attempt)).map_err(|error| error.to_string())
    }

    /// What an ended container left at its `terminationMessagePath`, or, if it `failed` and its policy says so, at
    /// the end of its log.
    pub fn termination_message(&self, pod: &Pod, container: &str, attempt: u32, failed: bool) -> String {
        let (uid, meta) = (uid(pod), &pod.metadata);
        let file = self.paths.attempt(&uid, container, attempt).join("termination-log");
        let definition = definition(pod, container);
        let policy = definition.as_ref().and_then(|c| c.termination_message_policy.as_deref());
        let log = (failed && policy == Some("FallbackToLogsOnError")).then(|| {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            self.paths.container_log(&of(&meta.namespace), &of(&meta.name), &uid, container, attempt)
        });
        termination::message(&file, log.as_deref())
    }
}

fn environment(
    pod: &Pod,
    container: &Container,
    facts: &DownwardFacts,
    objects: Objects<'_>,
) -> Result<Environment, Failure> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let typed = |kind: &str, name: &str| objects(kind, namespace, name);
    let all = spec(pod).and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let all = all.then(|| typed(services::KIND, services::ALL)).flatten();
    let services = services::variables(all, objects(services::KIND, services::API_NAMESPACE, services::API));
    let withheld = Cell::new(None);
    let sources = Sources {
        config_map: &|name| typed("ConfigMap", name).and_then(|value| serde_json::from_value(value).ok()),
        secret: &|name| {
            let found = typed("Secret", name)?;
            if secrets::is_withheld(&found) {
                withheld.set(Some(secrets::withheld(name)));
            }
            serde_json::from_value(found).ok()
        },
        field: &|path| downward::field_value(pod, path, facts).map_err(|error| error.to_string()),
        resource: &|name, resource, divisor| {
            let divisor = divisor.map(|text| Quantity(text.to_owned()));
            downward::resource_value(pod, name, resource, divisor.as_ref(), facts).map_err(|error| error.to_string())
        },
        services: &services,
    };
    let environment = env::environment(pod, container, &sources);
    // Optional or not: it exists, and the container would start without it.
    match withheld.take() {
        Some(reason) => Err(config(env::EnvError(reason))),
        None => environment.map_err(config),
    }
}

fn working_dir(container: &Container, image: &ImageRecord) -> String {
    let own = container.working_dir.as_deref().filter(|dir| !dir.is_empty());
    let dir = own.unwrap_or(&image.config.working_dir);
    if dir.is_empty() { "/".into() } else { dir.into() }
}

fn namespaces(pod: &Pod, prepared: &Prepared, join_pid: Option<i32>) -> oci_spec::Namespaces {
    let host_pid = spec(pod).and_then(|spec| spec.host_pid).unwrap_or(false);
    let pid = match join_pid {
        _ if host_pid => oci_spec::PidNamespace::Host,
        Some(pid) => oci_spec::PidNamespace::Shared(format!("/proc/{pid}/ns/pid").into()),
        None => oci_spec::PidNamespace::Private,
    };
    let pinned = prepared.namespaces.clone();
    oci_spec::Namespaces { net: pinned.net, ipc: pinned.ipc, uts: pinned.uts, user: pinned.user, pid }
}

/// The nodes as they are now. A container that is not root gets them as its own: that is what they are for.
fn granted(grants: &[Grant], user: &user::User) -> Result<Vec<oci_spec::GrantedDevice>, String> {
    let one = |grant: &Grant| {
        let error = |why| format!("device {}: {why}", grant.path.display());
        let mut device = oci_spec::HostDevice::at(&grant.path).map_err(error)?;
        if user.uid != 0 {
            (device.uid, device.gid) = (user.uid, user.gid);
        }
        Ok(oci_spec::GrantedDevice { device, access: grant.access.clone() })
    };
    grants.iter().map(one).collect()
}

fn bind(mount: mounts::Mount) -> oci_spec::Mount {
    let propagation = match mount.propagation {
        mounts::Propagation::Private => oci_spec::Propagation::None,
        mounts::Propagation::HostToContainer => oci_spec::Propagation::HostToContainer,
        mounts::Propagation::Bidirectional => oci_spec::Propagation::Bidirectional,
    };
    oci_spec::Mount {
        source: mount.source,
        target: mount.target,
        read_only: mount.read_only,
        recursive_read_only: mount.recursive_read_only,
        propagation,
        locked: mount.locked,
        kind: oci_spec::MountKind::Bind,
    }
}

/// Any user of the container may write its last words.
fn termination_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, b"")?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
}
