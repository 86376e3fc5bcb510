//! From nothing to a pod that containers can be started into, as an ordered list of steps: cgroup,
//! namespaces, network, files, volumes. Each step can be repeated and undone at any time.

mod cni;
mod namespaces;
mod network;
mod ownership;
mod volumes;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;

use self::network::{main_family_first, unreachable_ports};
use self::ownership::OwnershipHelpers;
use super::base::{Base, Objects};
use super::cgroups::class;
use super::error::SandboxError;
use super::looking::Looks;
use super::resources;
use super::runtimes::Runtimes;
use super::security::admit;
use super::teardown::Teardown;
use super::user_ns::Ids;
use crate::net::cni::Attachment;
use crate::net::host_addresses;
use crate::net::namespaces::{NamespaceMaker, PodNamespaces};
use crate::pod::cpus;
use crate::pod::spec::uid;
use crate::sys::cgroup::Pending;
use crate::sys::files::private_dir;
use crate::sys::host::HostFacts;
use crate::sys::vec_map::VecMap;
use crate::volume::{DownwardFacts, VolumeHostPath};

/// A prepared pod, and warnings for its user.
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
    /// It has these addresses, none with `hostNetwork`; then [`Sandboxes::finish`].
    Connected(Vec<IpAddr>),
    /// CNI plugins have to attach it; then [`Sandboxes::finish`].
    Attach(Attachment),
    /// systemd has to make its cgroup; then the same once more.
    Cgroup(Pending),
}

/// Prepares pods on this node, and takes back what it has prepared.
pub struct Sandboxes {
    pub(super) base: Rc<Base>,
    pub teardown: Teardown,
    pub(super) host: Rc<HostFacts>,
    pub host_ips: Vec<IpAddr>,
    pub(super) namespaces: NamespaceMaker,
    pub(super) runtimes: Rc<Runtimes>,
    /// Those that pods may have for their own, or why they cannot.
    pub(super) user_ids: Result<Ids, String>,
    last_addresses: Vec<IpAddr>,
    /// Where the volumes and namespaces of prepared pods lie, by uid. Rebuilt when missing.
    prepared: VecMap<String, Prepared>,
    helpers: OwnershipHelpers,
    /// Inspects volumes that are not the node's own.
    pub looks: Looks,
}

#[derive(Clone, Default)]
pub(super) struct Prepared {
    pub(super) volumes: VecMap<String, VolumeHostPath>,
    pub(super) namespaces: PodNamespaces,
}

/// Prepared resources of a pod for the start of its containers.
pub struct Sandbox {
    pub(super) prepared: Prepared,
    pub(super) facts: DownwardFacts,
    pub(super) host_name: String,
    /// Address of the local API, if the pod uses it.
    pub(super) local_api: Option<IpAddr>,
}

impl Sandboxes {
    pub(super) fn new(
        (base, host, runtimes): (Rc<Base>, Rc<HostFacts>, Rc<Runtimes>),
        teardown: Teardown,
        namespaces: NamespaceMaker,
        user_ids: Result<Ids, String>,
    ) -> Self {
        Self {
            host_ips: main_family_first(host_addresses::internal_ips(), &base.config.network.subnets),
            base,
            teardown,
            host,
            namespaces,
            runtimes,
            user_ids,
            last_addresses: Vec::new(),
            prepared: VecMap::new(),
            helpers: OwnershipHelpers::default(),
            looks: Looks::default(),
        }
    }

    /// The steps of a pod, after [`Sandboxes::volume_looks`]. `taken` are the addresses of all other pods; `keep` are the addresses this pod had before.
    ///
    /// # Errors
    /// The first step that fails; what was made is undone.
    pub fn prepare(
        &mut self,
        pod: &Pod,
        taken: &BTreeSet<IpAddr>,
        keep: &[IpAddr],
        objects: Objects<'_>,
    ) -> Result<Preparation, SandboxError> {
        let done = self.steps(pod, uid(pod), taken, keep, objects);
        if done.is_err() {
            self.undo(pod);
        }
        done
    }

