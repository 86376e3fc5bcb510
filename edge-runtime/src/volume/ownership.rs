//! fsGroup on volumes that outlive their pod: every file of a local persistent volume belongs to the pod's group.
//! K8s pkg/volume/volume_linux.go. Done once in the life of a pod; a large volume is given over by a helper process.
//!
//! Another pod may have the volume and swap a file for a link meanwhile: each entry is opened once, without following
//! links, and looked at and changed through its descriptor.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, fchownat};

use serde::{Deserialize, Serialize};

use super::error::{At, PathError, VolumeError};
use crate::sys::files::unless_there;

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
    /// An entry cannot be changed, or the pod is no more.
    pub fn run(&self) -> Result<(), VolumeError> {
        let done = own(&self.path, self.group, false, usize::MAX).and_then(|_| set_mark(&self.mark));
        done.map_err(|error| error.of(&self.mark.file_name().unwrap_or_default().to_string_lossy()))
    }
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
    own(root, group, on_root_mismatch, IN_PASSING)
}

fn own(root: &Path, group: u32, on_root_mismatch: bool, most: usize) -> Result<Progress, PathError> {
    // The path itself is the administrator's, links on it included.
    let top = open(root, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).at("open", root)?;
    if on_root_mismatch && is_right(&found(&top).at("look at", root)?, group) {
        return Ok(Progress::Done);
    }
    // The root last: it says that the rest is done.
    if below(&top, root, group, most)? == Progress::TooMuch {
        return Ok(Progress::TooMuch);
    }
    change(&top, group).at("change owner of", root)?;
    Ok(Progress::Done)
}

fn below(top: &OwnedFd, root: &Path, group: u32, most: usize) -> Result<Progress, PathError> {
    let mut left = most;
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let Some(handle) = enter(top, &folder).at("list", &path)? else { continue };
        let entries = Dir::from_fd(handle.try_clone().at("list", &path)?).at("list", &path)?;
        for entry in entries {
            let entry = entry.at("list", &path)?;
            let name = Path::new(std::ffi::OsStr::from_bytes(entry.file_name().to_bytes()));
            if name == Path::new(".") || name == Path::new("..") {
                continue;
            }
            let Some(fewer) = left.checked_sub(1) else { return Ok(Progress::TooMuch) };
            left = fewer;
            // Opening must not wait for the other end of a FIFO, or wake a device.
            let handle = openat(&handle, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty());
            let Some(handle) = unless_gone(handle).at("open", &path.join(name))? else { continue };
            if change(&handle, group).at("change owner of", &path.join(name))?.is_dir() {
                folders.push(folder.join(name));
            }
        }
    }
    Ok(Progress::Done)
}

/// The folder below `top`, opened step by step without following links; `None` when it is no more.
fn enter(top: &OwnedFd, folder: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // A description of its own: reading a folder moves a position.
    let mut at = openat(top, ".", flags, Mode::empty())?;
    for name in folder {
        match unless_gone(openat(&at, name, flags, Mode::empty()))? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Deleted or replaced since it was listed: whoever did that has seen to its owner.
fn unless_gone(opened: nix::Result<OwnedFd>) -> nix::Result<Option<OwnedFd>> {
    match opened {
        Ok(handle) => Ok(Some(handle)),
        Err(Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
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
    // A link has no mode of its own, and what it leads to may be anybody's.
    if !found.is_symlink() {
        let bits = if found.is_dir() { FOLDER_BITS } else { FILE_BITS };
        let mode = fs::Permissions::from_mode(found.mode() & 0o7777 | bits);
        // fchmod(2) takes no O_PATH; this name leads to what is open, whatever its path is by now.
        fs::set_permissions(format!("/proc/self/fd/{}", handle.as_raw_fd()), mode)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const GROUP: u32 = 4242;

    /// A pod that has the volume as well swaps a file, and a folder, for links to what is the host's.
    #[test]
    fn a_file_swapped_for_a_link_leads_nowhere() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (volume, host) = (dir.path().join("volume"), dir.path().join("host"));
        fs::create_dir_all(host.join("folder")).unwrap();
        for file in ["shadow", "folder/key"] {
            fs::write(host.join(file), "").unwrap();
            fs::set_permissions(host.join(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
        fs::create_dir_all(volume.join("f")).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (at, link, aside) = (volume.join("f/x"), volume.join("f/y"), volume.join("f/z"));
                while !stop.load(Ordering::Relaxed) {
                    // Errors: the other half of the swap is under way.
                    let _ = fs::write(&at, "");
                    let _ = symlink(host.join("shadow"), &link);
                    let _ = fs::rename(&link, &at);
                    let _ = fs::remove_file(&at);
                    let _ = fs::create_dir(&at);
                    let _ = fs::write(at.join("key"), "");
                    let _ = fs::rename(&at, &aside);
                    let _ = symlink(host.join("folder"), &at);
                    let _ = fs::remove_file(&at);
                    let _ = fs::remove_dir_all(&aside);
                }
            });
            for _ in 0..3000 {
                // What vanishes under its hands may be an error, but nothing else may happen.
                let _ = own(&volume, GROUP, false, usize::MAX);
            }
            stop.store(true, Ordering::Relaxed);
        });
        for file in ["shadow", "folder", "folder/key"] {
            let found = fs::metadata(host.join(file)).unwrap();
            assert_ne!(found.gid(), GROUP, "{file}");
            assert_eq!(found.mode() & 0o060, if found.is_dir() { 0o040 } else { 0 }, "{file}");
        }
    }

    #[test]
    fn an_entry_is_changed_where_it_was_opened() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (file, moved, host) = (dir.path().join("f"), dir.path().join("moved"), dir.path().join("host"));
        for path in [&file, &host] {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let handle = open(&file, OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty()).unwrap();
        fs::rename(&file, &moved).unwrap();
        symlink(&host, &file).unwrap();
        change(&handle, GROUP).unwrap();
        assert_eq!(fs::metadata(&host).unwrap().mode() & 0o7777, 0o600);
        let found = fs::metadata(&moved).unwrap();
        assert_eq!((found.gid(), found.mode() & 0o7777), (GROUP, 0o660));
    }

    #[test]
    fn a_volume_of_any_depth_is_given_over() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut at = open(dir.path(), OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        // Longer than a path may be (PATH_MAX is 4096 bytes).
        for _ in 0..1500 {
            nix::sys::stat::mkdirat(&at, "ab", Mode::S_IRWXU).unwrap();
            at = openat(&at, "ab", OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        }
        assert_eq!(apply(dir.path(), GROUP, false).unwrap(), Progress::TooMuch);
        own(dir.path(), GROUP, false, usize::MAX).unwrap();
        assert!(is_right(&found(&at).unwrap(), GROUP) && is_right(&fs::metadata(dir.path()).unwrap(), GROUP));
        assert_eq!(apply(dir.path(), GROUP, true).unwrap(), Progress::Done);
        crate::sys::delete::delete_tree(dir.path()).unwrap();
    }
}
