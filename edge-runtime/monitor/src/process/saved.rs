//! `monitor.json` in a container's bundle: what the next monitor needs to continue with the container. A reboot removes
//! the bundle, and ends the container.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::protocol::StartContainer;
use sampan_sys::descriptors;
use sampan_sys::files::replace;
use sampan_sys::from_json::from_json;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Saved {
    pub(crate) spec: StartContainer,
    #[serde(flatten)]
    pub(crate) phase: SavedPhase,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(crate) enum SavedPhase {
    /// Written before the OCI runtime is started.
    Starting,
    Running {
        pid: i32,
        /// In clock ticks since boot: proves that the pid is still the same process.
        start_time: Option<u64>,
        started_at: String,
    },
    Failed {
        message: String,
    },
}

/// Replaces the file at once: a reader sees the old or the new one.
pub(crate) fn save(saved: &Saved) -> io::Result<()> {
    replace(&file(&saved.spec.bundle), &serde_json::to_vec(saved)?, false)
}

/// All containers of former monitors, from the bundles in `containers`. What cannot be read is left out.
///
/// # Errors
/// Descriptors or memory are short: omitted containers would be treated as unknown, and ended.
pub(crate) fn load_all(containers: &Path) -> io::Result<Vec<Saved>> {
    let mut all = Vec::new();
    for entry in descriptors::unless_short(fs::read_dir(containers))?.into_iter().flatten() {
        let Some(entry) = descriptors::unless_short(entry)? else { continue };
        let text = descriptors::unless_short(fs::read(file(&entry.path())))?.unwrap_or_default();
        all.extend(from_json::<Saved>(&text));
    }
    Ok(all)
}

/// Removes all that the monitor has put into the bundle.
pub(crate) fn clear(bundle: &Path) {
    let names = ["stdin", "stdout", "stderr", super::console::SOCKET, "pid", "runtime.log", "start.lock", files::SAVED];
    for name in names {
        let _ = fs::remove_file(bundle.join(name));
    }
}

/// Lock of a start. The OCI runtime inherits it, so it is free only when no start is in progress, whichever process
/// began it: `Ok(None)` means still in progress.
pub(crate) fn start_lock(bundle: &Path) -> io::Result<Option<File>> {
    let file = File::options().create(true).write(true).truncate(false).open(lock_file(bundle))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(e),
    }
}

pub(crate) fn lock_file(bundle: &Path) -> PathBuf {
    bundle.join("start.lock")
}

fn file(bundle: &Path) -> PathBuf {
    bundle.join(files::SAVED)
}
