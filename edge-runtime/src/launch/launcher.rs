//! What all launches share: the node's paths, facts, network and cgroups. Made once at start.
//! Knows nothing of records, the store or the link.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;

use k8s_openapi::api::core::v1::{NodeRuntimeHandler, Pod};
use serde_json::Value;

use super::cgroups::cgroup_of_container;
use super::devices::{Devices, Grant};
use super::looking::Looks;
use super::owning::Owners;
use super::runtimes::{Runtimes, Said};
use super::security::{admit, apparmor};
use super::user_ns::{self, Ids};
use super::{oci_spec, resources};
use crate::config::resources::Unlimited;
use crate::config::{Config, NetworkMode};
use crate::net::cni::Plugins;
use crate::net::namespaces::{NamespaceMaker, PodNamespaces};
use crate::net::resolv::NodeDns;
use crate::net::{NetError, Network, NetworkSettings, Subnet, host_addresses};
use crate::paths::Paths;
use crate::pod::extended_resources;
use crate::pod::refusal::Refusal;
use crate::pod::spec::host_network;
use crate::sys::cgroup::{CgroupError, Cgroups, Driver};
use crate::sys::host;
use crate::sys::trash::Trash;
use crate::volume::{DownwardFacts, VolumeHostPath};

/// Looks up a ConfigMap or Secret the node holds: kind, namespace, name.
pub type Objects<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Value>;

/// Why the node cannot launch anything at all.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// Prepares pods and containers on this node.
pub struct Launcher {
    pub(super) paths: Paths,
    pub(super) config: Rc<Config>,
    pub(super) namespaces: NamespaceMaker,
    pub(super) network: Network,
    plugins: Rc<Plugins>,
    pub(super) cgroups: Cgroups,
    pub(super) oci_facts: oci_spec::HostFacts,
    pub(super) facts: host::HostFacts,
    pub(super) apparmor: apparmor::Support,
    pub(super) devices: Devices,
    pub(super) runtimes: Runtimes,
    handlers: Vec<NodeRuntimeHandler>,
    /// Those that pods may have for their own, or why they cannot.
    pub(super) user_ids: Result<Ids, String>,
    pub(super) dns: NodeDns,
    pub(super) last_addresses: Vec<IpAddr>,
    /// Where the volumes and namespaces of prepared pods lie, by uid. Rebuilt when missing.
    pub(super) prepared: BTreeMap<String, Prepared>,
    host_ips: Vec<IpAddr>,
    /// The OCI runtime can make everything below a mount read-only.
    pub recursive_read_only: bool,
    /// What the default OCI runtime says of itself.
    pub runtime: Said,
    /// Texts about runtimes that are known to let containers out.
    pub outdated: BTreeSet<String>,
    /// Large folders of pods that have gone.
    pub(crate) trash: Trash,
    pub(super) helpers: Owners,
    looks: Looks,
}

/// What a prepared pod's containers are started into.
#[derive(Clone, Default)]
pub(super) struct Prepared {
    pub(super) volumes: BTreeMap<String, VolumeHostPath>,
    /// Of the container that is being started.
    pub(super) devices: Vec<Grant>,
    pub(super) namespaces: PodNamespaces,
}

impl Launcher {
    /// Detects the host and makes bridge and parent cgroups. The second value is what a user must be
    /// told although the node can work.
    ///
    /// # Errors
    /// No cgroup file system, no netlink, a bridge name in use by something else.
    pub fn new(paths: &Paths, config: Rc<Config>) -> Result<(Self, Vec<String>), LauncherError> {
        let mut warnings = Vec::new();
        let namespaces = NamespaceMaker::open()?;
        let cgroups = Cgroups::detect(config.cgroup_driver, &config.cgroup_parent)?;
        no_other_driver(&config)?;
        cgroups.prepare()?;
        let mut network = Network::new(network_settings(&config))?;
        if config.network.mode != NetworkMode::Cni {
            warnings.extend(network.ensure()?);
        }
        let oci_facts = oci_spec::HostFacts::detect();
        if oci_facts.min_oom_score_adj > -999 {
            warnings.push(format!(
                "oom_score_adj below {} is not allowed here (no CAP_SYS_RESOURCE): pods' values are clamped",
                oci_facts.min_oom_score_adj
            ));
        }
        let facts = host::facts();
        if let Err(error) = cgroups.bound_all(&resources::node_values(&facts, &config.reserved)) {
            warnings.push(format!("pods together are not kept within allocatable: {error}"));
        }
        let devices = Devices::load(config.devices.clone(), paths);
        let runtimes = Runtimes::new(&config);
        let user_ids = user_ns::detect(paths, &namespaces, config.max_pods);
        if let Err(why) = &user_ids {
            log::info!("pods cannot have users of their own (hostUsers: false): {why}");
        }
        let said = runtimes.ask_all();
        let outdated: BTreeSet<String> = said.iter().filter_map(|(_, said)| said.warning()).collect();
        warnings.extend(outdated.iter().cloned());
        let handlers = said
            .iter()
            .map(|(name, said)| NodeRuntimeHandler {
                name: Some(name.clone()),
                features: Some(said.features(user_ids.is_ok())),
            })
            .collect();
        // The default one comes first.
        let runtime = said.into_iter().next().map(|(_, said)| said).unwrap_or_default();
        let (apparmor, warning) = apparmor::detect();
        warnings.extend(warning);
        let dns = NodeDns {
            cluster_dns: config.network.cluster_dns.clone(),
            cluster_domain: config.network.cluster_domain.clone(),
            // Read for each pod: DHCP changes it.
            node_resolv_conf: String::new(),
        };
        let plugins = Rc::new(Plugins::new(config.network.cni_bin_dirs.clone()));
        let launcher = Self {
            host_ips: main_family_first(host_addresses::internal_ips(), &config.network.subnets),
            paths: paths.clone(),
            config,
            namespaces,
            network,
            plugins,
            cgroups,
            oci_facts,
            facts,
            apparmor,
            devices,
            runtimes,
            handlers,
            user_ids,
            dns,
            last_addresses: Vec::new(),
            prepared: BTreeMap::new(),
            recursive_read_only: runtime.recursive_read_only,
            runtime,
            outdated,
            trash: Trash::new(paths.trash()),
            helpers: Owners::default(),
            looks: Looks::default(),
        };
        Ok((launcher, warnings))
    }

