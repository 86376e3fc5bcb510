//! Resource usage of this process, with the names of client_golang's process collector. Reads `/proc`.

use std::fs;

use jiff::Timestamp;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;

/// Name, kind, help text, value.
pub(super) type Sample = (&'static str, &'static str, &'static str, f64);

pub(super) fn samples() -> Vec<Sample> {
    let mut all = Vec::new();
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
        let seconds = (usage.user_time() + usage.system_time()).num_milliseconds() as f64 / 1000.0;
        all.push(("process_cpu_seconds_total", "counter", "CPU time in seconds.", seconds));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_start_matches(':').split_ascii_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
    };
    if let Some(bytes) = bytes("VmSize") {
        all.push(("process_virtual_memory_bytes", "gauge", "Virtual memory in bytes.", bytes));
    }
    if let Some(bytes) = bytes("VmRSS") {
        all.push(("process_resident_memory_bytes", "gauge", "Resident memory in bytes.", bytes));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        all.push(("process_open_fds", "gauge", "Open file descriptors.", open.count() as f64));
    }
    if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        all.push(("process_max_fds", "gauge", "Most file descriptors.", soft as f64));
    }
    if let Some(started) = started() {
        all.push(("process_start_time_seconds", "gauge", "When it started, in seconds since 1970.", started));
    }
    all
}

/// The folder of a process has the time of its start.
fn started() -> Option<f64> {
    let made = fs::metadata("/proc/self").ok()?.modified().ok()?;
    Some(Timestamp::try_from(made).ok()?.as_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_something() {
        let all = samples();
        assert_eq!(all.len(), 6, "{all:?}");
        assert!(all.iter().all(|(name, .., value)| name.starts_with("process_") && *value > 0.0), "{all:?}");
    }
}
