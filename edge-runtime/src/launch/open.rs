//! Detects the host's features at the start, and creates what all pods share: bridge and parent cgroups.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use k8s_openapi::api::core::v1::{NodeRuntimeHandler, Pod};

use super::base::Base;
use super::container::Containers;
use super::cpus::{self, Cpus};
use super::error::OpenError;
use super::runtimes::{Runtimes, Said};
use super::sandbox::Sandboxes;
use super::security::{admit, apparmor};
use super::teardown::Teardown;
use super::{oci_spec, resources, user_ns};
use crate::config::resources::Unlimited;
use crate::config::{Config, NetworkMode};
use crate::image::rootfs;
use crate::net::NamespaceMaker;
use crate::paths::Paths;
use crate::pod::refusal::Refusal;
use crate::sys::cgroup::{CgroupError, Cgroups, Driver};
use crate::sys::gather::Gather;
use crate::sys::host::{self, HostFacts};

/// What launches pods on this node.
pub struct Launch {
    pub base: Rc<Base>,
    pub host: Rc<HostFacts>,
    pub runtimes: Rc<Runtimes>,
    pub sandboxes: Sandboxes,
    pub containers: Containers,
    /// `status.runtimeHandlers` of the Node object.
    pub handlers: Vec<NodeRuntimeHandler>,
    /// Facts that the default OCI runtime reports.
    pub runtime: Said,
    /// Texts about runtimes that are known to let containers out.
    pub outdated: BTreeSet<String>,
}

impl Launch {
    /// The second value is a warning for the user, although the node works.
    ///
    /// # Errors
    /// No cgroup file system, no netlink, a bridge name in use by something else.
    pub fn open(paths: &Paths, config: Rc<Config>) -> Result<(Self, Vec<String>), OpenError> {
        let mut warnings = Vec::new();
        let namespaces = NamespaceMaker::open()?;
        let cgroups = Cgroups::detect(config.cgroup_driver, &config.cgroup_parent)?;
        no_other_driver(&config)?;
        cgroups.prepare()?;
        let base = Base::new(paths, config, cgroups);
        let mut teardown = Teardown::of(Rc::clone(&base))?;
        if base.config.network.mode != NetworkMode::Cni {
            warnings.extend(teardown.network.ensure()?);
        }
        let oci_facts = oci_spec::HostFacts::detect(base.cgroups.is_v2(), base.cgroups.controllers());
        if oci_facts.min_oom_score_adj > -999 {
            warnings.push(format!(
                "oom_score_adj below {} is not allowed here (no CAP_SYS_RESOURCE): pods' values are clamped",
                oci_facts.min_oom_score_adj
            ));
        }
        if let Ok(Some(error)) = rootfs::refused(&base.paths.state()) {
            warnings.push(format!(
                "no container can start: overlayfs takes no writable layer below {} ({error}); this folder must not lie \
                 on an overlay or on NFS: put it on a disk of its own",
                base.paths.state().display()
            ));
        }
        let host = Rc::new(host::facts());
        if let Err(error) = base.cgroups.bound_all(&resources::node_values(&host, &base.config.reserved)) {
            warnings.push(format!("pods together are not kept within allocatable: {error}"));
        }
        let runtimes = Rc::new(Runtimes::new(&base.config));
        let user_ids = user_ns::detect(paths, &namespaces, base.config.max_pods).map_err(|error| error.to_string());
        if let Err(why) = &user_ids {
            log::info!("pods cannot have users of their own (hostUsers: false): {why}");
        }
        let shared = (Rc::clone(&base), Rc::clone(&host), Rc::clone(&runtimes));
        let sandboxes = Sandboxes::new(shared, teardown, namespaces, user_ids);
        let said = runtimes.ask_all();
        let outdated: BTreeSet<String> = said.iter().filter_map(|(_, said)| said.warning()).into_set();
        warnings.extend(outdated.iter().cloned());
        let own_users = sandboxes.user_ids.is_ok();
        let handler = |(name, said): &(String, Said)| NodeRuntimeHandler {
            name: Some(name.clone()),
            features: Some(said.features(own_users)),
        };
        let handlers = said.iter().map(handler).collect();
        // The default one comes first.
        let runtime = said.into_iter().next().map(|(_, said)| said).unwrap_or_default();
        let (apparmor, warning) = apparmor::detect();
        warnings.extend(warning);
        let facts = (Rc::clone(&host), oci_facts, apparmor, runtime.recursive_read_only);
        let mut containers = Containers::new(Rc::clone(&base), Rc::clone(&runtimes), facts);
        match Cpus::open(&base, Path::new(cpus::SYS)) {
            Ok(cpus) => {
                warnings.extend(cpus.reserve_warning());
                containers.cpus = cpus;
            }
            Err(why) => warnings.push(format!("resources.cpu-manager: static has no effect: {why}")),
        }
        Ok((Self { base, host, runtimes, sandboxes, containers, handlers, runtime, outdated }, warnings))
    }

