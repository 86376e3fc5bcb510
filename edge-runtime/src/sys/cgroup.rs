//! Control groups of the node and its pods, on cgroup v1, hybrid and v2 (the cgroupfs driver).
//!
//! Layout: `PARENT/pod<uid>`, `PARENT/burstable/pod<uid>`, `PARENT/besteffort/pod<uid>`; containers below are the
//! OCI runtime's. Values are computed elsewhere; knows nothing of pods but uid and class.

mod burstable;
mod hierarchy;
mod tree;
mod types;
mod usage;
pub mod weight;
mod working_set;

use std::path::{Path, PathBuf};

use burstable::Burstable;
use hierarchy::Hierarchies;
pub use types::{CgroupError, CgroupValues, CgroupVersion, Controllers, PodCgroupClass};
pub use usage::{CgroupUsage, UsageReader};
use weight::weight_of_shares;

/// The kernel's smallest share: what is left over is all that best-effort pods get.
const MIN_SHARES: u64 = 2;
const CFS_PERIOD_US: u64 = 100_000;
/// What v1 shows for no limit is this and more, by page size.
const UNLIMITED: u64 = 1 << 62;
const CLASSES: [&str; 2] = ["burstable", "besteffort"];

/// The cgroup tree of one node.
#[derive(Debug)]
pub struct Cgroups {
    parent: String,
    hierarchies: Hierarchies,
    burstable: Burstable,
}

impl Cgroups {
    /// Detects version and controllers. `parent` is absolute in the cgroup file system, e.g. `/sampan-edge-1`.
    pub fn detect(parent: &str) -> Result<Self, CgroupError> {
        let parent = parent.trim_end_matches('/');
        let proper = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !parent.strip_prefix('/').is_some_and(|rest| rest.split('/').all(proper)) {
            return Err(CgroupError::Parent(parent.to_string()));
        }
        let hierarchies = Hierarchies::detect(Path::new(MOUNT_POINT))?;
        Ok(Self { parent: parent.to_string(), hierarchies, burstable: Burstable::default() })
    }

    pub fn version(&self) -> CgroupVersion {
        self.hierarchies.version
    }

    pub fn controllers(&self) -> Controllers {
        let has = |name| self.hierarchies.of(name).is_some();
        Controllers { cpu: has("cpu"), memory: has("memory"), pids: has("pids") }
    }

    /// Makes the parent and the two class groups, enables controllers below them. Called once at start.
    pub fn prepare(&self) -> Result<(), CgroupError> {
        match self.hierarchies.version {
            CgroupVersion::V1 => {
                for controller in ["cpu", "memory"] {
                    let Some(mount) = self.hierarchies.of(controller) else { continue };
                    tree::make(&self.below(mount, &self.parent))?;
                    if controller == "memory" {
                        // Before kernel 5.11 a parent's limit counts its children only when told so.
                        let _ = tree::write(&self.below(mount, &self.parent).join("memory.use_hierarchy"), "1");
                    }
                    for class in CLASSES {
                        tree::make(&self.below(mount, &self.parent).join(class))?;
                    }
                }
            }
            CgroupVersion::V2 => {
                for mount in self.hierarchies.all() {
                    let parent = self.below(mount, &self.parent);
                    tree::make(&parent)?;
                    tree::delegate(mount, &parent, &self.hierarchies.controllers())?;
                    for class in CLASSES {
                        tree::make(&parent.join(class))?;
                        tree::delegate(mount, &parent.join(class), &self.hierarchies.controllers())?;
                    }
                }
            }
        }
        self.read_burstable();
        let besteffort = CgroupValues { cpu_shares: Some(MIN_SHARES), ..CgroupValues::default() };
        self.apply(&format!("{}/besteffort", self.parent), &besteffort)
    }

    /// Values for all pods of the node together (the kubelet's node allocatable enforcement).
    pub fn bound_all(&self, values: &CgroupValues) -> Result<(), CgroupError> {
        self.apply(&self.parent, values)
    }

    /// All burstable pods together weigh what they request, as the kubelet has it: otherwise a class of many pods
    /// would compete as one.
    fn weigh_burstable(&self, shares: Option<u64>) -> Result<(), CgroupError> {
        let Some(shares) = shares else { return Ok(()) };
        let values = CgroupValues { cpu_shares: Some(shares.max(MIN_SHARES)), ..CgroupValues::default() };
        self.apply(&format!("{}/burstable", self.parent), &values)
    }

