//! Control groups of the node and its pods: made and written by this node on cgroup v1, hybrid and v2, or by systemd
//! on v2 alone. All is read from the files in either case.
//!
//! `names` has their paths, `files` what is written into them, and `pods` those of pods; the OCI runtime owns those of
//! containers. Values are computed by callers; knows only uid and class of a pod.

mod burstable;
mod cpuset;
mod files;
mod hierarchy;
mod names;
mod pods;
mod slices;
mod tree;
mod types;
mod units;
mod usage;
pub mod weight;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::systemd::Pending;
use burstable::Burstable;
pub use files::CFS_PERIOD_US;
use files::{SWAP_FILE, Swap, settings, swap};
use hierarchy::Hierarchies;
use names::Names;
pub use names::{Driver, check_slice_parent};
use slices::Slices;
use types::CgroupVersion;
pub use types::{CgroupError, CgroupValues, Controllers, PodCgroupClass};
pub use units::properties;
pub use usage::{CgroupUsage, UsageReader};

/// The kernel's smallest share: what is left over is all that best-effort pods get.
const MIN_SHARES: u64 = 2;
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

    /// A tree in a folder that stands for a cgroup file system. For tests of what uses it.
    pub fn at(mount: &Path) -> Self {
        Self { hierarchies: Hierarchies::at(mount), ..Self::absent() }
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
        let (Some(old), Some(both)) = (read("memory.limit_in_bytes"), read(SWAP_FILE)) else {
            return self.apply(path, values);
        };
        let file = dir.join(SWAP_FILE);
        match swap(limit, old, both) {
            Swap::Stays => self.apply(path, values),
            Swap::First(both) => {
                tree::set(&file, &both.to_string())?;
                self.apply(path, values)
            }
            Swap::Last(both) => {
                self.apply(path, values)?;
                tree::set(&file, &both.to_string())
            }
        }
    }

    fn apply(&self, path: &str, values: &CgroupValues) -> Result<(), CgroupError> {
        for (controller, file, value) in settings(values, self.hierarchies.version) {
            if let Some(mount) = self.hierarchies.of(controller) {
                tree::set(&self.below(mount, path).join(file), &value)?;
            }
        }
        Ok(())
    }

    /// Kills every process in the cgroup (of a pod, a container) and below: also those that the monitor and the OCI
    /// runtime do not know. Returns before they are gone; no error if the cgroup does not exist.
    pub fn kill(&self, path: &str) -> Result<(), CgroupError> {
        match self.hierarchies.for_processes() {
            Some(mount) => tree::kill(&self.below(mount, path)),
            None => Ok(()),
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