    /// A host that runs nothing: without cgroups and OCI runtimes, and with a network that was not set up.
    #[cfg(test)]
    pub(crate) fn for_tests(paths: &Paths, config: Rc<Config>) -> Self {
        Self::with_cgroups(paths, config, Cgroups::absent())
    }

    #[cfg(test)]
    pub(crate) fn with_cgroups(paths: &Paths, config: Rc<Config>, cgroups: Cgroups) -> Self {
        let base = Base::new(paths, config, cgroups);
        let host = Rc::new(HostFacts { cpus: 4, memory_bytes: 4 << 30, ..HostFacts::default() });
        let runtimes = Rc::new(Runtimes::new(&base.config));
        let teardown = Teardown::of(Rc::clone(&base)).unwrap();
        let shared = (Rc::clone(&base), Rc::clone(&host), Rc::clone(&runtimes));
        let user_ids = Err("not in tests".to_owned());
        let sandboxes = Sandboxes::new(shared, teardown, NamespaceMaker::open().unwrap(), user_ids);
        let facts = (Rc::clone(&host), oci_spec::HostFacts::default(), apparmor::Support::Off, false);
        let containers = Containers::new(Rc::clone(&base), Rc::clone(&runtimes), facts);
        let (handlers, outdated) = (Vec::new(), BTreeSet::new());
        Self { base, host, runtimes, sandboxes, containers, handlers, runtime: Said::default(), outdated }
    }

    /// Why this node can never run `pod` as its security context says.
    pub fn refusal(&self, pod: &Pod) -> Option<Refusal> {
        let config = &self.base.config;
        let refuses = config.resources.without_memory_controller == Unlimited::Refuse;
        let node = admit::Abilities {
            unsafe_sysctls: &config.security.allowed_unsafe_sysctls,
            apparmor: self.containers.apparmor,
            selinux: admit::has_selinux(),
            memory_limits: !refuses || self.base.memory_controller(),
            user_namespaces: self.sandboxes.user_ids.as_ref().map(drop).map_err(String::as_str),
        };
        admit::refusal(pod, &node)
    }

    /// Takes a pod away: answers as [`Sandboxes::teardown`].
    ///
    /// # Errors
    /// Something of the pod is still in use.
    pub fn teardown(&mut self, pod: &Pod, uid: &str, for_good: bool) -> Result<(), String> {
        self.sandboxes.teardown(pod, uid, for_good)?;
        // No process has them any more.
        self.containers.free_devices(uid);
        if for_good {
            self.containers.free_allocations(uid);
            self.containers.cpus.free(uid);
        }
        Ok(())
    }
}

/// A pod's cgroups are of one driver, as long as it runs. An empty tree of the other one is taken away.
fn no_other_driver(config: &Config) -> Result<(), CgroupError> {
    let (other, name) = match config.cgroup_driver {
        Driver::Cgroupfs => (Driver::Systemd, "systemd"),
        Driver::Systemd => (Driver::Cgroupfs, "cgroupfs"),
    };
    match Cgroups::detect(other, &config.cgroup_parent) {
        Ok(cgroups) if !cgroups.pods().is_empty() => Err(CgroupError::DriverChanged(name)),
        Ok(cgroups) if cgroups.is_there() => cgroups.teardown(),
        _ => Ok(()),
    }
}
