//! Taking away what was made for pods, and, for `reset`, for the node. Needs to know nothing of how it was made.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use k8s_openapi::api::core::v1::Pod;

use super::base::Base;
use super::cgroups::{cgroup_of_container, class};
use super::error::OpenError;
use crate::config::Config;
use crate::net::cni::Plugins;
use crate::net::{NetError, Network, NetworkSettings, dns_link, namespaces};
use crate::paths::Paths;
use crate::sys::cgroup::{CgroupError, Cgroups, Driver, Pending};
use crate::sys::files::private_dir;
use crate::volume;

/// In a pod's folder: its attachment to a CNI network, as long as it has one.
const ATTACHMENT: &str = "cni.json";
/// Beside it: what plugins still hold for a pod that the built-in bridge has connected since.
const FORMER: &str = "cni.former.json";

pub struct Teardown {
    pub(super) base: Rc<Base>,
    /// The pods' network, for the rules that host ports need.
    pub network: Network,
    /// The runner of CNI plugins.
    pub plugins: Rc<Plugins>,
}

impl Teardown {
    /// Opens what an earlier run created; creates nothing.
    ///
    /// # Errors
    /// No cgroup file system, no netlink.
    pub fn new(paths: &Paths, config: Rc<Config>) -> Result<Self, OpenError> {
        let cgroups = Cgroups::detect(Driver::Cgroupfs, &config.cgroup_parent)?;
        Self::of(Base::new(paths, config, cgroups))
    }

    pub(super) fn of(base: Rc<Base>) -> Result<Self, OpenError> {
        let of_node = &base.config.network;
        let settings = NetworkSettings {
            bridge: of_node.bridge.clone(),
            subnets: of_node.subnets.clone(),
            neighbours: of_node.has_routes().then(Vec::new),
        };
        let plugins = Rc::new(Plugins::new(of_node.cni_bin_dirs.clone()));
        Ok(Self { network: Network::new(settings)?, plugins, base })
    }

    /// Undoes the preparation of a pod, in reverse. `for_good` also deletes volumes and writable layers.
    /// Goes on after a failure; the first one is returned.
    ///
    /// # Errors
    /// Something of the pod is still in use.
    pub fn pod(&self, pod: &Pod, uid: &str, for_good: bool) -> Result<(), String> {
        let mut done = Ok(());
        note(&mut done, "namespaces", namespaces::remove(&self.base.paths.namespaces(uid)));
        let stopping = if for_good { None } else { self.base.cgroups.stop_pod(class(pod), uid) };
        let removed = if stopping.is_some() { Ok(()) } else { self.base.cgroups.remove_pod(class(pod), uid) };
        let is_empty = removed.is_ok();
        match removed {
            // Dead processes disappear a moment later, and unknown ones are killed here: the caller's retry removes the
            // cgroup.
            Err(CgroupError::Busy(path)) => {
                let _ = self.base.cgroups.kill_pod(class(pod), uid);
                note(&mut done, "cgroup", Err(format!("{} is busy", path.display())));
            }
            removed => note(&mut done, "cgroup", removed),
        }
        if for_good {
            note(&mut done, "volumes", volume::teardown(&self.base.paths, uid));
        }
        // The folder says which devices of plugins the processes have: no other pod gets them while one is left, also after
        // a restart of the daemon.
        if for_good && is_empty {
            let folder = self.base.paths.pod(uid);
            note(&mut done, "folder", self.base.trash.throw(&folder));
            // Empty, until the logs go: it shows that they are this node's. A full disk must not keep the pod.
            let _ = private_dir(&folder);
        }
        done
    }

    pub fn has_cgroup(&self, pod: &Pod, uid: &str) -> bool {
        self.base.cgroups.has_pod(class(pod), uid)
    }

    /// Asks systemd to stop the pod's slice, if it has one. Wait for the result before [`Teardown::pod`].
    pub fn stop_cgroup(&self, pod: &Pod, uid: &str) -> Option<Pending> {
        self.base.cgroups.stop_pod(class(pod), uid)
    }

    /// Kills what is in a container's cgroup, if there is anything.
    pub fn kill_container(&self, pod: &Pod, uid: &str, id: &str) {
        if let Err(error) = self.base.cgroups.kill(&cgroup_of_container(&self.base.cgroups, pod, uid, id)) {
            log::warn!("container {id}: {error}");
        }
    }

