//! A path inside a volume as a mount source that a pod cannot redirect.
//!
//! The pod can write to its volumes, and so plant links there; the kernel resolves the path (`openat2(2)` with
//! `RESOLVE_BENEATH`) and the descriptor, not a name, is what gets mounted (CVE-2017-1002101, CVE-2021-25741).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, fchmod, mkdirat};

use super::error::{At, PathError};
use super::layout::make_dir;
use crate::sys::beneath::open_beneath;
use crate::sys::files::{unless_missing, unmount};

/// Relative and without `..`; the API server checks the same, but `subPathExpr` is expanded here.
pub fn check(path: &str) -> Result<(), String> {
    if Path::new(path).is_absolute() {
        return Err(format!("subPath {path:?} must not be an absolute path"));
    }
    if Path::new(path).components().any(|part| part == Component::ParentDir) {
        return Err(format!("subPath {path:?} must not contain '..'"));
    }
    Ok(())
}

/// Mounts `volume`/`sub_path` at `target` (made as file or folder); a missing folder is created with the mode of the
/// volume. Replaces an earlier mount.
pub(super) fn bind(volume: &Path, sub_path: &str, target: &Path) -> Result<(), PathError> {
    let wanted = volume.join(sub_path);
    let source = open(volume, sub_path).at("resolve subPath", &wanted)?;
    bind_at(&source, &wanted, target)
}

/// Mounts `source`, opened as `wanted`, at `target`.
pub(super) fn bind_at(source: &OwnedFd, wanted: &Path, target: &Path) -> Result<(), PathError> {
    while unmount(target).at("unmount", target)? {}
    if let Some(parent) = target.parent() {
        make_dir(parent)?;
    }
    let is_dir = File::from(source.try_clone().at("open", wanted)?).metadata().at("look at", wanted)?.is_dir();
    prepare_target(target, is_dir).at("create mount point", target)?;
    let by_descriptor = format!("/proc/self/fd/{}", source.as_raw_fd());
    mount(Some(by_descriptor.as_str()), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .at("mount subPath at", target)
}

fn prepare_target(target: &Path, is_dir: bool) -> io::Result<()> {
    match unless_missing(fs::symlink_metadata(target))? {
        Some(found) if found.is_dir() == is_dir => return Ok(()),
        Some(found) if found.is_dir() => fs::remove_dir(target)?,
        Some(_) => fs::remove_file(target)?,
        None => {}
    }
    if is_dir { fs::create_dir(target) } else { File::create_new(target).map(drop) }
}

/// Opens `volume`/`sub_path`; missing folders are made.
///
/// # Errors
/// It leads out of the volume, or the kernel refuses.
pub fn open(volume: &Path, sub_path: &str) -> io::Result<OwnedFd> {
    let root = open_volume(volume)?;
    match open_beneath(&root, sub_path, OFlag::O_PATH) {
        Err(Errno::ENOENT) => create(&root, sub_path),
        result => explained(result),
    }
}

/// Same as [`open`], but creates nothing.
pub(super) fn find(volume: &Path, sub_path: &str) -> io::Result<OwnedFd> {
    explained(open_beneath(&open_volume(volume)?, sub_path, OFlag::O_PATH))
}

/// `O_PATH`: opening must not block on a FIFO that a hostPath names.
fn open_volume(volume: &Path) -> Result<OwnedFd, Errno> {
    nix::fcntl::open(volume, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

fn explained(opened: Result<OwnedFd, Errno>) -> io::Result<OwnedFd> {
    match opened {
        Err(Errno::EXDEV) => Err(io::Error::other("the path leads out of the volume")),
        result => Ok(result?),
    }
}

/// Makes the missing folders one by one, each inside the one opened before: a link that appears meanwhile is an error.
fn create(root: &OwnedFd, sub_path: &str) -> io::Result<OwnedFd> {
    let mode = File::from(root.try_clone()?).metadata()?.mode() & 0o7777;
    let mode = Mode::from_bits_truncate(mode);
    let mut current = root.try_clone()?;
    for part in Path::new(sub_path).components() {
        let Component::Normal(name) = part else { continue };
        let name = Path::new(name);
        let folder = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        current = match open_beneath(&current, name, folder) {
            Err(Errno::ENOENT) => {
                mkdirat(&current, name, mode)?;
                let made = open_beneath(&current, name, folder | OFlag::O_NOFOLLOW)?;
                // The umask took bits away.
                fchmod(&made, mode)?;
                made
            }
            result => result?,
        };
    }
    Ok(current)
}

#[cfg(test)]
mod tests;
