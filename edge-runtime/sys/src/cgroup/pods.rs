//! Cgroups of pods: paths, creation, removal, and the weight of all burstable ones together.

use super::tree;
use super::types::{CgroupError, CgroupValues, CgroupVersion, PodCgroupClass};
use super::{Cgroups, MIN_SHARES, Pending, weight};
use crate::sort::sort_by;

impl Cgroups {
    /// Path of a pod's cgroup, absolute below each hierarchy's root.
    pub fn pod_path(&self, class: PodCgroupClass, uid: &str) -> String {
        self.names.pod(class, uid)
    }

    /// Same as [`Cgroups::pod_path`], for a container.
    pub fn container_path(&self, class: PodCgroupClass, uid: &str, id: &str) -> String {
        self.names.container(class, uid, id)
    }

    pub fn has_pod(&self, class: PodCgroupClass, uid: &str) -> bool {
        self.exists(&self.pod_path(class, uid))
    }

    /// OCI `linux.cgroupsPath` of a container.
    pub fn runtime_path(&self, class: PodCgroupClass, uid: &str, id: &str) -> String {
        self.names.for_runtime(class, uid, id)
    }

    /// Creates the pod's cgroup with `values`, or sets the values again. Omits values of a controller that the kernel
    /// lacks (the node condition reports that). Wait for the returned value.
    pub fn create_pod(
        &self,
        class: PodCgroupClass,
        uid: &str,
        values: &CgroupValues,
    ) -> Result<Option<Pending>, CgroupError> {
        let path = self.pod_path(class, uid);
        let pending = match &self.slices {
            Some(slices) => slices.pod(&path, uid, values, self.exists(&path)),
            None => self.make_pod(&path, values).map(|()| None)?,
        };
        if let (PodCgroupClass::Burstable, Some(shares)) = (class, values.cpu_shares) {
            self.weigh_burstable(self.burstable.add(uid, shares))?;
        }
        Ok(pending)
    }

    fn make_pod(&self, path: &str, values: &CgroupValues) -> Result<(), CgroupError> {
        match self.hierarchies.version {
            // The OCI runtime makes the folder in the hierarchies where we set nothing.
            CgroupVersion::V1 => {
                let wanted = [
                    ("cpu", values.cpu_shares.is_some() || values.cpu_quota_us.is_some()),
                    ("memory", values.memory_limit_bytes.is_some()),
                    ("pids", values.pids_limit.is_some()),
                ];
                for (controller, _) in wanted.into_iter().filter(|(_, wanted)| *wanted) {
                    if let Some(mount) = self.hierarchies.of(controller) {
                        tree::make(&self.below(mount, path))?;
                    }
                }
            }
            CgroupVersion::V2 => {
                for mount in self.hierarchies.all() {
                    tree::make(&self.below(mount, path))?;
                }
            }
        }
        self.apply(path, values)
    }

    /// Same as [`Cgroups::kill`], for a pod.
    pub fn kill_pod(&self, class: PodCgroupClass, uid: &str) -> Result<(), CgroupError> {
        self.kill(&self.pod_path(class, uid))
    }

    /// Stops the pod's unit, if systemd's driver has one. Wait for it before [`Cgroups::remove_pod`].
    pub fn stop_pod(&self, class: PodCgroupClass, uid: &str) -> Option<Pending> {
        let (slices, path) = (self.slices.as_ref()?, self.pod_path(class, uid));
        self.exists(&path).then(|| slices.stop(&path))
    }

    /// Removes the pod's cgroup and all below it. `Busy` when a process is left: kill and call again.
    pub fn remove_pod(&self, class: PodCgroupClass, uid: &str) -> Result<(), CgroupError> {
        let path = self.pod_path(class, uid);
        if let Some(pending) = self.stop_pod(class, uid) {
            drop(pending);
            return Err(CgroupError::Busy(path.into()));
        }
        self.remove(&path)?;
        match class {
            PodCgroupClass::Burstable => self.weigh_burstable(self.burstable.remove(uid)),
            _ => Ok(()),
        }
    }

    /// Uids of all pods that have a cgroup, with their class; for the sweep at start.
    pub fn pods(&self) -> Vec<(PodCgroupClass, String)> {
        let mut found = Vec::new();
        for mount in self.hierarchies.all() {
            for class in [PodCgroupClass::Guaranteed, PodCgroupClass::Burstable, PodCgroupClass::BestEffort] {
                let names = tree::children(&self.below(mount, &self.names.class(class)));
                found.extend(names.iter().filter_map(|name| self.names.uid_of(name)).map(|uid| (class, uid)));
            }
        }
        sort_by(&mut found, |a, b| a.1.cmp(&b.1));
        found.dedup_by(|a, b| a.1 == b.1);
        found
    }

    /// Sets the weight of all burstable pods to the sum of their requests, as the kubelet does: otherwise a class of
    /// many pods would compete like one pod.
    fn weigh_burstable(&self, shares: Option<u64>) -> Result<(), CgroupError> {
        let Some(shares) = shares else { return Ok(()) };
        let values = CgroupValues { cpu_shares: Some(shares.max(MIN_SHARES)), ..CgroupValues::default() };
        self.give(&self.names.class(PodCgroupClass::Burstable), &values).map(drop)
    }

    /// Shares of the burstable pods that a daemon before this one made.
    pub(super) fn read_burstable(&self) {
        let v2 = self.is_v2();
        let file = if v2 { "cpu.weight" } else { "cpu.shares" };
        let Some(mount) = self.hierarchies.of("cpu") else { return };
        let class = self.below(mount, &self.names.class(PodCgroupClass::Burstable));
        for name in tree::children(&class) {
            let Some(uid) = self.names.uid_of(&name) else { continue };
            let value = std::fs::read_to_string(class.join(&name).join(file)).ok();
            if let Some(value) = value.and_then(|text| text.trim().parse().ok()) {
                self.burstable.add(&uid, if v2 { weight::shares_of_weight(value) } else { value });
            }
        }
    }
}
