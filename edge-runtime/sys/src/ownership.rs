//! fsGroup on volumes that outlive their pod: every file of the volume belongs to the pod's group.
//! K8s pkg/volume/volume_linux.go.
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
use std::time::Duration;

use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, fchownat};

use super::walk::{Bound, Bounds, DEEPEST, Stopped, Walk};

/// Maximum number of entries that a process of its own changes, and its time.
pub const MOST: u64 = 1 << 24;
pub const LONGEST: Duration = Duration::from_secs(3600);

/// What the group may do with files, and with folders besides: reading and writing, entering, and passing itself on.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Whether all has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    /// There is more than the bounds allow.
    TooMuch(Bound),
}

/// A call that has failed.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}: {source}", .path.display())]
pub struct Failed {
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

/// Message about a volume that is larger than [`MOST`] and [`LONGEST`] allow.
#[must_use]
pub fn too_much(path: &Path, bound: Bound) -> String {
    let what = match bound {
        Bound::Entries => format!("it holds more than {MOST} files and folders"),
        Bound::Depth => format!("its folders lie more than {DEEPEST} folders deep"),
        Bound::Time => format!("that takes more than {} s", LONGEST.as_secs()),
    };
    format!("cannot give {} to fsGroup: {what}; delete what is not needed there, or leave out fsGroup", path.display())
}

/// Gives the open folder `top` and everything below it to the group. With `on_root_mismatch` (fsGroupChangePolicy:
/// OnRootMismatch) only if `top` itself is not as it would be. `root`: its path, for messages.
///
/// # Errors
/// An entry cannot be changed, for another reason than that its file system refuses.
pub fn own(
    top: &OwnedFd,
    root: &Path,
    group: u32,
    on_root_mismatch: bool,
    mut bounds: Bounds,
) -> Result<Progress, Failed> {
    let at_root = |action| move |source| Failed { action, path: root.to_owned(), source };
    if on_root_mismatch && is_right(&found(top).map_err(at_root("look at"))?, group) {
        return Ok(Progress::Done);
    }
    // The root comes last: it marks the others as done.
    if let Some(bound) = below(top, root, group, &mut bounds)? {
        return Ok(Progress::TooMuch(bound));
    }
    change(top, group).map_err(at_root("change owner of"))?;
    Ok(Progress::Done)
}

/// Gives all that is in the folder to the group; the bound at which that ended, if at one.
fn below(top: &OwnedFd, root: &Path, group: u32, bounds: &mut Bounds) -> Result<Option<Bound>, Failed> {
    let at_root = |source| Failed { action: "list", path: root.to_owned(), source };
    let mut walk = Walk::new(top.try_clone().map_err(at_root)?, bounds).map_err(at_root)?;
    loop {
        let name = match walk.next_entry() {
            Ok(Some(name)) => name,
            Ok(None) => return Ok(None),
            Err(Stopped::Bound(bound)) => return Ok(Some(bound)),
            Err(Stopped::Io(source)) => {
                return Err(Failed { action: "list", path: root.join(walk.path()), source });
            }
        };
        // Only an error is worth putting the path together.
        let failed = |walk: &Walk<'_>, action, source| {
            let path = root.join(walk.path()).join(OsStr::from_bytes(name.to_bytes()));
            Failed { action, path, source }
        };
        // Opening must not wait for the other end of a FIFO, or wake a device.
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = unless_left_out(openat(walk.folder(), name.as_c_str(), flags, Mode::empty()));
        let Some(handle) = handle.map_err(|errno| failed(&walk, "open", errno.into()))? else { continue };
        if !change(&handle, group).map_err(|error| failed(&walk, "change owner of", error))?.is_dir() {
            continue;
        }
        match walk.enter(&name) {
            Ok(()) => {}
            Err(Stopped::Bound(bound)) => return Ok(Some(bound)),
            Err(Stopped::Io(error)) if is_left_out(error.raw_os_error()) => {}
            Err(Stopped::Io(error)) => return Err(failed(&walk, "list", error)),
        }
    }
}

fn unless_left_out(opened: nix::Result<OwnedFd>) -> nix::Result<Option<OwnedFd>> {
    match opened {
        Ok(handle) => Ok(Some(handle)),
        Err(errno) if is_left_out(Some(errno as i32)) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn is_left_out(error: Option<i32>) -> bool {
    is_gone(error) || is_refused(error)
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
    let given = fchownat(handle.as_fd(), "", None, Some(Gid::from_raw(group)), AtFlags::AT_EMPTY_PATH);
    unless_refused(given.map_err(io::Error::from))?;
    // A link has no mode of its own, and its target may belong to any user.
    if !found.is_symlink() {
        let bits = if found.is_dir() { FOLDER_BITS } else { FILE_BITS };
        let mode = fs::Permissions::from_mode(found.mode() & 0o7777 | bits);
        // fchmod(2) does not support O_PATH; this name leads to the open file, whatever its path is by now.
        unless_refused(fs::set_permissions(format!("/proc/self/fd/{}", handle.as_raw_fd()), mode))?;
    }
    Ok(found)
}

fn unless_refused(changed: io::Result<()>) -> io::Result<()> {
    match changed {
        Err(error) if is_refused(error.raw_os_error()) => Ok(()),
        changed => changed,
    }
}

/// Whether a read-only file system has refused, or a server that gives root no rights over files of others (NFS with
/// `root_squash`): the pod may have access all the same. The kubelet ignores whatever happens when it changes an entry.
fn is_refused(error: Option<i32>) -> bool {
    use nix::libc::{EACCES, EINVAL, EOPNOTSUPP, EPERM, EROFS};
    matches!(error, Some(EACCES | EINVAL | EOPNOTSUPP | EPERM | EROFS))
}

#[cfg(test)]
mod tests;
