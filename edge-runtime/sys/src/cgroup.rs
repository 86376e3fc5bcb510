//! Control groups of the node and its pods: made and written by this node on cgroup v1, hybrid and v2, or by systemd
//! on v2 alone. All is read from the files in either case.
//!
//! `names` has their paths; the OCI runtime owns those of containers. Values are computed by callers; knows only uid
//! and class of a pod.

mod burstable;
mod hierarchy;
mod names;
mod slices;
mod tree;
mod types;
mod units;
mod usage;
pub mod weight;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sort::sort_by;
pub use crate::systemd::Pending;
use burstable::Burstable;
use hierarchy::Hierarchies;
use names::Names;
pub use names::{Driver, check_slice_parent};
use slices::Slices;
use types::CgroupVersion;
pub use types::{CgroupError, CgroupValues, Controllers, PodCgroupClass};
pub use units::properties;
pub use usage::{CgroupUsage, UsageReader};
use weight::weight_of_shares;

/// The kernel's smallest share: what is left over is all that best-effort pods get.
const MIN_SHARES: u64 = 2;
/// `cpu.cfs_period_us`.
pub const CFS_PERIOD_US: u64 = 100_000;
/// What v1 shows for no limit is this and more, by page size.
const UNLIMITED: u64 = 1 << 62;
/// How long killed processes may take to leave the tree that is removed.
const TEARDOWN_TRIES: u32 = 100;
const TEARDOWN_PAUSE: Duration = Duration::from_millis(20);
const CLASSES: [PodCgroupClass; 2] = [PodCgroupClass::Burstable, PodCgroupClass::BestEffort];

/// The cgroup tree of one node.
#[derive(Debug)]
pub struct Cgroups {
    names: Names,
    hierarchies: Hierarchies,
    burstable: Burstable,
    /// Set with systemd's driver.
    slices: Option<Slices>,
}

impl Cgroups {
    /// Detects version and controllers. `parent` is absolute in the cgroup file system, e.g. `/sampan-edge-1`.
    ///
    /// # Errors
    /// Without a cgroup file system, or if systemd's driver cannot work here.
    pub fn detect(driver: Driver, parent: &str) -> Result<Self, CgroupError> {
        let parent = parent.trim_end_matches('/');
        let proper = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !parent.strip_prefix('/').is_some_and(|rest| rest.split('/').all(proper)) {
            return Err(CgroupError::Parent(parent.to_string()));
        }
        let hierarchies = Hierarchies::detect(Path::new(MOUNT_POINT))?;
        let slices = match driver {
            Driver::Cgroupfs => None,
            Driver::Systemd => Some(Slices::detect(hierarchies.version)?),
        };
        Ok(Self { names: Names::new(driver, parent), hierarchies, burstable: Burstable::default(), slices })
    }

    /// A tree on a host without cgroups: nothing is made or found in it. For tests of what uses it.
    pub fn absent() -> Self {
        let names = Names::new(Driver::Cgroupfs, "/absent");
        Self { names, hierarchies: Hierarchies::absent(), burstable: Burstable::default(), slices: None }
    }

    pub fn is_v2(&self) -> bool {
        self.hierarchies.version == CgroupVersion::V2
    }

    pub fn controllers(&self) -> Controllers {
        let has = |name| self.hierarchies.of(name).is_some();
        Controllers { cpu: has("cpu"), memory: has("memory"), pids: has("pids") }
    }

    /// Makes the parent and the two class groups, enables controllers below them. Called once at start.
    pub fn prepare(&self) -> Result<(), CgroupError> {
        let besteffort = CgroupValues { cpu_shares: Some(MIN_SHARES), ..CgroupValues::default() };
        if let Some(slices) = &self.slices {
            slices.prepare(&self.names, &besteffort)?;
            self.read_burstable();
            return Ok(());
        }
        let parent = self.names.parent();
        match self.hierarchies.version {
            CgroupVersion::V1 => {
                for controller in ["cpu", "memory"] {
                    let Some(mount) = self.hierarchies.of(controller) else { continue };
                    tree::make(&self.below(mount, &parent))?;
                    if controller == "memory" {
                        // Before kernel 5.11 a parent's limit includes its children only with this setting.
                        let _ = tree::write(&self.below(mount, &parent).join("memory.use_hierarchy"), "1");
                    }
                    for class in CLASSES {
                        tree::make(&self.below(mount, &self.names.class(class)))?;
                    }
                }
            }
            CgroupVersion::V2 => {
                for mount in self.hierarchies.all() {
                    let groups = std::iter::once(parent.clone()).chain(CLASSES.map(|class| self.names.class(class)));
                    for group in groups.map(|path| self.below(mount, &path)) {
                        tree::make(&group)?;
                        tree::delegate(mount, &group, &self.hierarchies.controllers())?;
                    }
                }
            }
        }
        self.read_burstable();
        self.apply(&self.names.class(PodCgroupClass::BestEffort), &besteffort)
    }

    /// Values for all pods of the node together (the kubelet's node allocatable enforcement).
    pub fn bound_all(&self, values: &CgroupValues) -> Result<(), CgroupError> {
        self.give(&self.names.parent(), values).map(drop)
    }

    /// Sets the weight of all burstable pods to the sum of their requests, as the kubelet does: otherwise a class of
    /// many pods would compete like one pod.
    fn weigh_burstable(&self, shares: Option<u64>) -> Result<(), CgroupError> {
        let Some(shares) = shares else { return Ok(()) };
        let values = CgroupValues { cpu_shares: Some(shares.max(MIN_SHARES)), ..CgroupValues::default() };
        self.give(&self.names.class(PodCgroupClass::Burstable), &values).map(drop)
    }