    /// Takes away what a failed preparation has made.
    pub fn undo(&mut self, pod: &Pod) {
        let uid = uid(pod);
        if let Err(error) = self.teardown(pod, uid, false) {
            log::warn!("pod {uid}: undoing a failed preparation: {error}");
        }
    }

    fn steps(
        &mut self,
        pod: &Pod,
        uid: &str,
        taken: &BTreeSet<IpAddr>,
        keep: &[IpAddr],
        objects: Objects<'_>,
    ) -> Result<Preparation, SandboxError> {
        let handler = self.runtimes.handler_of(pod, objects)?;
        let dir = self.base.paths.pod(uid);
        private_dir(&dir)?;
        if pod.spec.as_ref().is_some_and(|spec| spec.runtime_class_name.is_some()) {
            Runtimes::remember(&dir, &handler)?;
        }
        if let Some(pending) = pod_cgroup(&self.base, pod)? {
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
        Ok(Preparation::Connected(ips))
    }

    /// The steps that need the pod's addresses, and the tokens of its volumes.
    ///
    /// # Errors
    /// The first step that fails; nothing is undone.
    pub fn finish(&mut self, pod: &Pod, ips: Vec<IpAddr>, objects: Objects<'_>) -> Result<SandboxDone, SandboxError> {
        let namespaces = self.existing_namespaces(pod)?;
        let mut warnings = self.pod_etc_files(pod, &ips)?;
        warnings.extend(unreachable_ports(pod, &ips));
        if !self.base.memory_controller() && admit::has_memory_limit(pod) {
            warnings.push(("MemoryLimitNotEnforced", admit::NO_MEMORY_CONTROLLER.to_owned()));
        }
        self.set_up_volumes(pod, &ips, objects, namespaces)?;
        Ok(SandboxDone { ips, warnings })
    }

    /// What the containers of an already prepared pod start into; found again after a restart of the daemon.
    ///
    /// # Errors
    /// Its namespaces are gone, or its volumes cannot be made again.
    pub fn open(&mut self, pod: &Pod, ips: &[IpAddr], objects: Objects<'_>) -> Result<Sandbox, SandboxError> {
        let uid = uid(pod);
        if !self.prepared.contains_key(uid) {
            let namespaces = self.existing_namespaces(pod)?;
            self.set_up_volumes(pod, ips, objects, namespaces)?;
        }
        // The pod may have been resized since it was made: while init containers ran, or by the end of an attempt.
        // The cgroup is there: with systemd's driver nothing has to wait for them.
        if let Err(error) = pod_cgroup(&self.base, pod) {
            log::warn!("pod {uid}: its cgroup keeps its former values: {error}");
        }
        if !self.base.paths.pod_files(uid).exists() {
            // An earlier version prepared the pod, and kept them elsewhere.
            self.pod_etc_files(pod, ips)?;
        }
        let prepared = self.prepared.get(uid).cloned().unwrap_or_default();
        let (facts, local_api) = (self.downward(pod, ips), self.local_api(pod, ips));
        Ok(Sandbox { prepared, facts, host_name: self.host_name(pod)?, local_api })
    }

    /// Takes the pod away as far as it was prepared. `for_good` also deletes volumes and writable layers.
    ///
    /// # Errors
    /// Something of the pod is still in use.
    pub fn teardown(&mut self, pod: &Pod, uid: &str, for_good: bool) -> Result<(), String> {
        self.prepared.remove(uid);
        if for_good {
            self.helpers.end(&self.base.paths.pod(uid));
        }
        self.teardown.pod(pod, uid, for_good)
    }
}

/// Applies the pod's newest spec to its cgroup; creates the cgroup if it is missing.
pub(super) fn pod_cgroup(base: &Base, pod: &Pod) -> Result<Option<Pending>, SandboxError> {
    let mut values = resources::pod_values(pod)?;
    values.pids_limit = base.config.security.pod_pids_limit;
    // A pod that has CPUs for itself is not throttled on them (K8s feature gate `DisableCPUQuotaWithExclusiveCPUs`).
    if base.has_exclusive_cpus() && cpus::wants_any(pod) {
        values.cpu_quota_us = Some(resources::NO_QUOTA);
    }
    Ok(base.cgroups.create_pod(class(pod), uid(pod), &values)?)
}
