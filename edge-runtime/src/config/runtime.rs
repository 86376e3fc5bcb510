//! The `runtime` section: the default OCI runtime and how it is used.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Wrong, wrong};
use crate::monitor::client::RUNTIME_TIMEOUT;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// The OCI runtime's command: `runc`, `crun`, `youki` or a path.
    pub command: PathBuf,
    /// How many starts run at once. The peers' measured optimum is two to four on two cores.
    pub parallel: usize,
    /// How long it may take for one thing.
    pub request_timeout_seconds: u64,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        // As many starts at once as cores, two at the least: one waits for the kernel while another computes.
        let parallel = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4));
        Self { command: "runc".into(), parallel, request_timeout_seconds: RUNTIME_TIMEOUT.as_secs() }
    }
}

impl RuntimeConfig {
    pub(super) fn check(self) -> Result<Self, Wrong> {
        if !(1..=16).contains(&self.parallel) {
            return Err(wrong("runtime.parallel", format!("{} is outside 1 to 16", self.parallel)));
        }
        if !(1..=3600).contains(&self.request_timeout_seconds) {
            return Err(wrong("runtime.request-timeout-seconds", "must be 1 to 3600"));
        }
        Ok(self)
    }
}
