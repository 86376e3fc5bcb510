//! The `runtime` section: the default OCI runtime and how it is used.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{Wrong, wrong};
use super::number::Number;
use crate::monitor::client::RUNTIME_TIMEOUT;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// The OCI runtime's command: `runc`, `crun`, `youki` or a path.
    command: Option<PathBuf>,
    /// How many starts run at once. The peers' measured optimum is two to four on two cores.
    parallel: Option<usize>,
    /// How long it may take for one thing.
    pub request_timeout_seconds: Number<u64, { RUNTIME_TIMEOUT.as_secs() }>,
}

impl RuntimeConfig {
    pub fn command(&self) -> &Path {
        self.command.as_deref().unwrap_or(Path::new("runc"))
    }

    /// Number of concurrent starts: the number of cores, at least two, since one waits for the kernel while another
    /// computes.
    pub fn parallel(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4));
        self.parallel.unwrap_or_else(cores)
    }

    /// Fills in the defaults.
    pub(super) fn filled(self) -> Self {
        Self { command: Some(self.command().to_owned()), parallel: Some(self.parallel()), ..self }
    }

    pub(super) fn check(self) -> Result<Self, Wrong> {
        if !(1..=16).contains(&self.parallel()) {
            return Err(wrong("runtime.parallel", format!("{} is outside 1 to 16", self.parallel())));
        }
        if !(1..=3600).contains(&*self.request_timeout_seconds) {
            return Err(wrong("runtime.request-timeout-seconds", "must be 1 to 3600"));
        }
        Ok(self.filled())
    }
}
