//! Facts about this machine, read once or rarely. Nothing here is kept or interpreted.

mod parse;

use std::fs;
use std::path::Path;

use crate::pidfd;

/// Facts that do not change while the machine is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    pub cpus: u32,
    pub memory_bytes: u64,
    pub swap_bytes: u64,
    pub hostname: String,
    /// `/etc/machine-id`, empty when the file is.
    pub machine_id: String,
    /// DMI or device-tree serial; the machine id without one.
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    /// `PRETTY_NAME` of os-release.
    pub os_image: String,
    /// Go's name: `amd64`, `arm64`, `arm`.
    pub architecture: &'static str,
}

/// Reads everything; a fact that cannot be read is empty or zero.
pub fn facts() -> HostFacts {
    let meminfo = text("/proc/meminfo");
    let machine_id = first_line(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
    let serial = first_line(&["/sys/class/dmi/id/product_uuid", "/proc/device-tree/serial-number"]);
    let os_release = ["/etc/os-release", "/usr/lib/os-release"].into_iter().map(text).find(|text| !text.is_empty());
    HostFacts {
        cpus: parse::cpu_list_len(&text("/sys/devices/system/cpu/online")).unwrap_or_else(available_cpus),
        memory_bytes: parse::meminfo(&meminfo, "MemTotal").unwrap_or_default(),
        swap_bytes: parse::meminfo(&meminfo, "SwapTotal").unwrap_or_default(),
        hostname: first_line(&["/proc/sys/kernel/hostname"]),
        system_uuid: if serial.is_empty() { machine_id.clone() } else { serial },
        machine_id,
        boot_id: first_line(&["/proc/sys/kernel/random/boot_id"]),
        kernel_version: first_line(&["/proc/sys/kernel/osrelease"]),
        os_image: os_release.and_then(|text| parse::pretty_name(&text)).unwrap_or_else(|| "Linux".to_string()),
        architecture: go_architecture(std::env::consts::ARCH),
    }
}

fn available_cpus() -> u32 {
    std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok()).unwrap_or(1)
}

/// Kubernetes and OCI name architectures as Go does.
fn go_architecture(rust: &'static str) -> &'static str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other, // arm, riscv64, s390x, loongarch64
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// First line of the first file that has one; device-tree strings end with a zero.
fn first_line(paths: &[&str]) -> String {
    let lines = paths.iter().map(|path| text(path));
    let lines = lines.filter_map(|text| Some(text.lines().next()?.trim_matches(['\0', ' ']).to_string()));
    lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default()
}

/// Lowest `oom_score_adj` this process may give: what it was started with (`oom_score_adj_min` of the kernel) without
/// CAP_SYS_RESOURCE, else -1000.
pub fn min_oom_score_adj() -> i32 {
    const CAP_SYS_RESOURCE: u32 = 24;
    if capabilities("CapEff") >> CAP_SYS_RESOURCE & 1 == 1 { -1000 } else { oom_score_adj() }
}

/// One of the capability sets of this process, by its name in `/proc/PID/status`.
pub fn capabilities(set: &str) -> u64 {
    parse::capabilities(&text("/proc/self/status"), set)
}

/// `oom_score_adj` of this process.
pub fn oom_score_adj() -> i32 {
    text("/proc/self/oom_score_adj").trim().parse().unwrap_or(0)
}

/// Bytes and inodes of the file system that holds `path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    /// Available to unprivileged users, as `df` shows.
    pub available_bytes: u64,
    /// Includes what is reserved for root.
    pub free_bytes: u64,
    /// 0 where the file system has no fixed number of inodes (btrfs).
    pub total_inodes: u64,
    pub free_inodes: u64,
}

/// `None` when the path does not exist.
pub fn disk_space(path: &Path) -> Option<DiskSpace> {
    let fs = nix::sys::statvfs::statvfs(path).ok()?;
    // These are 32 bits wide on 32-bit ARM.
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
    let [unit, blocks, available, all_free, files, free] = [
        fs.fragment_size() as u64,
        fs.blocks() as u64,
        fs.blocks_available() as u64,
        fs.blocks_free() as u64,
        fs.files() as u64,
        fs.files_free() as u64,
    ];
    Some(DiskSpace {
        total_bytes: blocks.saturating_mul(unit),
        available_bytes: available.saturating_mul(unit),
        free_bytes: all_free.saturating_mul(unit),
        total_inodes: files,
        free_inodes: free,
    })
}

/// `MemTotal` in bytes; 0 when `/proc` is not mounted.
pub fn memory_total() -> u64 {
    parse::meminfo(&text("/proc/meminfo"), "MemTotal").unwrap_or_default()
}

/// `MemAvailable` in bytes.
pub fn memory_available() -> Option<u64> {
    parse::meminfo(&text("/proc/meminfo"), "MemAvailable")
}

/// Memory of the machine in use, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// Used memory, without pages that the page cache could release.
    pub working_set_bytes: u64,
    pub rss_bytes: u64,
}

/// What cAdvisor shows for the root cgroup where that counts nothing (libcontainer `statsFromMeminfo`).
pub fn memory_use() -> MemoryUse {
    let meminfo = text("/proc/meminfo");
    let read = |key| parse::meminfo(&meminfo, key).unwrap_or_default();
    let total_bytes = read("MemTotal");
    let used_bytes = total_bytes.saturating_sub(read("MemFree"));
    let working_set_bytes = used_bytes.saturating_sub(read("Inactive(file)"));
    MemoryUse { total_bytes, used_bytes, working_set_bytes, rss_bytes: read("AnonPages") }
}

/// `(running and sleeping tasks, most the kernel allows)`, for PID pressure.
pub fn pid_usage() -> Option<(u64, u64)> {
    let used = parse::tasks(&text("/proc/loadavg"))?;
    let limit = |path: &str| text(path).trim().parse::<u64>().ok();
    let max = limit("/proc/sys/kernel/pid_max")?.min(limit("/proc/sys/kernel/threads-max")?);
    Some((used, max))
}

/// Whether a process is there and has not ended.
pub fn is_alive(pid: i32) -> bool {
    pidfd::stat(pid).is_some_and(|stat| !stat.ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_facts() {
        let facts = facts();
        assert!(facts.cpus >= 1 && facts.memory_bytes > 16 << 20, "{facts:?}");
        assert!(!facts.kernel_version.is_empty() && facts.boot_id.len() == 36, "{facts:?}");
        assert!(matches!(facts.architecture, "amd64" | "arm64" | "arm" | "riscv64"), "{facts:?}");
        assert!(disk_space(Path::new("/")).unwrap().total_bytes > 0);
        assert!(disk_space(Path::new("/nowhere/at/all")).is_none());
        assert!(memory_available().unwrap() < facts.memory_bytes);
        let (used, max) = pid_usage().unwrap();
        assert!(used > 0 && used < max);
        assert!(min_oom_score_adj() <= 1000);
    }
}
