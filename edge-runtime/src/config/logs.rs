//! The `logs` section: how much of what containers write is kept.

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use super::number::Number;

/// Default log rate of one container. At this rate it writes 1 TB a year, which a small card endures for some years.
/// The maximum of the disk, 100 MB/s, would wear it out in weeks. The rate permits some hundred usual lines a second,
/// and the burst is five minutes' worth (10 MB).
const LOG_BYTES_PER_SECOND: u64 = 32 << 10;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LogConfig {
    pub max_bytes: Number<u64, { 10 << 20 }>,
    pub max_files: Number<u32, 5>,
    bytes_per_second: Number<u64, LOG_BYTES_PER_SECOND>,
}

impl LogConfig {
    /// Maximum rate of one container's log, in bytes per second; `None` for unlimited.
    pub fn bytes_per_second(&self) -> Option<u64> {
        Some(*self.bytes_per_second).filter(|rate| *rate > 0)
    }

    pub(super) fn check(self) -> Result<Self, Wrong> {
        if self.bytes_per_second().is_some_and(|rate| rate < 1024) {
            return Err(wrong("logs.bytes-per-second", "must be at least 1024, or 0 for no limit"));
        }
        if *self.max_bytes < 4096 || *self.max_files < 2 {
            return Err(wrong("logs", "max-bytes must be at least 4096 and max-files at least 2"));
        }
        Ok(self)
    }
}
