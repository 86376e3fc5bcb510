//! Use of resources by the bridge's process, from the kernel's counters.

use std::time::{Duration, Instant};

use anyhow::Context;

/// Ticks per second of /proc (`sysconf(_SC_CLK_TCK)`, 100 on every current Linux).
const TICKS: u64 = 100;

/// Values at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    at: Instant,
    cpu: Duration,
    /// Bytes written to disk.
    written: u64,
    /// Proportional set size, in KiB.
    pub(crate) pss: u64,
    pub(crate) rss: u64,
    /// Maximum of the resident memory since the start, or since [`forget_peak`], in KiB.
    pub(crate) peak: u64,
}

/// Resets the maximum of the resident memory to the present value (proc(5), clear_refs).
pub(crate) fn forget_peak(pid: u32) {
    // Otherwise the peak covers a longer time.
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

pub(crate) fn look(pid: u32) -> anyhow::Result<Look> {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| format!("process {pid}"));
    let stat = read("stat")?;
    // The name may contain spaces; it ends with the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
    let rollup = read("smaps_rollup")?;
    let number = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
    };
    Ok(Look {
        at: Instant::now(),
        cpu: Duration::from_millis((ticks(11) + ticks(12)) * 1000 / TICKS),
        written: number(&read("io").unwrap_or_default(), "write_bytes:"),
        pss: number(&rollup, "Pss:"),
        rss: number(&rollup, "Rss:"),
        peak: number(&read("status")?, "VmHWM:"),
    })
}

impl Look {
    /// CPU use since the earlier values, in percent of one core.
    pub(crate) fn cpu_since(&self, earlier: &Self) -> f64 {
        let passed = self.at.duration_since(earlier.at).as_secs_f64();
        100.0 * (self.cpu.saturating_sub(earlier.cpu)).as_secs_f64() / passed.max(0.001)
    }

    /// CPU time since its start.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.cpu
    }

    /// CPU time since the earlier values.
    pub(crate) fn cpu_time_since(&self, earlier: &Self) -> Duration {
        self.cpu.saturating_sub(earlier.cpu)
    }

    /// Bytes per second written to disk since the earlier values.
    pub(crate) fn written_since(&self, earlier: &Self) -> f64 {
        let passed = self.at.duration_since(earlier.at).as_secs_f64();
        self.written.saturating_sub(earlier.written) as f64 / passed.max(0.001)
    }
}
