//! The CPUs of a container that runs.

use std::path::{Path, PathBuf};

use super::types::CgroupError;
use super::{Cgroups, tree};

const FILE: &str = "cpuset.cpus";
const PROCESSES: &str = "cgroup.procs";

impl Cgroups {
    /// Whether containers can be kept on some of the CPUs.
    pub fn has_cpuset(&self) -> bool {
        self.hierarchies.of("cpuset").is_some()
    }

    /// Files that show which CPUs pods can use, the best first. The kernel shows none, or an empty set, in a cgroup that has
    /// no set of its own yet: its parent's counts then. Containers cannot leave this set (cgroup-v2.rst, `cpuset.cpus`:
    /// asking for others alone gives all of the parent's; cgroup-v1/cpusets.rst: the write fails).
    pub fn files_of_cpus(&self) -> Vec<PathBuf> {
        let Some(mount) = self.hierarchies.of("cpuset") else { return Vec::new() };
        let name = if self.is_v2() { "cpuset.cpus.effective" } else { FILE };
        let parent = self.below(mount, &self.names.parent());
        parent.ancestors().take_while(|group| group.starts_with(mount)).map(|group| group.join(name)).collect()
    }

    /// Keeps the processes of a container on the CPUs of `list`, in the form in which the kernel shows them (`0-2,4`).
    /// `bits`: the same for systemd, a bit for each CPU. Reads the present value first, and does not write an equal one.
    ///
    /// # Errors
    /// The kernel refuses, for example because a CPU of `list` is offline. For a container that is gone this succeeds.
    pub fn set_cpus(&self, path: &str, list: &str, bits: impl FnOnce() -> Vec<u8>) -> Result<(), CgroupError> {
        let Some(mount) = self.hierarchies.of("cpuset") else { return Ok(()) };
        let folder = self.below(mount, path);
        let file = folder.join(FILE);
        let is_set = std::fs::read_to_string(&file).is_ok_and(|present| present.trim() == list);
        if is_set || !folder.is_dir() {
            return Ok(());
        }
        match &self.slices {
            // systemd makes the file when the first unit has a value for it.
            Some(slices) => drop(slices.allow_cpus(path, bits())),
            None => tree::set(&file, list)?,
        }
        if !self.is_v2() {
            self.bring_back(path, &folder);
        }
        Ok(())
    }

    /// Moves processes of a container into its cpuset again. On v1 the kernel moves them to the pod's, on all CPUs, when the
    /// last CPU of the container goes offline (cgroup-v1/cpusets.rst, section 1.9).
    fn bring_back(&self, path: &str, folder: &Path) {
        let Some(other) = self.hierarchies.for_processes().map(|mount| self.below(mount, path)) else { return };
        let [own, all] =
            [folder, other.as_path()].map(|group| tree::processes(&group.join(PROCESSES)).unwrap_or_default());
        for pid in all.iter().filter(|_| own.is_empty()) {
            if let Err(error) = tree::write(&folder.join(PROCESSES), &pid.to_string()) {
                log::debug!("process {pid} is not in {}: {error}", folder.display());
            }
        }
    }
}
