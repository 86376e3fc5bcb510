//! The files of a store: names beside it, modes, and what makes a change of them durable.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use crate::sys::files::unless_missing;

/// A name that begins with that of the store.
pub(super) fn beside(path: &Path, extra: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(extra);
    name.into()
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    unless_missing(std::fs::remove_file(path)).map(drop)
}

/// A name is durable when its folder is.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Where the copy of the store at `store` is.
pub(super) fn copy_of(store: &Path) -> PathBuf {
    beside(store, ".copy")
}

/// Makes the file readable for root only, since it contains Secrets. SQLite gives its WAL the mode of the main file.
pub(super) fn restrict_mode(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|source| StoreError::Io { path: path.into(), source })
}

/// Creates an empty file for a store, accessible for root only.
pub(super) fn create_private(path: &Path) -> Result<File, StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = File::options().create(true).truncate(true).write(true).mode(0o600).open(path);
    made.map_err(|source| StoreError::Io { path: path.into(), source })
}
