//! From nothing to a pod that containers can be started into, as an ordered list of steps: cgroup,
//! namespaces, network, files, volumes. Each step can be repeated and undone at any time.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::launcher::{Launcher, Objects, Prepared};
use super::look::Look;
use super::looking::Trouble;
use super::runtimes::Runtimes;
use super::security::admit;
use super::{resources, user_ns};
use crate::net::cni::Attachment;
use crate::net::namespaces::{self, NamespaceRequest, PodNamespaces};
use crate::net::resolv::NodeDns;
use crate::net::{address, bandwidth, etc_files, hostname, hosts, resolv};
use crate::pod::ports;
use crate::pod::qos::{QosClass, qos_class};
use crate::pod::spec::host_network;
use crate::pod::sysctls;
use crate::sys::cgroup::{CgroupError, CgroupValues, Pending, PodCgroupClass};
use crate::volume::{self, VolumeContext, VolumeError};

/// What a pod that cannot be prepared shows: an event's reason and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxFailure {
    pub reason: &'static str,
    pub message: String,
}

const SANDBOX: &str = "FailedCreatePodSandBox";

pub(crate) fn sandbox_failure(error: impl std::fmt::Display) -> SandboxFailure {
    SandboxFailure { reason: SANDBOX, message: error.to_string() }
}

/// A prepared pod and what its user should be told.
#[derive(Debug, Default)]
pub struct SandboxDone {
    /// Empty with `hostNetwork`.
    pub ips: Vec<IpAddr>,
    /// Reason and message of Warning events.
    pub warnings: Vec<(&'static str, String)>,
}

/// How far a sandbox gets without waiting.
#[derive(Debug)]
pub enum Preparation {
    Done(SandboxDone),
    /// CNI plugins have to attach it; then [`Launcher::finish_sandbox`].
    Attach(Attachment),
    /// systemd has to make its cgroup; then the same once more.
    Cgroup(Pending),
}

impl Launcher {
    /// What a helper has to do before [`Launcher::prepare_sandbox`].
    ///
    /// # Errors
    /// The pod's folder cannot be made.
    pub fn volume_looks(&self, pod: &Pod, objects: Objects<'_>) -> Result<Vec<Look>, SandboxFailure> {
        let facts = self.downward(pod, &[]);
        let looks = volume::look::looks(&VolumeContext { paths: &self.paths, pod, objects, facts: &facts });
        if !looks.is_empty() {
            // What is done is marked there.
            crate::sys::files::private_dir(&self.paths.pod(&uid(pod))).map_err(sandbox_failure)?;
        }
        Ok(looks.into_iter().map(Look::Volume).collect())
    }

    /// What a pod shows whose volumes a helper could not do. What only takes long goes on in another one; the pod is
    /// tried again meanwhile.
    pub fn look_failed(&mut self, trouble: Trouble) -> SandboxFailure {
        match trouble {
            Trouble::Failed(message) => SandboxFailure { reason: VolumeError::FAILED_MOUNT, message },
            Trouble::Own(owning) => match self.helpers.own(&owning, &self.paths) {
                Ok(()) => mount_failure(&VolumeError::Owning(Box::new(owning))),
                Err(error) => sandbox_failure(error),
            },
        }
    }

    /// The steps of a pod, after [`Launcher::volume_looks`]. `taken` are the addresses of all other pods; `keep` are the addresses this pod had before.
    ///
    /// # Errors
    /// The first step that fails; what was made is undone.
    pub fn prepare_sandbox(
        &mut self,
        pod: &Pod,
        taken: &BTreeSet<IpAddr>,
        keep: &[IpAddr],
        objects: Objects<'_>,
    ) -> Result<Preparation, SandboxFailure> {
        let uid = uid(pod);
        let done = self.sandbox_steps(pod, &uid, taken, keep, objects);
        if done.is_err()
            && let Err(error) = self.teardown_sandbox(pod, &uid, false)
        {
            log::warn!("pod {uid}: undoing a failed preparation: {error}");
        }
        done
    }

