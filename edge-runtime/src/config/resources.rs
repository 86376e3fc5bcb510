//! What the administrator says about running short: eviction thresholds and the images' share of the disk.

use std::time::Duration;

use super::Config;
use super::file::{EvictionFile, ImagesFile};
use crate::eviction::{Signal, Threshold, manager, threshold};
use crate::image::Reference;
use crate::sys::host;

/// When pods must go.
#[derive(Clone, Debug)]
pub struct EvictionConfig {
    pub thresholds: Vec<Threshold>,
    /// How long a pressure is shown after it was last seen.
    pub transition: Duration,
}

impl EvictionConfig {
    pub(super) fn from_file(file: &EvictionFile) -> Result<Self, (String, String)> {
        let thresholds = threshold::effective(&file.hard, host::memory_total())
            .map_err(|(signal, why)| (format!("eviction.hard.{signal}"), why))?;
        let transition = file.pressure_transition_seconds.map_or(manager::TRANSITION, Duration::from_secs);
        Ok(Self { thresholds, transition })
    }
}

/// What pods may use: all but what is kept back, and but the amount below which they would be evicted (K8s
/// pkg/kubelet/cm `getNodeAllocatableAbsolute`).
impl Config {
    pub fn allocatable_cpu_milli(&self, cpus: u32) -> u64 {
        (u64::from(cpus) * 1000).saturating_sub(self.reserved.cpu_millis)
    }

    pub fn allocatable_memory(&self, bytes: u64) -> u64 {
        let kept = self.reserved.memory_bytes.saturating_add(self.kept(Signal::MemoryAvailable, bytes));
        bytes.saturating_sub(kept)
    }

    /// Of the file system that holds the pods.
    pub fn allocatable_storage(&self, bytes: u64) -> u64 {
        let kept = self.reserved.storage_bytes.saturating_add(self.kept(Signal::NodeFsAvailable, bytes));
        bytes.saturating_sub(kept)
    }

    fn kept(&self, signal: Signal, capacity: u64) -> u64 {
        let found = self.eviction.thresholds.iter().find(|threshold| threshold.signal == signal);
        found.map_or(0, |threshold| threshold.amount.of(capacity))
    }
}

/// When unused images go, in percent of their file system (the kubelet's `imageGCHighThresholdPercent` and
/// `imageGCLowThresholdPercent`).
#[derive(Clone, Debug)]
pub struct ImagesConfig {
    /// Collection begins at this use; 100 switches it off.
    pub gc_high_percent: u64,
    /// And ends at this.
    pub gc_low_percent: u64,
    /// An image is not removed before it had this much time to be used (`imageMinimumGCAge`).
    pub gc_min_age: Duration,
    /// Normalized names of images that are never removed.
    pub pinned: Vec<String>,
}

impl ImagesConfig {
    pub(super) fn from_file(file: ImagesFile) -> Result<Self, (&'static str, String)> {
        let high = file.gc_high_percent.unwrap_or(85);
        let low = file.gc_low_percent.unwrap_or(80.min(high.saturating_sub(1)));
        if high > 100 {
            return Err(("images.gc-high-percent", format!("{high} is more than 100")));
        }
        if low >= high {
            return Err(("images.gc-low-percent", format!("{low} is not below gc-high-percent, {high}")));
        }
        let name = |name: &String| {
            let parsed = Reference::parse(name).map(|reference| reference.to_string());
            parsed.map_err(|error| ("images.pinned", error.to_string()))
        };
        Ok(Self {
            gc_high_percent: high,
            gc_low_percent: low,
            gc_min_age: Duration::from_secs(file.gc_min_age_seconds.unwrap_or(120)),
            pinned: file.pinned.iter().map(name).collect::<Result<_, _>>()?,
        })
    }
}
