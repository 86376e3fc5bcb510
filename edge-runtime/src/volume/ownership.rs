//! fsGroup on volumes that outlive their pod: every file of a local persistent volume belongs to the pod's group.
//! K8s pkg/volume/volume_linux.go. Done once in the life of a pod; a large volume is given over by a helper process.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use super::error::{At, PathError};

/// What the group may do with files, and with folders besides: reading and writing, entering, and passing itself on.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Entries that may be changed in passing.
const IN_PASSING: usize = 1000;

/// Whether all has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// There is more than can be done in passing: a helper's work.
    TooMuch,
}

/// Gives everything below `root` to the group. With `on_root_mismatch` (fsGroupChangePolicy: OnRootMismatch) only if
/// the root itself is not as it would be.
pub(super) fn apply(root: &Path, group: u32, on_root_mismatch: bool) -> Result<Progress, PathError> {
    if on_root_mismatch && is_right(&fs::symlink_metadata(root).at("look at", root)?, group) {
        return Ok(Progress::Done);
    }
    let mut left = IN_PASSING;
    own(root, group, &mut left)
}

/// As [`apply`], whatever it takes.
pub(super) fn apply_all(root: &Path, group: u32) -> Result<(), PathError> {
    let mut left = usize::MAX;
    own(root, group, &mut left).map(drop)
}

fn own(root: &Path, group: u32, left: &mut usize) -> Result<Progress, PathError> {
    // The root last: it says that the rest is done.
    if below(root, group, left)? == Progress::TooMuch {
        return Ok(Progress::TooMuch);
    }
    change(root, group)?;
    Ok(Progress::Done)
}

fn below(dir: &Path, group: u32, left: &mut usize) -> Result<Progress, PathError> {
    for entry in fs::read_dir(dir).at("list", dir)? {
        let entry = entry.at("list", dir)?;
        let path = entry.path();
        let Some(fewer) = left.checked_sub(1) else { return Ok(Progress::TooMuch) };
        *left = fewer;
        if entry.file_type().at("look at", &path)?.is_dir() && below(&path, group, left)? == Progress::TooMuch {
            return Ok(Progress::TooMuch);
        }
        change(&path, group)?;
    }
    Ok(Progress::Done)
}

fn is_right(found: &fs::Metadata, group: u32) -> bool {
    let bits = if found.is_dir() { FOLDER_BITS } else { FILE_BITS };
    found.gid() == group && found.mode() & bits == bits
}

fn change(path: &Path, group: u32) -> Result<(), PathError> {
    let found = fs::symlink_metadata(path).at("look at", path)?;
    if is_right(&found, group) {
        return Ok(());
    }
    lchown(path, None, Some(group)).at("change group of", path)?;
    if found.is_symlink() {
        // Has no mode of its own, and what it leads to may be anybody's.
        return Ok(());
    }
    let bits = if found.is_dir() { FOLDER_BITS } else { FILE_BITS };
    fs::set_permissions(path, fs::Permissions::from_mode(found.mode() & 0o7777 | bits)).at("change mode of", path)
}
