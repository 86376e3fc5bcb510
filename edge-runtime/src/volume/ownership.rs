//! fsGroup on volumes that outlive their pod: every file of a local persistent volume belongs to the pod's group.
//! K8s pkg/volume/volume_linux.go. Done once in the life of a pod; a large volume is given over by a helper process.
//!
//! Another pod may have the volume and swap a file for a link meanwhile: each entry is opened once, without following
//! links, and looked at and changed through its descriptor.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, fchownat};

use serde::{Deserialize, Serialize};

use super::error::{At, PathError, VolumeError};
use crate::sys::files::unless_there;
use crate::sys::walk::{Bound, Bounds, DEEPEST, Stopped, Walk};

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
        match own(&self.path, self.group, false, bounds).map_err(|error| error.of(&volume))? {
            Progress::Done => set_mark(&self.mark).map_err(|error| error.of(&volume)),
            Progress::TooMuch(bound) => {
                Err(VolumeError::Invalid { volume: volume.into_owned(), problem: too_much(&self.path, bound) })
            }
        }
    }
}

fn too_much(path: &Path, bound: Bound) -> String {
    let what = match bound {
        Bound::Entries => format!("it holds more than {MOST} files and folders"),
        Bound::Depth => format!("its folders lie more than {DEEPEST} folders deep"),
        Bound::Time => format!("that takes more than {} s", LONGEST.as_secs()),
    };
    format!("cannot give {} to fsGroup: {what}; delete what is not needed there, or leave out fsGroup", path.display())
}

/// Not in the folder of a pod that has gone.
pub(super) fn set_mark(mark: &Path) -> Result<(), PathError> {
    let folder = mark.parent().unwrap_or(mark);
    unless_there(fs::create_dir(folder)).at("create folder", folder)?;
    fs::write(mark, b"").at("write", mark)
}

/// What the group may do with files, and with folders besides: reading and writing, entering, and passing itself on.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Entries that may be changed in passing, and the time for it.
const IN_PASSING: u64 = 1000;
const MOMENT: Duration = Duration::from_secs(1);
/// Maximum number of entries that a helper changes.
const MOST: u64 = 1 << 24;
const LONGEST: Duration = Duration::from_secs(3600);

/// Whether all has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// There is more than the bounds allow: in passing, a helper's work.
    TooMuch(Bound),
}

/// Gives everything below `root` to the group. With `on_root_mismatch` (fsGroupChangePolicy: OnRootMismatch) only if
/// the root itself is not as it would be.
pub(super) fn apply(root: &Path, group: u32, on_root_mismatch: bool) -> Result<Progress, PathError> {
    own(root, group, on_root_mismatch, Bounds { entries: IN_PASSING, until: Instant::now() + MOMENT })
}

fn own(root: &Path, group: u32, on_root_mismatch: bool, mut bounds: Bounds) -> Result<Progress, PathError> {
    // The path itself is the administrator's, links on it included.
    let top = open(root, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).at("open", root)?;
    if on_root_mismatch && is_right(&found(&top).at("look at", root)?, group) {
        return Ok(Progress::Done);
    }
    // The root comes last: it marks the others as done.
    if let Some(bound) = below(&top, root, group, &mut bounds)? {
        return Ok(Progress::TooMuch(bound));
    }
    change(&top, group).at("change owner of", root)?;
    Ok(Progress::Done)
}

/// Gives all that is in the folder to the group; the bound at which that ended, if at one.
fn below(top: &OwnedFd, root: &Path, group: u32, bounds: &mut Bounds) -> Result<Option<Bound>, PathError> {
    let mut walk = Walk::new(top.try_clone().at("list", root)?, bounds).at("list", root)?;
    loop {
        let name = match walk.next_entry() {
            Ok(Some(name)) => name,
            Ok(None) => return Ok(None),
            Err(Stopped::Bound(bound)) => return Ok(Some(bound)),
            Err(Stopped::Io(error)) => return Err(error).at("list", &root.join(walk.path())),
        };
        // Only an error is worth putting the path together.
        let failed = |walk: &Walk<'_>, action, source| {
            let path = root.join(walk.path()).join(OsStr::from_bytes(name.to_bytes()));
            PathError { action, path, source }
        };
        // Opening must not wait for the other end of a FIFO, or wake a device.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = unless_gone(openat(walk.folder(), name.as_c_str(), flags, Mode::empty()));
        let Some(handle) = handle.map_err(|errno| failed(&walk, "open", errno.into()))? else { continue };
        if !change(&handle, group).map_err(|error| failed(&walk, "change owner of", error))?.is_dir() {
            continue;
        }
        match walk.enter(&name) {
            Ok(()) => {}
            Err(Stopped::Bound(bound)) => return Ok(Some(bound)),
            Err(Stopped::Io(error)) if is_gone(error.raw_os_error()) => {}
            Err(Stopped::Io(error)) => return Err(failed(&walk, "list", error)),
        }
    }
}

fn unless_gone(opened: nix::Result<OwnedFd>) -> nix::Result<Option<OwnedFd>> {
    match opened {
        Ok(handle) => Ok(Some(handle)),
        Err(errno) if is_gone(Some(errno as i32)) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Deleted or replaced since it was listed: its new owner is the concern of the process that did that.
fn is_gone(error: Option<i32>) -> bool {
    matches!(error, Some(nix::libc::ENOENT | nix::libc::ELOOP | nix::libc::ENOTDIR))
}

fn found(handle: &OwnedFd) -> io::Result<Metadata> {
    File::from(handle.try_clone()?).metadata()
}

fn is_right(found: &Metadata, group: u32) -> bool {
    let bits = if found.is_dir() { FOLDER_BITS } else { FILE_BITS };
    found.gid() == group && found.mode() & bits == bits
}

fn change(handle: &OwnedFd, group: u32) -> io::Result<Metadata> {
    let found = found(handle)?;
    if is_right(&found, group) {
        return Ok(found);
    }
    fchownat(handle.as_fd(), "", None, Some(Gid::from_raw(group)), AtFlags::AT_EMPTY_PATH)?;
    // A link has no mode of its own, and its target may belong to any user.
    if !found.is_symlink() {
        let bits = if found.is_dir() { FOLDER_BITS } else { FILE_BITS };
        let mode = fs::Permissions::from_mode(found.mode() & 0o7777 | bits);
        // fchmod(2) does not support O_PATH; this name leads to the open file, whatever its path is by now.
        fs::set_permissions(format!("/proc/self/fd/{}", handle.as_raw_fd()), mode)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
