//! Records of volumes on the disk, which are all that is kept: a record is written before the first call that it
//! describes, and removed when the last one is undone. Each function may wait for the disk.

use std::io;
use std::path::Path;

use sampan_sys::files::named;

use super::folder::{Folder, is_mounted, is_nothing};
use super::paths::{DEVICES, OF_CSI, PODS, Staging, Target, VOLUMES, is_block, staged_blocks};
use super::record::{FILE, MAX_FILE, Record};
use crate::names::is_folder;

/// Most volumes of all pods together.
pub(super) const MAX_TARGETS: usize = 1_024;
/// Most entries of a folder.
const MAX_NAMES: usize = 4_096;
/// Most volumes of all pods that are looked at. Records that are written at once may each be the last one that is allowed;
/// an error here would keep every volume mounted.
const MAX_FOUND: usize = 2 * MAX_TARGETS;

/// The record in this folder.
///
/// # Errors
/// It is damaged, or the folder is a link.
pub(super) fn read(root: &Path, folder: &Path) -> io::Result<Option<Record>> {
    let opened = match Folder::open(root, folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let Some(bytes) = opened.read(FILE, MAX_FILE)? else { return Ok(None) };
    let path = root.join(folder).join(FILE);
    Record::read(&bytes).map(Some).map_err(io::Error::other).map_err(named(&path))
}

/// The record of a pod's volume.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn read_target(root: &Path, target: &Target) -> io::Result<Option<Record>> {
    read(root, &target.folder())
}

/// Writes the record of a pod's volume, and makes the folders for what the driver makes.
///
/// # Errors
/// There are too many volumes, or the disk is full.
pub(super) fn write_target(root: &Path, target: &Target, record: &Record) -> io::Result<()> {
    Folder::make(root, &target.parent())?;
    let folder = Folder::make(root, &target.folder())?;
    if folder.read(FILE, MAX_FILE)?.is_none() && targets(root)?.len() >= MAX_TARGETS {
        return Err(io::Error::other(format!("there are {MAX_TARGETS} volumes of CSI drivers in pods already")));
    }
    folder.write(FILE, &record.written())
}

/// Writes the record of a volume that is about to be staged, and makes its folder.
///
/// # Errors
/// The disk is full, or another block volume with this name is staged.
pub(super) fn write_staging(root: &Path, staging: &Staging, record: &Record) -> io::Result<()> {
    let folder = Folder::make(root, staging.folder())?;
    let known = folder.read(FILE, MAX_FILE)?.and_then(|bytes| Record::read(&bytes).ok());
    if known.is_some_and(|known| !known.is_of(&record.driver, &record.handle)) {
        // A PersistentVolume that was deleted and made again while a pod had it. Its undoing would be lost.
        return Err(io::Error::other("another volume of this name is staged, and must be unstaged first"));
    }
    folder.write(FILE, &record.written())?;
    // Not opened: something may be mounted there whose server does not answer.
    Folder::make(root, staging.parent())?.add(staging.name())
}

/// Pods' volumes that have a record.
///
/// # Errors
/// There are too many.
pub(super) fn targets(root: &Path) -> io::Result<Vec<Target>> {
    let mut targets = Vec::new();
    for pod in names(root, PODS.as_ref())? {
        for (kind, block) in [(VOLUMES, false), (DEVICES, true)] {
            let folder = Path::new(PODS).join(&pod).join(kind).join(OF_CSI);
            for volume in names(root, &folder)? {
                // A folder without a record is one in which nothing was begun.
                if let Ok(target) = Target::new(&pod, &volume, block)
                    && has_record(root, &target.folder())?
                {
                    targets.push(target);
                }
            }
            if targets.len() > MAX_FOUND {
                return Err(io::Error::other(format!("more than {MAX_FOUND} volumes of CSI drivers in pods")));
            }
        }
    }
    Ok(targets)
}

fn has_record(root: &Path, folder: &Path) -> io::Result<bool> {
    match Folder::open(root, folder) {
        Ok(folder) => Ok(folder.read(FILE, MAX_FILE)?.is_some()),
        Err(error) if is_nothing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether another pod has this volume, or may have it.
///
/// # Errors
/// It cannot be known: a record is damaged.
pub(super) fn is_used(root: &Path, driver: &str, handle: &str, except: &Target) -> io::Result<bool> {
    for target in targets(root)? {
        if target != *except && read_target(root, &target)?.is_some_and(|record| record.is_of(driver, handle)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where a volume is staged: once, but for two PersistentVolumes of one block volume.
///
/// # Errors
/// A record is damaged.
pub(super) fn staged(root: &Path, driver: &str, handle: &str) -> io::Result<Vec<Staging>> {
    let blocks = names(root, &staged_blocks())?;
    let blocks = blocks.iter().filter(|name| is_block(name)).map(|name| Staging::new(driver, handle, name, true));
    let mut staged = Vec::new();
    for staging in std::iter::once(Staging::new(driver, handle, "", false)).chain(blocks) {
        if read(root, staging.folder())?.is_some_and(|record| record.is_of(driver, handle)) {
            staged.push(staging);
        }
    }
    Ok(staged)
}

/// Names of folders in a folder of ours; none without it.
fn names(root: &Path, folder: &Path) -> io::Result<Vec<String>> {
    match Folder::open(root, folder) {
        Ok(folder) => {
            let mut names = folder.names(MAX_NAMES)?;
            names.retain(|name| is_folder(name));
            Ok(names)
        }
        Err(error) if is_nothing(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Removes what a driver has left of a volume that it has unpublished, as the kubelet does.
///
/// # Errors
/// It is still mounted, or files are in it.
pub(super) fn clear_target(root: &Path, target: &Target) -> io::Result<()> {
    clear(root, &target.parent(), target.name(), false)
}

/// Removes what a driver has left of a volume that it has unstaged, and its record.
///
/// # Errors
/// It is still mounted, or files are in it.
pub(super) fn remove_staging(root: &Path, staging: &Staging) -> io::Result<()> {
    let is_block = staging.folder() != staging.parent();
    clear(root, staging.parent(), staging.name(), is_block)?;
    forget(root, staging.folder(), if is_block { 2 } else { 1 })
}

/// Removes the record of a pod's volume: everything is undone.
///
/// # Errors
/// The folder is a link.
pub(super) fn forget_target(root: &Path, target: &Target) -> io::Result<()> {
    forget(root, &target.folder(), 4)?;
    if target.block {
        forget(root, &target.parent(), 1)?;
    }
    Ok(())
}

fn clear(root: &Path, parent: &Path, name: &str, with_content: bool) -> io::Result<()> {
    let path = parent.join(name);
    if is_mounted(root, &path)? {
        return Err(io::Error::other(format!("{} is still mounted", root.join(path).display())));
    }
    match Folder::open(root, parent) {
        Ok(folder) if with_content => folder.remove_all(name),
        Ok(folder) => folder.remove(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes a record and its folder, and up to `levels` folders in all, as long as they are empty.
fn forget(root: &Path, folder: &Path, levels: usize) -> io::Result<()> {
    match Folder::open(root, folder) {
        Ok(folder) => folder.remove(FILE)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    for folder in folder.ancestors().take(levels) {
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name().and_then(|name| name.to_str())) else {
            break;
        };
        // A folder that is not empty stays.
        if Folder::open(root, parent).and_then(|parent| parent.remove(name)).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