    fn sandbox_steps(
        &mut self,
        pod: &Pod,
        uid: &str,
        taken: &BTreeSet<IpAddr>,
        keep: &[IpAddr],
        objects: Objects<'_>,
    ) -> Result<Preparation, SandboxFailure> {
        let handler = self.runtimes.handler_of(pod, objects).map_err(sandbox_failure)?;
        let dir = self.paths.pod(uid);
        crate::sys::files::private_dir(&dir).map_err(sandbox_failure)?;
        if spec(pod).is_some_and(|spec| spec.runtime_class_name.is_some()) {
            Runtimes::remember(&dir, &handler).map_err(sandbox_failure)?;
        }
        if let Some(pending) = self.pod_cgroup(pod, uid)? {
            return Ok(Preparation::Cgroup(pending));
        }
        let namespaces = self.pod_namespaces(pod, uid)?;
        let ips = match &namespaces.net {
            None => Vec::new(),
            Some(netns) => match self.cni_network()? {
                Some(network) => return self.attachment(pod, uid, netns, &network).map(Preparation::Attach),
                None => self.builtin_network(pod, uid, netns, taken, keep)?,
            },
        };
        self.finish_sandbox(pod, ips, objects).map(Preparation::Done)
    }

    /// The steps that need the pod's addresses.
    ///
    /// # Errors
    /// The first step that fails; nothing is undone.
    pub fn finish_sandbox(
        &mut self,
        pod: &Pod,
        ips: Vec<IpAddr>,
        objects: Objects<'_>,
    ) -> Result<SandboxDone, SandboxFailure> {
        let uid = uid(pod);
        let namespaces = self.existing_namespaces(pod, &uid)?;
        let mut warnings = self.pod_etc_files(pod, &uid, &ips)?;
        warnings.extend(unreachable_ports(pod, &ips));
        if !self.memory_controller() && admit::has_memory_limit(pod) {
            warnings.push(("MemoryLimitNotEnforced", admit::NO_MEMORY_CONTROLLER.to_owned()));
        }
        let facts = self.downward(pod, &ips);
        let context = VolumeContext { paths: &self.paths, pod, objects, facts: &facts };
        let volumes = volume::setup(&context);
        let volumes = volumes.map_err(|error| mount_failure(&error))?;
        self.prepared.insert(uid, Prepared { volumes, namespaces, devices: Vec::new() });
        Ok(SandboxDone { ips, warnings })
    }

    pub(super) fn pod_cgroup(&self, pod: &Pod, uid: &str) -> Result<Option<Pending>, SandboxFailure> {
        let values = resources::pod_values(pod).map_err(sandbox_failure)?;
        let values = CgroupValues { pids_limit: self.config.security.pod_pids_limit, ..values };
        self.cgroups.create_pod(class(pod), uid, &values).map_err(sandbox_failure)
    }

    fn pod_namespaces(&self, pod: &Pod, uid: &str) -> Result<PodNamespaces, SandboxFailure> {
        let name = hostname::pod_hostname(pod, &self.dns.cluster_domain).map_err(sandbox_failure)?;
        let sysctls = sysctls::of_sandbox(pod);
        let first_id = if own_users(pod) {
            let ids = self.user_ids.as_ref().map_err(sandbox_failure)?;
            Some(user_ns::first_id(&self.paths, uid, *ids).map_err(sandbox_failure)?)
        } else {
            None
        };
        let request = NamespaceRequest { sysctls: &sysctls, first_id, ..self.namespace_request(pod, &name) };
        self.namespaces.create(&self.paths.namespaces(uid), &request).map_err(sandbox_failure)
    }

    fn existing_namespaces(&self, pod: &Pod, uid: &str) -> Result<PodNamespaces, SandboxFailure> {
        let name = hostname::pod_hostname(pod, &self.dns.cluster_domain).map_err(sandbox_failure)?;
        namespaces::existing(&self.paths.namespaces(uid), &self.namespace_request(pod, &name))
            .ok_or_else(|| sandbox_failure("the pod's namespaces are gone"))
    }

