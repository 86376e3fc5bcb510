//! Lock of a configuration file: one command or rollback at a time reads and changes it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use sampan_sys::files::{lock_within, named, unless_missing};

const PATIENCE: Duration = Duration::from_secs(10);

/// Locks a configuration file by the file `.NAME.lock` beside it, and makes the folder if it is missing; the lock ends with the
/// returned descriptor. A lock of the file itself would go with it: each change puts a new file in its place. Only the user
/// who changes configurations may open the lock: any user that may open a file can hold its lock.
///
/// # Errors
/// The lock cannot be made or opened, or another command still has it after 10 s.
pub fn take(file: &Path) -> io::Result<File> {
    let real = real(file).map_err(named(file))?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    let mut name = OsString::from(".");
    name.push(real.file_name().unwrap_or_default());
    name.push(".lock");
    let path = folder.join(name);
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    // If the folder is another user's, the name may be a link, or a FIFO that nothing reads.
    options.custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
    fs::create_dir_all(folder).map_err(named(folder))?;
    let lock = match options.open(&path) {
        Ok(lock) => lock,
        Err(error) => return without_lock(error, folder).map_err(named(&path)),
    };
    // Without locks, as on some network file systems, it goes on.
    if !lock_within(&lock, PATIENCE).unwrap_or(true) {
        let why = format!("{}: another command is changing this file; try again", file.display());
        return Err(io::Error::other(why));
    }
    Ok(lock)
}

/// A descriptor without a lock if the file system is read-only: no command changes a file there, and one may find that it has
/// nothing to change.
fn without_lock(error: io::Error, folder: &Path) -> io::Result<File> {
    if error.kind() == ErrorKind::ReadOnlyFilesystem { File::open(folder) } else { Err(error) }
}

/// The file that a link leads to.
///
/// # Errors
/// A part of the path is not a folder, or cannot be read.
pub fn real(file: &Path) -> io::Result<PathBuf> {
    unless_missing(file.canonicalize())?.map_or_else(|| std::path::absolute(file), Ok)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn other_users_cannot_hold_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("config.yaml");
        // Any user may hold the lock of a folder or file that all may read.
        fs::write(&file, "").unwrap();
        let held = [root.path(), file.as_path()].map(|path| File::open(path).unwrap());
        assert!(held.iter().all(|one| lock_within(one, Duration::ZERO).unwrap()));
        let lock = take(&file).unwrap();
        assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = File::options().write(true).open(root.path().join(".config.yaml.lock")).unwrap();
        assert!(!lock_within(&again, Duration::ZERO).unwrap());
    }

    #[test]
    fn lock_is_not_a_link_to_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = root.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, root.path().join(".config.yaml.lock")).unwrap();
        assert!(take(&root.path().join("config.yaml")).is_err());
        assert!(!elsewhere.exists());
    }

    #[test]
    fn fifo_in_place_of_the_lock_is_refused() {
        let root = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&root.path().join(".config.yaml.lock"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(take(&root.path().join("config.yaml")).is_err());
    }

    #[test]
    fn read_only_file_system_needs_no_lock() {
        let root = tempfile::tempdir().unwrap();
        let opened = without_lock(ErrorKind::ReadOnlyFilesystem.into(), root.path()).unwrap();
        assert!(opened.metadata().unwrap().is_dir());
        let error = without_lock(ErrorKind::PermissionDenied.into(), root.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}
