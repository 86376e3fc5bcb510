//! What the kubelet counts as used (K8s cadvisor `container_memory_working_set_bytes`): memory less the cache that the
//! kernel would drop first.

use super::types::CgroupVersion;
use super::{Cgroups, tree};

impl Cgroups {
    /// Bytes; `None` without a memory controller or such a group.
    pub fn working_set(&self, path: &str) -> Option<u64> {
        let folder = self.below(self.hierarchies.of("memory")?, path);
        let (total, inactive) = match self.hierarchies.version {
            CgroupVersion::V1 => ("memory.usage_in_bytes", "total_inactive_file"),
            CgroupVersion::V2 => ("memory.current", "inactive_file"),
        };
        let used: u64 = std::fs::read_to_string(folder.join(total)).ok()?.trim().parse().ok()?;
        let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        Some(used.saturating_sub(tree::keyed(&stat, inactive).unwrap_or(0)))
    }

    /// Processes and threads.
    pub fn processes(&self, path: &str) -> Option<u64> {
        let folder = self.below(self.hierarchies.of("pids")?, path);
        std::fs::read_to_string(folder.join("pids.current")).ok()?.trim().parse().ok()
    }
}