    /// Whether there is a pod's cgroup, and with it perhaps what runs.
    pub fn has_cgroup_of(&self, uid: &str) -> bool {
        self.base.cgroups.pods().iter().any(|(_, found)| found == uid)
    }

    /// Kills what runs for a pod of which nothing is recorded.
    pub fn kill_unknown(&self, uid: &str) {
        for (class, uid) in self.base.cgroups.pods().into_iter().filter(|(_, found)| found == uid) {
            if let Err(error) = self.base.cgroups.kill_pod(class, &uid) {
                log::warn!("pod {uid}: {error}");
            }
        }
    }

    /// Links, pinned namespaces and cgroups of pods that are no longer known: left by a crash.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn sweep(&mut self, known: &BTreeSet<String>) -> Result<(), NetError> {
        for (class, uid) in self.base.cgroups.pods().into_iter().filter(|(_, uid)| !known.contains(uid)) {
            let gone = self.base.cgroups.kill_pod(class, &uid).and_then(|()| self.base.cgroups.remove_pod(class, &uid));
            if let Err(error) = gone {
                // Processes that are being killed still exist, or systemd is at work.
                log::debug!("pod {uid}, which is not known: {error}");
            }
        }
        self.network.cleanup(known)?;
        let ns = self.base.paths.run().join("ns");
        for entry in fs::read_dir(&ns).into_iter().flatten().flatten() {
            if !known.contains(entry.file_name().to_string_lossy().as_ref()) {
                namespaces::remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes bridge, firewall table and cgroups of this node: for `reset`, when no pod is left.
    ///
    /// # Errors
    /// The first failure; all other objects are removed anyway.
    pub fn node(&mut self) -> Result<(), OpenError> {
        self.detach_all();
        let network = self.network.teardown();
        let network = network.and(dns_link::remove(&self.network.settings().bridge));
        // The configuration may have changed since: whatever there is goes.
        for driver in [Driver::Systemd, Driver::Cgroupfs] {
            match Cgroups::detect(driver, &self.base.config.cgroup_parent) {
                Ok(cgroups) if cgroups.is_there() => cgroups.teardown()?,
                _ => {}
            }
        }
        Ok(network?)
    }

    /// Where the pod's attachment is kept.
    pub fn attachment_file(&self, uid: &str) -> PathBuf {
        self.base.paths.pod(uid).join(ATTACHMENT)
    }

    /// Whether plugins connect the pod.
    pub fn is_attached(&self, uid: &str) -> bool {
        self.attachment_file(uid).exists()
    }

    /// The built-in bridge connects the pod, after a change of `network.mode`: what plugins hold for it connects it no
    /// longer, and is released with it.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn set_attachment_aside(&self, uid: &str) -> io::Result<()> {
        if !self.is_attached(uid) {
            return Ok(());
        }
        fs::rename(self.attachment_file(uid), self.former_file(uid))
    }

    /// Plugins connect the pod again: they release first what they hold for it.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn take_attachment_back(&self, uid: &str) -> io::Result<()> {
        if self.is_attached(uid) || !self.former_file(uid).exists() {
            return Ok(());
        }
        fs::rename(self.former_file(uid), self.attachment_file(uid))
    }

    /// Where the next attachment that plugins have to release is kept.
    pub fn held(&self, uid: &str) -> Option<PathBuf> {
        [self.attachment_file(uid), self.former_file(uid)].into_iter().find(|file| file.exists())
    }

    fn former_file(&self, uid: &str) -> PathBuf {
        self.base.paths.pod(uid).join(FORMER)
    }

    /// Pods for which plugins hold something.
    pub fn attached(&self) -> Vec<String> {
        let pods = self.base.paths.state().join("pods");
        let all = fs::read_dir(pods).into_iter().flatten().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|uid| self.held(uid).is_some()).collect()
    }

    /// Has plugins release all pods, for `reset`. Failures are logged and ignored.
    fn detach_all(&self) {
        for uid in self.attached() {
            for file in [self.attachment_file(&uid), self.former_file(&uid)] {
                if let Err(error) = smol::block_on(self.plugins.detach(&file)) {
                    log::error!("pod {uid}: {error}");
                }
            }
        }
    }
}

/// Remembers the first failure.
fn note(first: &mut Result<(), String>, what: &str, done: Result<(), impl Display>) {
    if let (Ok(()), Err(error)) = (&*first, done) {
        *first = Err(format!("{what}: {error}"));
    }
}

#[cfg(test)]
mod tests;
