//! hostPath: a path of the node itself, checked and handed on, never owned.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path};

use super::error::{At, VolumeError};

/// The path of the pod; `type_` is one of the API's values, empty for no check.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostPath<'a> {
    pub(super) path: &'a str,
    pub(super) type_: &'a str,
}

/// Creates the path if the type requires it, then checks it. Links are followed: they are the administrator's.
pub(super) fn check(volume: &str, wanted: &HostPath<'_>) -> Result<(), VolumeError> {
    let path = Path::new(wanted.path);
    let invalid = |problem: String| VolumeError::Invalid { volume: volume.to_string(), problem };
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err(invalid(format!("hostPath {:?} must be absolute and without '..'", wanted.path)));
    }
    let found = fs::metadata(path);
    let missing = found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    match wanted.type_ {
        // Container runtimes make a missing folder when no type is asked for.
        "" | "DirectoryOrCreate" if missing => {
            fs::create_dir_all(path).at("create folder", path).map_err(|error| error.of(volume))?;
        }
        "FileOrCreate" if missing => {
            let file = OpenOptions::new().append(true).create(true).mode(0o644).open(path);
            file.at("create file", path).map_err(|error| error.of(volume))?;
        }
        _ => {}
    }
    let kind = fs::metadata(path).ok().map(|found| found.file_type());
    let (right, problem) = match wanted.type_ {
        "" => return Ok(()),
        "Directory" | "DirectoryOrCreate" => (kind.is_some_and(|kind| kind.is_dir()), "is not a directory"),
        "File" | "FileOrCreate" => (kind.is_some_and(|kind| kind.is_file()), "is not a file"),
        "Socket" => (kind.is_some_and(|kind| kind.is_socket()), "is not a socket file"),
        "CharDevice" => (kind.is_some_and(|kind| kind.is_char_device()), "is not a character device"),
        "BlockDevice" => (kind.is_some_and(|kind| kind.is_block_device()), "is not a block device"),
        other => return Err(invalid(format!("{other} is an invalid volume type"))),
    };
    if right {
        return Ok(());
    }
    Err(VolumeError::HostPathType { volume: volume.to_string(), path: path.to_path_buf(), problem })
}