    /// As [`Launcher::new`], but makes nothing: to take away what an earlier run made.
    ///
    /// # Errors
    /// No cgroup file system, no netlink.
    pub fn for_teardown(paths: &Paths, config: Rc<Config>) -> Result<Self, LauncherError> {
        Ok(Self {
            paths: paths.clone(),
            namespaces: NamespaceMaker::open()?,
            cgroups: Cgroups::detect(Driver::Cgroupfs, &config.cgroup_parent)?,
            network: Network::new(network_settings(&config))?,
            plugins: Rc::new(Plugins::new(config.network.cni_bin_dirs.clone())),
            config,
            oci_facts: oci_spec::HostFacts::default(),
            facts: host::HostFacts::default(),
            apparmor: apparmor::Support::Off,
            devices: Devices::default(),
            runtimes: Runtimes::default(),
            handlers: Vec::new(),
            user_ids: Err("not looked at".to_owned()),
            dns: NodeDns::default(),
            last_addresses: Vec::new(),
            prepared: BTreeMap::new(),
            recursive_read_only: false,
            runtime: Said::default(),
            outdated: BTreeSet::new(),
            host_ips: Vec::new(),
            trash: Trash::new(paths.trash()),
            helpers: Owners::default(),
            looks: Looks::default(),
        })
    }

    pub fn facts(&self) -> &host::HostFacts {
        &self.facts
    }

    pub fn host_ips(&self) -> &[IpAddr] {
        &self.host_ips
    }

    /// Looks which addresses the machine has by now; whether that changed. One without any keeps those it had.
    pub fn look_at_addresses(&mut self) -> bool {
        let now = main_family_first(host_addresses::internal_ips(), &self.config.network.subnets);
        if now.is_empty() || now == self.host_ips {
            return false;
        }
        log::info!("the node's addresses are {now:?}, and were {:?}", self.host_ips);
        self.host_ips = now;
        true
    }

    /// Why this node can never run `pod` as its security context says.
    pub fn refusal(&self, pod: &Pod) -> Option<Refusal> {
        let unsafe_sysctls = &self.config.security.allowed_unsafe_sysctls;
        let selinux = admit::has_selinux();
        let refuses = self.config.resources.without_memory_controller == Unlimited::Refuse;
        let memory_limits = !refuses || self.memory_controller();
        let user_namespaces = self.user_ids.as_ref().map(drop).map_err(String::as_str);
        let apparmor = self.apparmor;
        let node = admit::Abilities { unsafe_sysctls, apparmor, selinux, memory_limits, user_namespaces };
        admit::refusal(pod, &node)
    }