    fn builtin_network(
        &mut self,
        pod: &Pod,
        uid: &str,
        netns: &Path,
        taken: &BTreeSet<IpAddr>,
        keep: &[IpAddr],
    ) -> Result<Vec<IpAddr>, SandboxFailure> {
        let limits = bandwidth::of_pod(pod).map_err(sandbox_failure)?;
        let ips = address::assign(&self.network.settings().subnets, taken, keep, &self.last_addresses)
            .map_err(|subnet| sandbox_failure(format!("no address is left in the pod subnet {subnet}")))?;
        self.last_addresses.clone_from(&ips);
        self.network.attach(uid, netns, &ips, limits).map_err(sandbox_failure)?;
        Ok(ips)
    }

    /// What `hostname` says in the pod: its own name, or the node's on the node's network.
    pub(super) fn host_name(&self, pod: &Pod) -> Result<String, SandboxFailure> {
        if host_network(pod) {
            return Ok(self.facts.hostname.clone());
        }
        hostname::pod_hostname(pod, &self.dns.cluster_domain).map_err(sandbox_failure)
    }

    pub(super) fn pod_etc_files(
        &self,
        pod: &Pod,
        uid: &str,
        ips: &[IpAddr],
    ) -> Result<Vec<(&'static str, String)>, SandboxFailure> {
        let hosts = if host_network(pod) {
            let own = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
            hosts::hosts_file_host_network(pod, &own)
        } else {
            let ips: Vec<String> = ips.iter().map(IpAddr::to_string).collect();
            hosts::hosts_file(pod, &ips, &self.dns.cluster_domain)
        };
        let hostname = self.host_name(pod)?;
        let dns = NodeDns { node_resolv_conf: resolv::read_node_resolv_conf(), ..self.dns.clone() };
        let resolv = resolv::resolv_conf(pod, &dns);
        let files = etc_files::EtcFiles { hosts, hostname: hostname + "\n", resolv_conf: resolv.content };
        let folder = self.pod_files(uid);
        crate::sys::files::private_dir(&folder).map_err(sandbox_failure)?;
        etc_files::write(&folder, &files).map_err(sandbox_failure)?;
        Ok(resolv.warnings)
    }

