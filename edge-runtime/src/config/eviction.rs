//! The `eviction` section: when pods must go, and what that leaves for them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Config;
use super::error::Wrong;
use super::number::Number;
use crate::eviction::{Signal, Threshold, manager, threshold};
use crate::sys::host;

/// The section as typed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct EvictionFile {
    /// Threshold by signal, as the kubelet's `evictionHard`.
    pub hard: BTreeMap<String, String>,
    pub pressure_transition_seconds: Number<u64, { manager::TRANSITION.as_secs() }>,
}

/// When pods must go.
#[derive(Clone, Debug)]
pub struct EvictionConfig {
    pub thresholds: Vec<Threshold>,
    /// How long a pressure is shown after it was last seen.
    pub transition: Duration,
}

impl EvictionConfig {
    pub(super) fn from_file(file: &EvictionFile) -> Result<Self, Wrong> {
        let thresholds = threshold::effective(&file.hard, host::memory_total())
            .map_err(|(signal, why)| (format!("eviction.hard.{signal}"), why))?;
        Ok(Self { thresholds, transition: Duration::from_secs(*file.pressure_transition_seconds) })
    }

    /// Returns `file` with the defaults filled in.
    pub(super) fn filled(&self, mut file: EvictionFile) -> EvictionFile {
        for threshold in &self.thresholds {
            let name = threshold.signal.name().to_owned();
            file.hard.entry(name).or_insert_with(|| threshold.amount.to_string());
        }
        file
    }
}

/// Resources for pods: all except reservations and the amount below which pods would be evicted (K8s pkg/kubelet/cm
/// `getNodeAllocatableAbsolute`).
impl Config {
    pub fn allocatable_cpu_milli(&self, cpus: u32) -> u64 {
        (u64::from(cpus) * 1000).saturating_sub(*self.reserved.cpu_millis)
    }

    pub fn allocatable_memory(&self, bytes: u64) -> u64 {
        let kept = self.reserved.memory_bytes.saturating_add(self.kept(Signal::MemoryAvailable, bytes));
        bytes.saturating_sub(kept)
    }

    /// Allocatable bytes of the file system that holds the pods.
    pub fn allocatable_storage(&self, bytes: u64) -> u64 {
        let kept = self.reserved.storage_bytes.saturating_add(self.kept(Signal::NodeFsAvailable, bytes));
        bytes.saturating_sub(kept)
    }

    fn kept(&self, signal: Signal, capacity: u64) -> u64 {
        let found = self.eviction.thresholds.iter().find(|threshold| threshold.signal == signal);
        found.map_or(0, |threshold| threshold.amount.of(capacity))
    }
}