    /// Why the board's devices do not suffice for `pod` beside `others`.
    pub fn devices_refusal<'a>(&self, pod: &Pod, others: impl Iterator<Item = &'a Pod>) -> Option<Refusal> {
        extended_resources::admit(pod, others, || self.devices.capacity())
    }

    /// Resource names with how many there are, for the Node object.
    pub fn device_capacity(&self) -> BTreeMap<String, u64> {
        self.devices.capacity()
    }

    /// `status.runtimeHandlers` of the Node object.
    pub fn runtime_handlers(&self) -> &[NodeRuntimeHandler] {
        &self.handlers
    }

    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// The runner of CNI plugins.
    pub fn plugins(&self) -> &Rc<Plugins> {
        &self.plugins
    }

    /// Who looks at volumes that are not the node's own.
    pub fn looks(&self) -> &Looks {
        &self.looks
    }

    /// The pods' network, for the rules that host ports need.
    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// Kills what is in a container's cgroup, if there is anything.
    pub fn kill_container(&self, pod: &Pod, uid: &str, id: &str) {
        if let Err(error) = self.cgroups.kill(&cgroup_of_container(&self.cgroups, pod, uid, id)) {
            log::warn!("container {id}: {error}");
        }
    }

    /// Does what is asked of systemd, if its cgroup driver is used: to be spawned once.
    pub fn systemd_worker(&self) -> Option<impl Future<Output = ()> + use<> + 'static> {
        self.cgroups.worker()
    }

    /// Whether memory limits can be enforced here.
    pub fn memory_controller(&self) -> bool {
        self.cgroups.controllers().memory
    }

    /// Whether there is a pod's cgroup, and with it perhaps what runs.
    pub fn has_cgroup_of(&self, uid: &str) -> bool {
        self.cgroups.pods().iter().any(|(_, found)| found == uid)
    }

    /// Kills what runs for a pod of which nothing is recorded.
    pub fn kill_unknown(&self, uid: &str) {
        for (class, uid) in self.cgroups.pods().into_iter().filter(|(_, found)| found == uid) {
            if let Err(error) = self.cgroups.kill_pod(class, &uid) {
                log::warn!("pod {uid}: {error}");
            }
        }
    }

    /// Links, pinned namespaces and cgroups of pods that are no longer known: left by a crash.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn sweep(&mut self, known: &BTreeSet<String>) -> Result<(), NetError> {
        for (class, uid) in self.cgroups.pods().into_iter().filter(|(_, uid)| !known.contains(uid)) {
            let gone = self.cgroups.kill_pod(class, &uid).and_then(|()| self.cgroups.remove_pod(class, &uid));
            if let Err(error) = gone {
                // What is being killed is still there; systemd is on its way.
                log::debug!("pod {uid}, which is not known: {error}");
            }
        }
        self.network.cleanup(known)?;
        let ns = self.paths.run().join("ns");
        for entry in std::fs::read_dir(&ns).into_iter().flatten().flatten() {
            if !known.contains(entry.file_name().to_string_lossy().as_ref()) {
                crate::net::namespaces::remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes bridge, firewall table and cgroups of this node: for `reset`, when no pod is left.
    ///
    /// # Errors
    /// The first failure; the rest is removed all the same.
    pub fn teardown_node(&mut self) -> Result<(), LauncherError> {
        self.detach_all();
        let network = self.network.teardown();
        // The configuration may have changed since: whatever there is goes.
        for driver in [Driver::Systemd, Driver::Cgroupfs] {
            match Cgroups::detect(driver, &self.config.cgroup_parent) {
                Ok(cgroups) if cgroups.is_there() => cgroups.teardown()?,
                _ => {}
            }
        }
        Ok(network?)
    }

    pub(super) fn downward(&self, pod: &Pod, pod_ips: &[IpAddr]) -> DownwardFacts {
        // A pod on the node's network has no address of its own.
        let pod_ips = if host_network(pod) { &self.host_ips } else { pod_ips };
        let text = |ips: &[IpAddr]| ips.iter().map(IpAddr::to_string).collect();
        DownwardFacts {
            node_name: self.config.node_name.clone(),
            host_ips: text(&self.host_ips),
            pod_ips: text(pod_ips),
            allocatable_cpu_milli: self.config.allocatable_cpu_milli(self.facts.cpus),
            allocatable_memory_bytes: self.config.allocatable_memory(self.facts.memory_bytes),
            allocatable_storage_bytes: host::disk_space(&self.paths.state())
                .map_or(0, |space| self.config.allocatable_storage(space.total_bytes)),
            pod_memory_limit: resources::pod_memory_limit(pod),
        }
    }

    /// Folder of the files every container of the pod mounts (`hosts`, `resolv.conf`, ...). On the disk and in the
    /// pod's own folder, because the pod can write them: what it writes there counts as its ephemeral storage, as with
    /// a kubelet, and fills no memory of the node.
    pub(super) fn pod_files(&self, uid: &str) -> PathBuf {
        self.paths.pod_files(uid)
    }
}

fn network_settings(config: &Config) -> NetworkSettings {
    NetworkSettings { bridge: config.network.bridge.clone(), subnets: config.network.subnets.clone() }
}

/// The node's main address is of the family of the pods' main address.
fn main_family_first(mut ips: Vec<IpAddr>, subnets: &[Subnet]) -> Vec<IpAddr> {
    let main = subnets.first().is_none_or(|subnet| subnet.is_ipv4());
    ips.sort_by_key(|ip| ip.is_ipv4() != main);
    ips
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