    /// Of a pod that has been prepared.
    fn namespace_request<'a>(&self, pod: &Pod, name: &'a str) -> NamespaceRequest<'a> {
        let own_network = !host_network(pod);
        let host_ipc = spec(pod).and_then(|spec| spec.host_ipc).unwrap_or(false);
        let hostname = own_network.then_some(name);
        let first_id = if own_users(pod) { user_ns::kept(&self.paths, &uid(pod)) } else { None };
        NamespaceRequest { net: own_network, ipc: !host_ipc, hostname, sysctls: &[], first_id }
    }

    /// Undoes [`Launcher::prepare_sandbox`], in reverse. `for_good` also deletes volumes and writable layers.
    /// Goes on after a failure; the first one is returned.
    ///
    /// # Errors
    /// Something of the pod is still in use.
    pub fn teardown_sandbox(&mut self, pod: &Pod, uid: &str, for_good: bool) -> Result<(), String> {
        let mut failures = Vec::new();
        let mut note = |what: &str, result: Result<(), String>| {
            if let Err(error) = result {
                failures.push(format!("{what}: {error}"));
            }
        };
        self.prepared.remove(uid);
        self.devices.free(uid, &self.paths);
        note("network", self.network.detach(uid).map_err(|error| error.to_string()));
        note("namespaces", namespaces::remove(&self.paths.namespaces(uid)).map_err(|error| error.to_string()));
        let stopping = if for_good { None } else { self.cgroups.stop_pod(class(pod), uid) };
        let removed = if stopping.is_some() { Ok(()) } else { self.cgroups.remove_pod(class(pod), uid) };
        match removed {
            // Dead processes leave a moment later, and those that nobody knows of are to: the caller's retry removes it.
            Err(CgroupError::Busy(path)) => {
                let _ = self.cgroups.kill_pod(class(pod), uid);
                note("cgroup", Err(format!("{} is busy", path.display())));
            }
            done => note("cgroup", done.map_err(|error| error.to_string())),
        }
        if for_good {
            self.helpers.end(&self.paths.pod(uid));
            note("volumes", volume::teardown(&self.paths, uid).map_err(|error| error.to_string()));
            note("folder", self.trash.throw(&self.paths.pod(uid)).map_err(|error| error.to_string()));
        }
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    pub fn has_cgroup(&self, pod: &Pod, uid: &str) -> bool {
        self.cgroups.has_pod(class(pod), uid)
    }

    /// Has systemd end the pod's cgroup, if it has one of it: waited for before [`Launcher::teardown_sandbox`].
    pub fn stop_cgroup(&self, pod: &Pod, uid: &str) -> Option<Pending> {
        self.cgroups.stop_pod(class(pod), uid)
    }

    /// What the containers of an already prepared pod start into; found again after a restart of the daemon.
    pub(super) fn prepared(
        &mut self,
        pod: &Pod,
        ips: &[IpAddr],
        objects: Objects<'_>,
    ) -> Result<Prepared, SandboxFailure> {
        let uid = uid(pod);
        if let Some(prepared) = self.prepared.get(&uid) {
            return Ok(prepared.clone());
        }
        let namespaces = self.existing_namespaces(pod, &uid)?;
        let facts = self.downward(pod, ips);
        let context = VolumeContext { paths: &self.paths, pod, objects, facts: &facts };
        let volumes = volume::setup(&context);
        let volumes = volumes.map_err(|error| mount_failure(&error))?;
        let prepared = Prepared { volumes, namespaces, devices: Vec::new() };
        self.prepared.insert(uid, prepared.clone());
        Ok(prepared)
    }

    /// Whether the namespaces of a pod prepared before this start of the daemon are still there.
    pub fn sandbox_exists(&self, pod: &Pod) -> bool {
        let uid = uid(pod);
        hostname::pod_hostname(pod, &self.dns.cluster_domain).is_ok_and(|name| {
            namespaces::existing(&self.paths.namespaces(&uid), &self.namespace_request(pod, &name)).is_some()
        })
    }

    /// Brings volumes made from objects up to date. Returns the names of those that changed.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn refresh_volumes(&self, pod: &Pod, ips: &[IpAddr], objects: Objects<'_>) -> Result<Vec<String>, VolumeError> {
        let facts = self.downward(pod, ips);
        volume::update(&VolumeContext { paths: &self.paths, pod, objects, facts: &facts })
    }
}

/// Host ports that no rule can forward, each as a Warning event.
fn unreachable_ports(pod: &Pod, ips: &[IpAddr]) -> Vec<(&'static str, String)> {
    if host_network(pod) {
        return Vec::new();
    }
    let told = |port: ports::HostPort| {
        let ip = port.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let message =
            format!("host port {} of {ip} cannot be forwarded: the pod has no address of that family", port.port);
        ("HostPortUnreachable", message)
    };
    ports::unreachable(pod, ips).into_iter().map(told).collect()
}

fn mount_failure(error: &VolumeError) -> SandboxFailure {
    SandboxFailure { reason: error.reason(), message: error.to_string() }
}

fn own_users(pod: &Pod) -> bool {
    spec(pod).and_then(|spec| spec.host_users) == Some(false)
}

pub(super) fn spec(pod: &Pod) -> Option<&PodSpec> {
    pod.spec.as_ref()
}

pub(super) fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

pub(super) fn class(pod: &Pod) -> PodCgroupClass {
    match qos_class(pod) {
        QosClass::Guaranteed => PodCgroupClass::Guaranteed,
        QosClass::Burstable => PodCgroupClass::Burstable,
        QosClass::BestEffort => PodCgroupClass::BestEffort,
    }
}
