//! What the bridge's process costs, as the kernel counts it.

use std::time::{Duration, Instant};

use anyhow::Context;

/// Ticks per second of /proc (`sysconf(_SC_CLK_TCK)`, 100 on every Linux of today).
const TICKS: u64 = 100;

/// One look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    at: Instant,
    cpu: Duration,
    /// Bytes that it wrote to disk.
    written: u64,
    /// KiB.
    pub(crate) pss: u64,
    pub(crate) rss: u64,
    /// Most of it that was ever there, or since [`forget_peak`].
    pub(crate) peak: u64,
}

/// The most that it had is from now on what it has now (proc(5), clear_refs).
pub(crate) fn forget_peak(pid: u32) {
    // Without it the peak is of a longer time.
    let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

pub(crate) fn look(pid: u32) -> anyhow::Result<Look> {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).with_context(|| format!("process {pid}"));
    let stat = read("stat")?;
    // The name may hold spaces; it ends with the last bracket.
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
    /// Per cent of one core since the earlier look.
    pub(crate) fn cpu_since(&self, earlier: &Self) -> f64 {
        let passed = self.at.duration_since(earlier.at).as_secs_f64();
        100.0 * (self.cpu.saturating_sub(earlier.cpu)).as_secs_f64() / passed.max(0.001)
    }

    /// CPU time since its start.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.cpu
    }

    /// CPU time in all since the earlier look.
    pub(crate) fn cpu_time_since(&self, earlier: &Self) -> Duration {
        self.cpu.saturating_sub(earlier.cpu)
    }

    /// Bytes per second to disk since the earlier look.
    pub(crate) fn written_since(&self, earlier: &Self) -> f64 {
        let passed = self.at.duration_since(earlier.at).as_secs_f64();
        self.written.saturating_sub(earlier.written) as f64 / passed.max(0.001)
    }
}
