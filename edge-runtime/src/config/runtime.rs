//! The `runtime` section: the default OCI runtime and how it is used.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Wrong, wrong};
use crate::monitor::client::RUNTIME_TIMEOUT;

/// As typed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RuntimeFile {
    pub command: Option<PathBuf>,
    pub parallel: Option<usize>,
    pub request_timeout_seconds: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// The OCI runtime's command: `runc`, `crun`, `youki` or a path.
    pub command: PathBuf,
    /// How many starts run at once. The peers' measured optimum is two to four on two cores.
    pub parallel: usize,
    /// How long it may take for one thing.
    pub request_timeout: Duration,
}

impl RuntimeConfig {
    pub(super) fn from_file(file: RuntimeFile) -> Result<Self, Wrong> {
        let parallel = file.parallel.unwrap_or_else(parallel_starts);
        if !(1..=16).contains(&parallel) {
            return Err(wrong("runtime.parallel", format!("{parallel} is outside 1 to 16")));
        }
        let request_timeout = file.request_timeout_seconds.map_or(RUNTIME_TIMEOUT, Duration::from_secs);
        if !(1..=3600).contains(&request_timeout.as_secs()) {
            return Err(wrong("runtime.request-timeout-seconds", "must be 1 to 3600"));
        }
        Ok(Self { command: file.command.unwrap_or_else(|| "runc".into()), parallel, request_timeout })
    }
}

/// As many starts at once as cores, two at the least: one waits for the kernel while another computes.
fn parallel_starts() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4))
}
