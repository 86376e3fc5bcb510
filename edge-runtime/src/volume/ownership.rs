//! fsGroup on volumes that outlive their pod: every file of a local persistent volume belongs to the pod's group.
//! K8s pkg/volume/volume_linux.go.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use super::error::{At, PathError};

/// What the group may do with files, and with folders besides: reading and writing, entering, and passing itself on.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Gives everything below `root` to the group. With `on_root_mismatch` (fsGroupChangePolicy: OnRootMismatch) only if
/// the root itself is not as it would be.
pub(super) fn apply(root: &Path, group: u32, on_root_mismatch: bool) -> Result<(), PathError> {
    if on_root_mismatch && is_right(&fs::symlink_metadata(root).at("look at", root)?, group) {
        return Ok(());
    }
    // The root last: it says that the rest is done.
    below(root, group)?;
    change(root, group)
}

fn below(dir: &Path, group: u32) -> Result<(), PathError> {
    for entry in fs::read_dir(dir).at("list", dir)? {
        let entry = entry.at("list", dir)?;
        let path = entry.path();
        if entry.file_type().at("look at", &path)?.is_dir() {
            below(&path, group)?;
        }
        change(&path, group)?;
    }
    Ok(())
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