    /// Shares of the burstable pods that a daemon before this one made.
    fn read_burstable(&self) {
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

    /// Changes values of a cgroup in which processes run. What it gives is still to be waited for.
    pub fn update(&self, path: &str, values: &CgroupValues) -> Result<Option<Pending>, CgroupError> {
        match self.slices {
            Some(_) => self.give(path, values),
            None => self.rewrite(path, values).map(|()| None),
        }
    }

    fn give(&self, path: &str, values: &CgroupValues) -> Result<Option<Pending>, CgroupError> {
        match &self.slices {
            Some(slices) => Ok(slices.set(path, values)),
            None => self.apply(path, values).map(|()| None),
        }
    }

    fn rewrite(&self, path: &str, values: &CgroupValues) -> Result<(), CgroupError> {
        let memory = self.hierarchies.of("memory").map(|mount| self.below(mount, path));
        let Some((limit, dir)) = values.memory_limit_bytes.zip(memory) else { return self.apply(path, values) };
        let read = |file: &str| std::fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
        // v1 with swap accounting: memory and swap together can never be less than memory alone.
        let (Some(old), Some(both)) = (read("memory.limit_in_bytes"), read("memory.memsw.limit_in_bytes")) else {
            return self.apply(path, values);
        };
        if both >= UNLIMITED {
            return self.apply(path, values);
        }
        let both = limit.saturating_add(both.saturating_sub(old)).to_string();
        let file = dir.join("memory.memsw.limit_in_bytes");
        if limit > old {
            tree::set(&file, &both)?;
            return self.apply(path, values);
        }
        self.apply(path, values)?;
        tree::set(&file, &both)
    }

    fn apply(&self, path: &str, values: &CgroupValues) -> Result<(), CgroupError> {
        let v2 = self.is_v2();
        let set = |controller: &str, file: &str, value: String| match self.hierarchies.of(controller) {
            Some(mount) => tree::set(&self.below(mount, path).join(file), &value),
            None => Ok(()),
        };
        if let Some(shares) = values.cpu_shares {
            match v2 {
                true => set("cpu", "cpu.weight", weight_of_shares(shares).to_string())?,
                false => set("cpu", "cpu.shares", shares.to_string())?,
            }
        }
        if let Some(quota) = values.cpu_quota_us {
            match v2 {
                true if quota > 0 => set("cpu", "cpu.max", format!("{quota} {CFS_PERIOD_US}"))?,
                true => set("cpu", "cpu.max", format!("max {CFS_PERIOD_US}"))?,
                false => {
                    set("cpu", "cpu.cfs_period_us", CFS_PERIOD_US.to_string())?;
                    set("cpu", "cpu.cfs_quota_us", quota.to_string())?;
                }
            }
        }
        if let Some(limit) = values.memory_limit_bytes {
            set("memory", if v2 { "memory.max" } else { "memory.limit_in_bytes" }, limit.to_string())?;
        }
        if let Some(limit) = values.pids_limit {
            set("pids", "pids.max", limit.to_string())?;
        }
        Ok(())
    }

    /// Same as [`Cgroups::kill`], for a pod.
    pub fn kill_pod(&self, class: PodCgroupClass, uid: &str) -> Result<(), CgroupError> {
        self.kill(&self.pod_path(class, uid))
    }

    /// Kills every process in the cgroup (of a pod, a container) and below: also those that the monitor and the OCI
    /// runtime do not know. Returns before they are gone; no error if the cgroup does not exist.
    pub fn kill(&self, path: &str) -> Result<(), CgroupError> {
        match self.hierarchies.for_processes() {
            Some(mount) => tree::kill(&self.below(mount, path)),
            None => Ok(()),
        }
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

    fn remove(&self, path: &str) -> Result<(), CgroupError> {
        let mut first = Ok(());
        for mount in self.hierarchies.all() {
            let removed = tree::remove(&self.below(mount, path));
            first = first.and(removed);
        }
        first
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

    /// Reads usage without holding on to the tree.
    pub fn reader(&self) -> UsageReader {
        UsageReader(self.hierarchies.clone())
    }

    /// Returns the memory that the kubelet counts as used, in bytes; `None` without a memory controller or such a
    /// group.
    pub fn working_set(&self, path: &str) -> Option<u64> {
        self.reader().usage(path).working_set_bytes
    }

    /// Processes and threads.
    pub fn processes(&self, path: &str) -> Option<u64> {
        self.reader().usage(path).processes
    }

    /// Whether there is anything of this node.
    pub fn is_there(&self) -> bool {
        self.exists(&self.names.parent())
    }

    /// Removes the whole tree of this node, for `reset`.
    pub fn teardown(&self) -> Result<(), CgroupError> {
        let parent = self.names.parent();
        if let Some(slices) = &self.slices {
            slices.teardown(&parent)?;
        }
        for _ in 0..TEARDOWN_TRIES {
            match self.remove(&parent) {
                Err(CgroupError::Busy(_)) => self.kill(&parent)?,
                done => return done,
            }
            std::thread::sleep(TEARDOWN_PAUSE);
        }
        self.remove(&parent)
    }

    fn exists(&self, path: &str) -> bool {
        self.hierarchies.all().any(|mount| self.below(mount, path).is_dir())
    }

    fn below(&self, mount: &Path, path: &str) -> PathBuf {
        mount.join(path.trim_start_matches('/'))
    }
}

/// Where cgroup file systems are mounted.
pub const MOUNT_POINT: &str = "/sys/fs/cgroup";

#[cfg(test)]
mod tests;