    /// Shares of the burstable pods that a daemon before this one made.
    fn read_burstable(&self) {
        let v2 = self.hierarchies.version == CgroupVersion::V2;
        let file = if v2 { "cpu.weight" } else { "cpu.shares" };
        let Some(mount) = self.hierarchies.of("cpu") else { return };
        let class = self.below(mount, &format!("{}/burstable", self.parent));
        for name in tree::children(&class) {
            let Some(uid) = name.strip_prefix("pod") else { continue };
            let value = std::fs::read_to_string(class.join(&name).join(file)).ok();
            if let Some(value) = value.and_then(|text| text.trim().parse().ok()) {
                self.burstable.add(uid, if v2 { weight::shares_of_weight(value) } else { value });
            }
        }
    }

    /// Path of a pod's cgroup as OCI `linux.cgroupsPath` wants it, to be followed by `/CONTAINER_ID`.
    pub fn pod_path(&self, class: PodCgroupClass, uid: &str) -> String {
        match class {
            PodCgroupClass::Guaranteed => format!("{}/pod{uid}", self.parent),
            PodCgroupClass::Burstable => format!("{}/burstable/pod{uid}", self.parent),
            PodCgroupClass::BestEffort => format!("{}/besteffort/pod{uid}", self.parent),
        }
    }

    /// Makes the pod's cgroup with `values`; sets the values again when it exists. Values of a controller that the
    /// kernel lacks are left out (the node condition says so).
    pub fn create_pod(&self, class: PodCgroupClass, uid: &str, values: &CgroupValues) -> Result<(), CgroupError> {
        let path = self.pod_path(class, uid);
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
                        tree::make(&self.below(mount, &path))?;
                    }
                }
            }
            CgroupVersion::V2 => {
                for mount in self.hierarchies.all() {
                    tree::make(&self.below(mount, &path))?;
                }
            }
        }
        self.apply(&path, values)?;
        match (class, values.cpu_shares) {
            (PodCgroupClass::Burstable, Some(shares)) => self.weigh_burstable(self.burstable.add(uid, shares)),
            _ => Ok(()),
        }
    }

    /// Changes values of a cgroup in which processes run.
    pub fn update(&self, path: &str, values: &CgroupValues) -> Result<(), CgroupError> {
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
        let v2 = self.hierarchies.version == CgroupVersion::V2;
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

    /// Kills every process in the pod's cgroup and below; for what the OCI runtime no longer knows of.
    /// Returns before they are gone.
    pub fn kill_pod(&self, class: PodCgroupClass, uid: &str) -> Result<(), CgroupError> {
        let path = self.pod_path(class, uid);
        match self.hierarchies.for_processes() {
            Some(mount) => tree::kill(&self.below(mount, &path)),
            None => Ok(()),
        }
    }

    /// Removes the pod's cgroup and all below it. `Busy` when a process is left: kill and call again.
    pub fn remove_pod(&self, class: PodCgroupClass, uid: &str) -> Result<(), CgroupError> {
        self.remove(&self.pod_path(class, uid))?;
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

    /// Names (`pod<uid>`, without the `pod`) of all pods that have a cgroup, with their class; for the sweep at start.
    pub fn pods(&self) -> Vec<(PodCgroupClass, String)> {
        let mut found = Vec::new();
        let classes = [
            (PodCgroupClass::Guaranteed, ""),
            (PodCgroupClass::Burstable, "/burstable"),
            (PodCgroupClass::BestEffort, "/besteffort"),
        ];
        for mount in self.hierarchies.all() {
            for (class, folder) in classes {
                let names = tree::children(&self.below(mount, &format!("{}{folder}", self.parent)));
                let uids = names.into_iter().filter_map(|name| name.strip_prefix("pod").map(str::to_string));
                found.extend(uids.map(|uid| (class, uid)));
            }
        }
        found.sort_by(|a, b| a.1.cmp(&b.1));
        found.dedup_by(|a, b| a.1 == b.1);
        found
    }

    /// Reads usage without holding on to the tree.
    pub fn reader(&self) -> UsageReader {
        UsageReader::new(self.hierarchies.clone())
    }

    /// How often the kernel killed in this cgroup for memory (`oom_kill`).
    pub fn oom_kills(&self, path: &str) -> Option<u64> {
        let file = match self.hierarchies.version {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let mount = self.hierarchies.of("memory")?;
        tree::keyed(&std::fs::read_to_string(self.below(mount, path).join(file)).ok()?, "oom_kill")
    }

    /// Removes the whole tree of this node, for `reset`.
    pub fn teardown(&self) -> Result<(), CgroupError> {
        self.remove(&self.parent)
    }

    fn below(&self, mount: &Path, path: &str) -> PathBuf {
        mount.join(path.trim_start_matches('/'))
    }
}

/// Where cgroup file systems are mounted.
pub const MOUNT_POINT: &str = "/sys/fs/cgroup";

#[cfg(test)]
mod tests;
