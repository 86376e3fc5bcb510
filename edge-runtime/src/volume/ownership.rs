//! fsGroup on local persistent volumes. Done once in the life of a pod; a large volume is given over by a helper process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use serde::{Deserialize, Serialize};

use super::error::{At, PathError, VolumeError};
use crate::sys::files::unless_there;
pub(super) use crate::sys::ownership::Progress;
use crate::sys::ownership::{Failed, LONGEST, MOST, own, too_much};
use crate::sys::walk::Bounds;

/// A volume that a helper has to give to the pod's group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owning {
    pub path: PathBuf,
    pub group: u32,
    /// Made when that is done.
    pub mark: PathBuf,
}

impl Owning {
    /// What the helper does.
    ///
    /// # Errors
    /// An entry cannot be changed, or the pod is gone.
    pub fn run(&self) -> Result<(), VolumeError> {
        let volume = self.mark.file_name().unwrap_or_default().to_string_lossy();
        let bounds = Bounds { entries: MOST, until: Instant::now() + LONGEST };
        match own_at(&self.path, self.group, false, bounds).map_err(|error| error.of(&volume))? {
            Progress::Done => set_mark(&self.mark).map_err(|error| error.of(&volume)),
            Progress::TooMuch(bound) => {
                Err(VolumeError::Invalid { volume: volume.into_owned(), problem: too_much(&self.path, bound) })
            }
        }
    }
}

/// Not in the folder of a pod that has gone.
pub(super) fn set_mark(mark: &Path) -> Result<(), PathError> {
    let folder = mark.parent().unwrap_or(mark);
    unless_there(fs::create_dir(folder)).at("create folder", folder)?;
    fs::write(mark, b"").at("write", mark)
}

/// Entries that may be changed in passing, and the time for it.
const IN_PASSING: u64 = 1000;
const MOMENT: Duration = Duration::from_secs(1);

/// Gives everything below `root` to the group. With `on_root_mismatch` (fsGroupChangePolicy: OnRootMismatch) only if
/// the root itself is not as it would be. More than can be done in passing is a helper's work.
pub(super) fn apply(root: &Path, group: u32, on_root_mismatch: bool) -> Result<Progress, PathError> {
    own_at(root, group, on_root_mismatch, Bounds { entries: IN_PASSING, until: Instant::now() + MOMENT })
}

fn own_at(root: &Path, group: u32, on_root_mismatch: bool, bounds: Bounds) -> Result<Progress, PathError> {
    // The path itself is the administrator's, links on it included.
    let top = open(root, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).at("open", root)?;
    let failed = |Failed { action, path, source }| PathError { action, path, source };
    own(&top, root, group, on_root_mismatch, bounds).map_err(failed)
}

#[cfg(test)]
mod tests;
