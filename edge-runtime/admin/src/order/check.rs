//! Whether the node has the resources for the work: absolute needs, not percentages.

use edge_runtime::paths::Paths;
use sampan_sys::host::disk_space;

/// Memory that must be available, in bytes.
const MEMORY: u64 = 32 << 20;
/// Room beyond what the work needs.
const DISK: u64 = 64 << 20;
/// Processes that wait for each processor, over the last minute.
const LOAD: f64 = 4.0;

/// Facts about the node.
struct Facts {
    load_per_cpu: f64,
    memory: u64,
    disk: u64,
}

/// `bytes`: what the work writes.
///
/// # Errors
/// The failed check, and why.
pub(super) fn check(items: &[String], paths: &Paths, bytes: u64) -> Result<(), String> {
    let state = paths.state();
    let disk = disk_space(&state).ok_or_else(|| format!("{}: its disk cannot be asked", state.display()))?;
    let facts = Facts {
        load_per_cpu: load() / f64::from(u32::try_from(cpus()).unwrap_or(1)),
        memory: available().unwrap_or(u64::MAX),
        disk: disk.available_bytes,
    };
    items.iter().try_for_each(|item| judge(item, &facts, bytes))
}

fn judge(item: &str, facts: &Facts, bytes: u64) -> Result<(), String> {
    let megabytes = |bytes: u64| bytes >> 20;
    let wanted = bytes.saturating_mul(2).saturating_add(DISK);
    match item {
        "cpu" if facts.load_per_cpu > LOAD => {
            Err(format!("cpu: {:.1} processes wait for each processor (at most {LOAD})", facts.load_per_cpu))
        }
        "mem" if facts.memory < MEMORY => {
            Err(format!("mem: {} MiB are available (at least {})", megabytes(facts.memory), megabytes(MEMORY)))
        }
        "disk" if facts.disk < wanted => {
            Err(format!("disk: {} MiB are free (at least {})", megabytes(facts.disk), megabytes(wanted)))
        }
        "cpu" | "mem" | "disk" => Ok(()),
        other => Err(format!("checkItems: '{other}' is none of cpu, mem, disk")),
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_names_the_missing_resource() {
        let good = Facts { load_per_cpu: 1.0, memory: 1 << 30, disk: 1 << 30 };
        for item in ["cpu", "mem", "disk"] {
            judge(item, &good, 1 << 20).unwrap();
        }
        assert!(judge("cpu", &Facts { load_per_cpu: 5.0, ..good }, 0).unwrap_err().starts_with("cpu: 5.0"));
        assert!(judge("mem", &Facts { memory: 1 << 20, ..good }, 0).unwrap_err().starts_with("mem: 1 MiB"));
        assert!(judge("disk", &good, 600 << 20).unwrap_err().starts_with("disk: 1024 MiB"));
        assert!(judge("disk", &good, u64::MAX).unwrap_err().starts_with("disk: 1024 MiB"));
        assert!(judge("gpu", &good, 0).unwrap_err().contains("gpu"));
        assert!(available().is_some_and(|bytes| bytes > MEMORY));
    }
}
