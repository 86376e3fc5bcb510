//! Makes one tree of an image's layers and a container's writable layer, with overlayfs.
//! Knows only folders, not images or pods. Quick enough for the event loop: a handful of system calls.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use crate::image::ImageError;
use crate::image::digest::{hex, is_sha256};
use crate::sys::delete::delete_tree;
use crate::sys::files::{unless_there, unmount};
use crate::sys::idmap;

/// mount(2) takes one page of options, the last byte of which is a zero.
const LONGEST_OPTIONS: usize = 4095;

/// Mounts the layers (diff ids, bottom to top, folders below `layers_dir`) with `upper` above them at `target`.
/// `upper`, `work` and `target` must exist, `upper` and `work` empty and on one file system. An image without layers
/// is `upper` alone. Something mounted at `target` already is taken as done: a repeated step of a repeated start.
/// `upper` must belong to the `mapping`'s root.
///
/// # Errors
/// A layer is missing (named), or the kernel refuses the mount.
pub fn mount_rootfs(
    layers_dir: &Path,
    layers: &[String],
    upper: &Path,
    work: &Path,
    target: &Path,
    mapping: Option<&Mapping<'_>>,
) -> Result<(), ImageError> {
    if is_mounted(target, upper).map_err(ImageError::io(target, "cannot mount a root file system on it"))? {
        return Ok(());
    }
    if layers.is_empty() {
        return mount(Some(upper), target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|error| ImageError::io(target, "cannot bind the writable layer")(error.into()));
    }
    let lower = Lower::of(layer_dirs(layers_dir, layers).collect::<Result<_, _>>()?, mapping)?;
    // The mark of `volatile` outlives the mount and refuses the next one; a writable layer is of one boot
    // (`launch/container/own_boot`), so only a repeated start meets it here.
    let _ = std::fs::remove_dir_all(work.join("work/incompat"));
    overlay(&lower.dirs, Some([upper, work]), target, ",volatile")
        .or_else(|error| match error.raw_os_error() {
            // Kernels before 5.10 do not know `volatile`.
            Some(nix::libc::EINVAL) => overlay(&lower.dirs, Some([upper, work]), target, ""),
            _ => Err(error),
        })
        .map_err(|error| match upper.is_dir() {
            true => explain(error, &lower.dirs, target),
            false => ImageError::io(upper, "the writable layer is missing")(error),
        })
}

/// Mounts the layers alone, with the folder `above` over them, at `target`, an empty folder, read-only. No error if it
/// is mounted already.
///
/// # Errors
/// Same as [`mount_rootfs`].
pub fn mount_layers(
    layers_dir: &Path,
    layers: &[String],
    above: Option<&Path>,
    target: &Path,
    mapping: Option<&Mapping<'_>>,
) -> Result<(), ImageError> {
    let mounted = is_mounted(target, target.parent().unwrap_or(target));
    if layers.is_empty() || mounted.map_err(ImageError::io(target, "cannot mount an image on it"))? {
        return Ok(());
    }
    // An overlay wants two layers at least, and without one a single layer would show its whiteouts.
    let first = std::iter::once(Ok(target.to_owned()));
    let last = above.map(|above| Ok(above.to_owned()));
    let lower = Lower::of(first.chain(layer_dirs(layers_dir, layers)).chain(last).collect::<Result<_, _>>()?, mapping)?;
    overlay(&lower.dirs, None, target, "").map_err(|error| explain(error, &lower.dirs, target))
}

/// Shows a tree to the users of a pod that has ids of its own.
#[derive(Debug)]
pub struct Mapping<'a> {
    pub user_ns: &'a File,
    /// A folder to be made for a moment, for the layers; its parent must exist.
    pub scratch: &'a Path,
}

/// Layers to be laid over each other. Mapped ones are mounts, which an overlay has copies of.
struct Lower<'a> {
    dirs: Vec<PathBuf>,
    scratch: Option<&'a Path>,
}

impl<'a> Lower<'a> {
    fn of(dirs: Vec<PathBuf>, mapping: Option<&Mapping<'a>>) -> Result<Self, ImageError> {
        let Some(mapping) = mapping else { return Ok(Self { dirs, scratch: None }) };
        let scratch = mapping.scratch;
        let mut lower = Self { dirs: Vec::new(), scratch: Some(scratch) };
        let made = |path: &Path| {
            unless_there(std::fs::create_dir(path)).map_err(ImageError::io(path, "cannot make a folder for a layer"))
        };
        made(scratch)?;
        for (n, dir) in dirs.iter().enumerate() {
            let target = scratch.join(n.to_string());
            made(&target)?;
            // Before it is mounted: an error takes all away.
            lower.dirs.push(target.clone());
            idmap::bind(dir, mapping.user_ns, &target).map_err(|error| match dir.is_dir() {
                true => ImageError::io(dir, "cannot map the owners of the layer")(error),
                false => explain(error, &dirs, &target),
            })?;
        }
        Ok(lower)
    }
}

impl Drop for Lower<'_> {
    fn drop(&mut self) {
        let Some(scratch) = self.scratch else { return };
        for dir in &self.dirs {
            // Was perhaps not mounted; a folder in use cannot be deleted.
            let _ = unmount(dir);
            let _ = std::fs::remove_dir(dir);
        }
        let _ = std::fs::remove_dir(scratch);
    }
}

