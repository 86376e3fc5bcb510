//! Publishes a set of files at once, in the kubelet's layout that programs and libraries rely on:
//! `NAME -> ..data/NAME`, `..data -> ..TIMESTAMP`, `..TIMESTAMP/NAME`. Replacing the link `..data` switches all.
//!
//! A crash at any point leaves the old or the new set published; stray folders go with the next write.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use super::error::{At, PathError};
use super::payload::{File, Payload};
use crate::sys::files::unless_there;
use crate::sys::gather::Gather;

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";

/// Whether something has been published in `dir`.
pub(super) fn exists(dir: &Path) -> bool {
    fs::read_link(dir.join(DATA)).is_ok()
}

/// Publishes `payload` in `dir`; files and folders belong to `group` if one is given (the pod's fsGroup).
/// Returns whether anything changed.
pub(super) fn write(dir: &Path, payload: &Payload, group: Option<u32>) -> Result<bool, PathError> {
    make_open_dir(dir, group)?;
    let current = fs::read_link(dir.join(DATA)).ok();
    let changed = current.as_ref().is_none_or(|name| !same(&dir.join(name), payload));
    if changed {
        let name = new_folder(dir, group)?;
        for (path, file) in payload.iter() {
            write_file(&dir.join(&name), path, file, group)?;
        }
        let link = dir.join(DATA_NEW);
        let _ = fs::remove_file(&link);
        symlink(&name, &link).at("create link", &link)?;
        fs::rename(&link, dir.join(DATA)).at("replace link", &dir.join(DATA))?;
    }
    // Also without a change: a crash may have occurred between the switch and this.
    publish_names(dir, payload)?;
    if changed {
        remove_stray_folders(dir)?;
    }
    Ok(changed)
}

/// Same paths with the same contents and nothing else.
fn same(dir: &Path, payload: &Payload) -> bool {
    let mut files = 0;
    payload.iter().all(|(path, file)| fs::read(dir.join(path)).is_ok_and(|data| data == file.data))
        && count_files(dir, &mut files).is_ok()
        && files == payload.len()
}

fn count_files(dir: &Path, files: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => count_files(&entry.path(), files)?,
            false => *files += 1,
        }
    }
    Ok(())
}

/// `..2026_01_31_10_20_30.123456789`; a clock that stands or jumps back only costs another number.
fn new_folder(dir: &Path, group: Option<u32>) -> Result<PathBuf, PathError> {
    let now = jiff::Timestamp::now();
    let stamp = now.strftime("..%Y_%m_%d_%H_%M_%S").to_string();
    let mut number = now.subsec_nanosecond().unsigned_abs();
    loop {
        let name = PathBuf::from(format!("{stamp}.{number:09}"));
        let path = dir.join(&name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number = number.wrapping_add(1),
            result => {
                result.at("create folder", &path)?;
                set_owner(&path, 0o755, group)?;
                return Ok(name);
            }
        }
    }
}

fn write_file(dir: &Path, path: &str, file: &File, group: Option<u32>) -> Result<(), PathError> {
    let target = dir.join(path);
    for parent in Path::new(path).ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
        make_open_dir(&dir.join(parent), group)?;
    }
    // Closed to others until it has its owner and mode.
    let mut open =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target).at("create", &target)?;
    open.write_all(&file.data).at("write", &target)?;
    let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
    if file.owner.is_some() || group.is_some() {
        chown(&target, file.owner, group).at("change owner of", &target)?;
    }
    open.set_permissions(fs::Permissions::from_mode(mode)).at("change mode of", &target)
}

fn make_open_dir(dir: &Path, group: Option<u32>) -> Result<(), PathError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => {
            result.at("create folder", dir)?;
            set_owner(dir, 0o755, group)
        }
    }
}

fn set_owner(dir: &Path, mode: u32, group: Option<u32>) -> Result<(), PathError> {
    if let Some(group) = group {
        chown(dir, None, Some(group)).at("change group of", dir)?;
    }
    let mode = if group.is_some() { mode | 0o2000 } else { mode };
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).at("change mode of", dir)
}

/// One link per first path component; links of names that have gone are removed.
fn publish_names(dir: &Path, payload: &Payload) -> Result<(), PathError> {
    let names: BTreeSet<&str> = payload.keys().filter_map(|path| path.split('/').next()).into_set();
    for name in &names {
        let link = dir.join(name);
        unless_there(symlink(Path::new(DATA).join(name), &link)).at("create link", &link)?;
    }
    for entry in fs::read_dir(dir).at("list", dir)?.flatten() {
        let name = entry.file_name();
        let ours = entry.file_type().is_ok_and(|kind| kind.is_symlink()) && name != DATA && name != DATA_NEW;
        if ours && !name.to_str().is_some_and(|name| names.contains(name)) {
            fs::remove_file(entry.path()).at("delete", &entry.path())?;
        }
    }
    Ok(())
}

fn remove_stray_folders(dir: &Path) -> Result<(), PathError> {
    let current = fs::read_link(dir.join(DATA)).at("read link", &dir.join(DATA))?;
    for entry in fs::read_dir(dir).at("list", dir)?.flatten() {
        let name = entry.file_name();
        let stray = name.to_string_lossy().starts_with("..") && Path::new(&name) != current;
        if stray && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            fs::remove_dir_all(entry.path()).at("delete", &entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
