//! What cgroups use, read from the files of either version.

use std::path::Path;

use super::hierarchy::Hierarchies;
use super::tree::keyed;
use super::types::CgroupVersion;

/// Each is `None` where the kernel does not count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CgroupUsage {
    pub cpu_nanos: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Usage without inactive file pages, which the page cache could release, as in cAdvisor.
    pub working_set_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    /// Limit of this cgroup, if it has one.
    pub memory_limit_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub processes: Option<u64>,
}

/// Reads usage of the cgroups of one machine.
#[derive(Clone, Debug)]
pub struct UsageReader(pub(super) Hierarchies);

impl UsageReader {
    /// Usage of a cgroup, `path` as in `linux.cgroupsPath`; `/` is the machine. Some five short reads.
    pub fn usage(&self, path: &str) -> CgroupUsage {
        let read = |controller: &str, file: &str| {
            let mount = self.0.of(controller)?;
            std::fs::read_to_string(mount.join(path.trim_start_matches('/')).join(file)).ok()
        };
        let number = |controller: &str, file: &str| read(controller, file)?.trim().parse::<u64>().ok();
        let memory = read("memory", "memory.stat").unwrap_or_default();
        let v1 = self.0.version == CgroupVersion::V1;
        let (used, limit) = match v1 {
            true => (number("memory", "memory.usage_in_bytes"), number("memory", "memory.limit_in_bytes")),
            false => (number("memory", "memory.current"), number("memory", "memory.max")),
        };
        let [inactive, rss, faults, major] = match v1 {
            true => ["total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault"],
            false => ["inactive_file", "anon", "pgfault", "pgmajfault"],
        }
        .map(|key| keyed(&memory, key));
        CgroupUsage {
            cpu_nanos: match v1 {
                true => number("cpuacct", "cpuacct.usage"),
                false => self.cpu_v2(path),
            },
            memory_bytes: used,
            working_set_bytes: used.map(|used| used.saturating_sub(inactive.unwrap_or(0))),
            rss_bytes: rss,
            // v1 writes no limit as the largest number of whole pages.
            memory_limit_bytes: limit.filter(|limit| *limit < 1 << 62),
            page_faults: faults,
            major_page_faults: major,
            processes: number("pids", "pids.current"),
        }
    }

    /// `cpu.stat` is there without its controller too.
    fn cpu_v2(&self, path: &str) -> Option<u64> {
        let mount: &Path = self.0.of("cpu").or_else(|| self.0.all().next())?;
        let text = std::fs::read_to_string(mount.join(path.trim_start_matches('/')).join("cpu.stat")).ok()?;
        keyed(&text, "usage_usec")?.checked_mul(1000)
    }
}
