//! Where daemon and monitor find each other and what the other has left, below the node's run folder.

use std::fs;
use std::path::{Path, PathBuf};

/// File in a bundle: what a new monitor must know of its container.
pub(crate) const SAVED: &str = "monitor.json";

/// The socket at which the monitor listens.
pub fn socket(run: &Path) -> PathBuf {
    run.join("monitor.sock")
}

/// Exit records, written by the monitor before it tells anyone; see [`crate::exit`].
pub fn exits(run: &Path) -> PathBuf {
    run.join("exits")
}

/// The OCI bundles, one folder for each container attempt.
pub fn bundles(run: &Path) -> PathBuf {
    run.join("containers")
}

/// Log of the monitor.
pub fn log(run: &Path) -> PathBuf {
    run.join("monitor.log")
}

/// Held by a living monitor.
pub(crate) fn lock(run: &Path) -> PathBuf {
    run.join("monitor.lock")
}

/// Whether a monitor has left a container that it began.
pub fn any_left(run: &Path) -> bool {
    fs::read_dir(bundles(run)).is_ok_and(|entries| entries.flatten().any(|one| one.path().join(SAVED).exists()))
}
