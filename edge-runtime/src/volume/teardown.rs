//! Takes all volumes of a pod away, and nothing that is not the pod's.
//!
//! A hostPath is never below the pod's folder, but a bind mount of one can be (subPath, mounts that a privileged
//! container propagated): everything is unmounted, and checked to be unmounted, before the first file is deleted; and
//! deleting does not cross mounts either.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::error::VolumeError;
use super::layout::PodLayout;
use crate::paths::Paths;
use crate::sys::delete::delete_some;
use crate::sys::files::{mounts_below, unless_missing, unmount};

/// Maximum number of entries deleted here; a larger emptyDir is deleted with the pod's folder.
const IN_PASSING: usize = 500;
/// Rounds of unmounting: one is enough unless mounts are stacked.
const ROUNDS: usize = 8;

/// Unmounts all of `Paths::pod(uid)` that belongs to volumes and deletes it unless it is large, in which case files
/// without any mount are left in the pod's folder; fine when there is nothing.
///
/// # Errors
/// A mount that stays: nothing has been deleted then, and the caller tries again.
pub fn teardown(paths: &Paths, uid: &str) -> Result<(), VolumeError> {
    if uid.is_empty() || uid.contains('/') || uid.starts_with('.') {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "not a pod uid");
        return Err(VolumeError::TearDown { action: "tear down volumes of", path: PathBuf::from(uid), source });
    }
    let layout = PodLayout::new(paths, uid);
    // Mount tables hold real paths: with a link on the way no mount would be found.
    let pod =
        unless_missing(fs::canonicalize(layout.pod())).map_err(|source| failed("resolve", layout.pod(), source))?;
    let Some(pod) = pod else { return Ok(()) };
    let owned = layout.all().map(|dir| pod.join(dir.file_name().unwrap_or_default()));
    unmount_all(&pod, &owned)?;
    for dir in &owned {
        delete_some(dir, IN_PASSING).map_err(|source| failed("delete", dir, source))?;
    }
    Ok(())
}

fn unmount_all(pod: &Path, owned: &[PathBuf]) -> Result<(), VolumeError> {
    for _ in 0..ROUNDS {
        let mounts = mounts_below(pod).map_err(|source| failed("list mounts below", pod, source))?;
        let ours: Vec<PathBuf> =
            mounts.into_iter().filter(|point| owned.iter().any(|dir| point.starts_with(dir))).collect();
        if ours.is_empty() {
            return Ok(());
        }
        // The last mounted first.
        for point in ours.iter().rev() {
            // It may have gone with one above it.
            unmount(point).map_err(|source| failed("unmount", point, source))?;
        }
    }
    let source = io::Error::new(io::ErrorKind::ResourceBusy, "mounts reappear");
    Err(failed("unmount below", pod, source))
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> VolumeError {
    VolumeError::TearDown { action, path: path.to_path_buf(), source }
}
