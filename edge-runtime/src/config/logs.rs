//! The `logs` section: how much of what containers write is kept.

use serde::{Deserialize, Serialize};

use super::{Wrong, wrong};

/// What one container may log. At this rate it writes 1 TB a year, which a small card endures for some years; 100 MB/s,
/// which the disk would take, wear it out in weeks. Some hundred usual lines a second pass, and five minutes' worth may
/// come at once (10 MB).
const LOG_BYTES_PER_SECOND: u64 = 32 << 10;

/// As typed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LogFile {
    pub max_bytes: Option<u64>,
    pub max_files: Option<u32>,
    pub bytes_per_second: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct LogConfig {
    pub max_bytes: u64,
    pub max_files: u32,
    /// What one container may log; `None` for as much as it likes.
    pub bytes_per_second: Option<u64>,
}

impl LogConfig {
    pub(super) fn from_file(file: &LogFile) -> Result<Self, Wrong> {
        let max_bytes = file.max_bytes.unwrap_or(10 << 20);
        let max_files = file.max_files.unwrap_or(5);
        let bytes_per_second = Some(file.bytes_per_second.unwrap_or(LOG_BYTES_PER_SECOND)).filter(|rate| *rate > 0);
        if bytes_per_second.is_some_and(|rate| rate < 1024) {
            return Err(wrong("logs.bytes-per-second", "must be at least 1024, or 0 for no limit"));
        }
        if max_bytes < 4096 || max_files < 2 {
            return Err(wrong("logs", "max-bytes must be at least 4096 and max-files at least 2"));
        }
        Ok(Self { max_bytes, max_files, bytes_per_second })
    }
}
