//! The daemon's limits of descriptors, memory and process ids, and whether work waits for any of them.

use sampan_sys::host;

use crate::doctor::finding::Finding;
use crate::doctor::host::{number, text};

/// Below this a node of many pods runs short of descriptors.
const FEW_DESCRIPTORS: u64 = 4096;
const LITTLE_MEMORY: u64 = 96 << 20;
/// Per cent of the last minute in which all work waited.
const WAITED: f64 = 10.0;

#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Hard limit of descriptors, which the daemon uses: of the daemon if it runs, else of this process.
    descriptors: Option<u64>,
    memory: u64,
    available: u64,
    swap: u64,
    pids: Option<(u64, u64)>,
    /// Per cent of the last minute, of `full` in `/proc/pressure`; none where the kernel does not count it.
    memory_waits: Option<f64>,
    io_waits: Option<f64>,
}

pub(crate) fn look(daemon: Option<i32>) -> Facts {
    let process = daemon.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let facts = host::facts();
    Facts {
        descriptors: hard_limit(&text(format!("/proc/{process}/limits"))),
        memory: facts.memory_bytes,
        available: host::memory_available().unwrap_or_default(),
        swap: facts.swap_bytes,
        pids: host::pid_usage(),
        memory_waits: waits(&text("/proc/pressure/memory")),
        io_waits: waits(&text("/proc/pressure/io")),
    }
}

/// `Max open files  1024  524288  files` of proc_pid_limits(5).
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let hard = line.split_ascii_whitespace().nth(1)?;
    if hard == "unlimited" { Some(u64::MAX) } else { hard.parse().ok() }
}

/// `full avg10=0.00 avg60=0.12 ...` (Documentation/accounting/psi.rst).
fn waits(pressure: &str) -> Option<f64> {
    let full = pressure.lines().find_map(|line| line.strip_prefix("full "))?;
    full.split(' ').find_map(|word| word.strip_prefix("avg60="))?.parse().ok()
}

pub(crate) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    match facts.descriptors {
        Some(limit) if limit < FEW_DESCRIPTORS => found.push(Finding::warning(
            "descriptors",
            format!("at most {limit} file descriptors"),
            "with many pods the daemon cannot open files or take connections",
            "systemctl edit edge-runtime: [Service] LimitNOFILE=65536; then: systemctl restart edge-runtime",
        )),
        Some(_) => found.push(Finding::ok("descriptors", "enough file descriptors")),
        None => {}
    }
    let (memory, free) = (facts.memory >> 20, facts.available >> 20);
    let percent = facts.available.saturating_mul(100) / facts.memory.max(1);
    let see = "see who has it: edge-runtime top; give pods limits, or the board fewer of them";
    if facts.memory < LITTLE_MEMORY {
        let cure = "use a board with 128 MB or more, or give the GPU less (gpu_mem=16 in config.txt)";
        let what = format!("the machine has {memory} MB of memory");
        found.push(Finding::warning("memory", what, "little is left for pods", cure));
    } else if percent < 5 {
        let what = format!("{free} of {memory} MB of memory are available");
        found.push(Finding::warning("memory", what, "pods are evicted, or killed by the kernel", see));
    } else {
        found.push(Finding::ok("memory", format!("{free} of {memory} MB are available")));
    }
    if facts.swap > 0 {
        let what =
            format!("{} MB of swap; pods use it only with resources.swap in the configuration", facts.swap >> 20);
        found.push(Finding::info("swap", what));
    }
    if let Some((used, most)) = facts.pids.filter(|(used, most)| used.saturating_mul(10) > most.saturating_mul(9)) {
        let cure = "find who starts them: ps -eLf | awk '{print $NF}' | sort | uniq -c | sort -n | tail; security.pod-pids-limit \
                    in the configuration bounds each pod";
        let what = format!("{used} of {most} process ids are in use");
        found.push(Finding::warning("pids", what, "soon no process can be started", cure));
    }
    let slow = "everything on this machine is slow, probes time out";
    let waited = |waits: Option<f64>| {
        let waits = waits.filter(|waits| *waits > WAITED)?;
        Some(format!("all work waited for {waits:.0} % of the last minute"))
    };
    if let Some(what) = waited(facts.memory_waits) {
        found.push(Finding::warning("memory-pressure", what, slow, see));
    }
    if let Some(what) = waited(facts.io_waits) {
        let cure = "see who writes: edge-runtime top, iotop -oa; a faster card, or fewer logs";
        found.push(Finding::warning("io-pressure", what, slow, cure));
    }
    found
}

/// The load averages; also for `top`.
pub(crate) fn load() -> String {
    text("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Bytes behind a key of `/proc/meminfo`.
pub(crate) fn meminfo(key: &str) -> u64 {
    number(&text("/proc/meminfo"), key).unwrap_or_default() << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use crate::doctor::finding::tests::{assert_fine, assert_found};

    fn well() -> Facts {
        Facts {
            descriptors: Some(524_288),
            memory: 512 << 20,
            available: 300 << 20,
            swap: 1 << 20,
            pids: Some((100, 32_768)),
            memory_waits: Some(0.0),
            io_waits: None,
        }
    }

    #[test]
    fn low_limits_are_found() {
        assert_fine(&judge(&well()));
        let judge = |facts| judge(&facts);
        let few = judge(Facts { descriptors: Some(1024), ..well() });
        assert_found(&few, "descriptors", Severity::Warning, "LimitNOFILE=65536");
        assert_found(&judge(Facts { memory: 64 << 20, ..well() }), "memory", Severity::Warning, "128 MB");
        assert_found(&judge(Facts { available: 1 << 20, ..well() }), "memory", Severity::Warning, "edge-runtime top");
        assert_found(&judge(well()), "swap", Severity::Info, "");
        assert_found(&judge(Facts { pids: Some((95, 100)), ..well() }), "pids", Severity::Warning, "pod-pids-limit");
        let waits = judge(Facts { memory_waits: Some(40.0), io_waits: Some(50.5), ..well() });
        assert_found(&waits, "memory-pressure", Severity::Warning, "edge-runtime top");
        assert_found(&waits, "io-pressure", Severity::Warning, "iotop");
    }

    #[test]
    fn the_kernels_files_are_read() {
        let limits =
            "Limit  Soft  Hard  Units\nMax open files            1024                 524288               files\n";
        assert_eq!((hard_limit(limits), hard_limit("")), (Some(524_288), None));
        let pressure = "some avg10=1.00 avg60=2.00 avg300=3 total=4\nfull avg10=0.00 avg60=12.50 avg300=0 total=0\n";
        assert_eq!((waits(pressure), waits("")), (Some(12.5), None));
        let here = look(None);
        assert!(here.memory > 0 && here.available > 0 && here.descriptors.is_some(), "{here:?}");
    }
}