/// Unmounts the root file system; no error if nothing is mounted or `target` is gone. A file still open in it stays
/// usable.
///
/// # Errors
/// The kernel refuses.
pub fn unmount_rootfs(target: &Path) -> Result<(), ImageError> {
    unmount(target).map(drop).map_err(ImageError::io(target, "cannot unmount the root file system"))
}

fn layer_dirs(folder: &Path, layers: &[String]) -> impl Iterator<Item = Result<PathBuf, ImageError>> {
    layers.iter().map(move |layer| layer_dir(folder, layer))
}

/// The folder of an unpacked layer.
pub(crate) fn layer_dir(layers_dir: &Path, diff_id: &str) -> Result<PathBuf, ImageError> {
    if is_sha256(diff_id) {
        return Ok(layers_dir.join(hex(diff_id)));
    }
    Err(ImageError::broken("image record", diff_id, "a layer's id must be a sha256 digest"))
}

/// An overlay is a device of its own; a bind mount is the folder it shows.
///
/// # Errors
/// `target` does not exist.
pub fn is_mounted(target: &Path, upper: &Path) -> io::Result<bool> {
    let here = std::fs::symlink_metadata(target)?;
    let parent = std::fs::metadata(target.parent().unwrap_or(Path::new("/")))?;
    let bound = std::fs::metadata(upper).is_ok_and(|upper| (upper.dev(), upper.ino()) == (here.dev(), here.ino()));
    Ok(bound || here.dev() != parent.dev())
}

/// `writable`: upper and work folder. With `volatile` nothing of the writable layer is promised to survive a power
/// cut, and without it each unmount would write out the whole file system below, in the event loop.
pub(crate) fn overlay(lower: &[PathBuf], writable: Option<[&Path; 2]>, target: &Path, tail: &str) -> io::Result<()> {
    let flags = if writable.is_some() { MsFlags::empty() } else { MsFlags::MS_RDONLY };
    let writable: Vec<PathBuf> = writable.into_iter().flatten().map(Path::to_owned).collect();
    let named = options(lower.iter().rev().map(|dir| dir.as_os_str()), writable.iter().map(|d| d.as_os_str()), tail);
    let result = if named.len() <= LONGEST_OPTIONS && !lower.iter().chain(&writable).any(|dir| has_special(dir)) {
        mount(Some("overlay"), target, Some("overlay"), flags, Some(named.as_os_str()))
    } else {
        // Too long, or with the characters that separate options: name the folders by descriptors, which are short.
        let open_dirs =
            |dirs: &[PathBuf]| dirs.iter().map(|d| open_path(d)).collect::<io::Result<Vec<(OsString, OwnedFd)>>>();
        let (lower, writable) = (open_dirs(lower)?, open_dirs(&writable)?);
        let names = |dirs: &[(OsString, OwnedFd)]| dirs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let (below, above) = (names(&lower), names(&writable));
        let short = options(below.iter().rev().map(|name| &**name), above.iter().map(|name| &**name), tail);
        mount(Some("overlay"), target, Some("overlay"), flags, Some(short.as_os_str()))
    };
    Ok(result?)
}

/// Why overlayfs takes no writable layer below the folder `state`, if it does not: that lies on an overlay itself, or on NFS.
///
/// # Errors
/// It cannot be tried: nothing can be made in the folder, or nothing may be mounted.
pub fn refused(state: &Path) -> io::Result<Option<io::Error>> {
    let trial = state.join(format!(".overlay-trial-{}", std::process::id()));
    let [lower, upper, work, target] = ["lower", "upper", "work", "target"].map(|part| trial.join(part));
    let made = [&lower, &upper, &work, &target].into_iter().try_for_each(std::fs::create_dir_all);
    let mounted = made.map(|()| overlay(&[lower], Some([&upper, &work]), &target, ""));
    let taken_away = unmount(&target).and_then(|_| delete_tree(&trial));
    match mounted? {
        Ok(()) => taken_away.map(|()| None),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Err(error) => taken_away.map(|()| Some(error)),
    }
}

/// `lowerdir` is listed from top to bottom; `writable` is nothing, or upper and work folder.
fn options<'a>(
    lower: impl Iterator<Item = &'a OsStr>,
    writable: impl Iterator<Item = &'a OsStr>,
    tail: &str,
) -> OsString {
    let mut text = OsString::from("lowerdir=");
    for (i, dir) in lower.enumerate() {
        if i > 0 {
            text.push(":");
        }
        text.push(dir);
    }
    for (key, dir) in [",upperdir=", ",workdir="].into_iter().zip(writable) {
        text.push(key);
        text.push(dir);
    }
    text.push(tail);
    text
}

fn has_special(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().iter().any(|b| matches!(b, b',' | b':' | b'\\'))
}

fn open_path(dir: &Path) -> io::Result<(OsString, OwnedFd)> {
    let fd = open(dir, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    Ok((format!("/proc/self/fd/{}", fd.as_raw_fd()).into(), fd))
}

/// Adds the missing path: mount(2) reports only "no such file".
fn explain(error: io::Error, lower: &[PathBuf], target: &Path) -> ImageError {
    match lower.iter().find(|dir| !dir.is_dir()) {
        Some(missing) => ImageError::io(missing, "the layer is missing; the image must be pulled again")(error),
        None => ImageError::io(target, "cannot mount the layers")(error),
    }
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests;
