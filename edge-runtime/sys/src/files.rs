//! Folders and files with the modes and the care they need. Knows nothing of what is in them.

use std::ffi::OsString;
use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use super::delete::delete_tree;

/// Source of the tmpfs that a daemon mounts for its run folder, as `/proc/mounts` shows it.
pub const RUN_TMPFS: &str = "edge-runtime";

/// Makes a folder and its parents, readable by root alone.
///
/// # Errors
/// The path is named in the error.
pub fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(named(path))
}

/// Makes a folder (its parents must exist) that everyone may enter.
///
/// # Errors
/// The path is named in the error.
pub fn open_dir(path: &Path) -> io::Result<()> {
    let made = unless_there(fs::create_dir(path));
    // Set again: the umask of a service is often 077.
    made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755))).map_err(named(path))
}

/// Writes `bytes` into a file that only root can read, atomically: a reader finds the old or the new content, also
/// after a crash. `durable`: content and name are on the medium when this returns. An unfinished file is called `.NAME`
/// beside it.
///
/// # Errors
/// The disk is full; nothing has changed.
pub fn replace(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    let partial = path.with_file_name(name);
    let write = || {
        // A left-over of a cut-off write may have any mode.
        unless_missing(fs::remove_file(&partial))?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(bytes)?;
        if durable { file.sync_all() } else { Ok(()) }
    };
    write().and_then(|()| fs::rename(&partial, path)).inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })?;
    if durable { path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all()) } else { Ok(()) }
}

/// Renames to the first of `targets`, by their numbers, that is free.
///
/// # Errors
/// The kernel refuses.
pub fn rename_to_free(path: &Path, targets: impl Fn(u32) -> PathBuf) -> io::Result<()> {
    for number in 0.. {
        match fs::rename(path, targets(number)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {}
            done => return done,
        }
    }
    Ok(())
}

/// Deletes a folder and all its content; a missing one is fine, and of a link only the link goes. Refuses while anything is
/// mounted in it: a mount (a hostPath, an overlay) has data that must not be deleted.
///
/// # Errors
/// A mount is left, or the path cannot be deleted; it is named.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let Some(real) = unmounted(path)? else { return Ok(()) };
    delete_tree(&real).map_err(named(path))
}

/// Returns the real path of a folder without mounts in it; `None` for one whose parent is missing. The last name is not
/// followed: a pod that may write to `/var/log` could put a link there, and have any folder deleted.
///
/// # Errors
/// A mount is left.
pub(crate) fn unmounted(path: &Path) -> io::Result<Option<PathBuf>> {
    // The mount table holds real paths: behind a link no mount would be found.
    let real = match path.parent().zip(path.file_name()) {
        Some((folder, name)) if folder != Path::new("") => folder.canonicalize().map(|folder| folder.join(name)),
        _ => path.canonicalize(),
    };
    let Some(real) = unless_missing(real).map_err(named(path))? else { return Ok(None) };
    match mounts_below(&real)?.pop() {
        Some(mount) => Err(io::Error::other(format!("{} is still mounted", mount.display()))),
        None => Ok(Some(real)),
    }
}

/// Unmounts the last mount at `path`, even if it is in use; false when nothing is mounted there.
///
/// # Errors
/// The kernel refuses.
pub fn unmount(path: &Path) -> io::Result<bool> {
    match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => Ok(true),
        Err(Errno::EINVAL | Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Returns the result; `None` if the path does not exist.
///
/// # Errors
/// It cannot be known.
pub fn unless_missing<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    match asked {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        asked => asked.map(Some),
    }
}

/// Made just now, or there already.
///
/// # Errors
/// It is not there.
pub fn unless_there(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Mount points at or below `path`, in the order they were mounted. `proc(5)`: field 5 of mountinfo,
/// with space, tab, newline and backslash as octal escapes.
///
/// # Errors
/// `/proc` is not mounted.
pub fn mounts_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    Ok(points.map(PathBuf::from).filter(|point| point.starts_with(path)).collect())
}

pub(crate) fn unescape(field: &str) -> String {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    if field.contains('\\') {
        plain.iter().fold(field.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
    } else {
        field.to_owned()
    }
}

/// Adds the path to what went wrong there.
pub fn named(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Takes the exclusive lock of a file, which ends when the file is closed. False if another process still holds it
/// after `patience`.
///
/// # Errors
/// The file system has no locks.
pub fn lock_within(file: &File, patience: Duration) -> io::Result<bool> {
    const PAUSE: Duration = Duration::from_millis(20);
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if began.elapsed() >= patience => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_link_to_a_folder_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let (target, link) = (temp.path().join("target"), temp.path().join("link"));
        fs::create_dir_all(target.join("in")).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        // Links before the last name are followed.
        remove_tree(&link.join("in")).unwrap();
        assert!(!target.join("in").exists());
        remove_tree(&link).unwrap();
        assert!(!link.is_symlink() && target.exists());
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        remove_tree(&link).unwrap();
        assert!(!link.is_symlink(), "mounts behind it do not matter");
        remove_tree(&link).unwrap();
        remove_tree(&link.join("in")).unwrap();
        assert!(remove_tree(Path::new("/proc")).is_err());
    }

    #[test]
    fn lock_of_another_process_is_not_waited_for_without_end() {
        let temp = tempfile::tempdir().unwrap();
        let open = || File::create(temp.path().join("lock")).unwrap();
        let first = open();
        assert!(lock_within(&first, Duration::ZERO).unwrap());
        assert!(!lock_within(&open(), Duration::from_millis(50)).unwrap());
        drop(first);
        assert!(lock_within(&open(), Duration::ZERO).unwrap());
    }
}
