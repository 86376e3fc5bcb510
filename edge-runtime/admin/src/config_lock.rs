//! Lock of a configuration file: one command at a time reads and changes it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sampan_sys::files::{lock_within, named, unless_missing};

const PATIENCE: Duration = Duration::from_secs(10);

/// Locks the folder of the file, which it makes if it is missing; the lock ends with the returned descriptor. A lock of the
/// file itself would go with it: each change puts a new file in its place.
///
/// # Errors
/// The folder cannot be made or read, or another command still has the lock after 10 s.
pub(crate) fn take(file: &Path) -> io::Result<File> {
    let real = real(file).map_err(named(file))?;
    let folder = real.parent().unwrap_or(Path::new("/"));
    let lock = fs::create_dir_all(folder).and_then(|()| File::open(folder)).map_err(named(folder))?;
    // NFS locks no folders (flock(2)): there it goes on without.
    if !lock_within(&lock, PATIENCE).unwrap_or(true) {
        let why = format!("{}: another command is changing this file; try again", file.display());
        return Err(io::Error::other(why));
    }
    Ok(lock)
}

/// The file that a link leads to.
///
/// # Errors
/// A part of the path is not a folder, or cannot be read.
pub(crate) fn real(file: &Path) -> io::Result<PathBuf> {
    unless_missing(file.canonicalize())?.map_or_else(|| std::path::absolute(file), Ok)
}
