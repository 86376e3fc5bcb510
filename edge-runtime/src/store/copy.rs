//! A second copy of the store, for the day when the first is damaged: made now and then, whole or not at all.
//! A copy of the past is safe: the next list of the cloud brings what has changed since.

use std::path::{Path, PathBuf};

use super::salvage::{beside, remove, sync_folder};
use super::{Store, StoreError, create_private};

/// Where the copy of the store at `store` is.
pub(super) fn path(store: &Path) -> PathBuf {
    beside(store, ".copy")
}

impl Store {
    /// Copies the store, in the place of the copy before. Gives the bytes written. Blocks on the disk: for a process
    /// of its own.
    ///
    /// # Errors
    /// The disk takes no copy; the one before stays.
    pub fn copy(&self) -> Result<u64, StoreError> {
        self.copy_to(&path(&self.path))
    }

    pub(super) fn copy_to(&self, to: &Path) -> Result<u64, StoreError> {
        let part = beside(to, ".part");
        let io = |source| StoreError::Io { path: part.clone(), source };
        remove(&part).map_err(io)?;
        // SQLite fills a file that is empty, and keeps its mode.
        let file = create_private(&part)?;
        let name = part.to_string_lossy();
        self.db.execute("VACUUM INTO ?1", [&*name]).map_err(|source| self.sqlite(source))?;
        file.sync_all().map_err(io)?;
        std::fs::rename(&part, to).map_err(io)?;
        sync_folder(to).map_err(io)?;
        Ok(file.metadata().map_err(io)?.len())
    }

    /// The copy has what shall not be on the disk.
    pub(super) fn forget_copy(&self) {
        if let Err(error) = remove(&path(&self.path)) {
            log::error!("{}: {error}", path(&self.path).display());
        }
    }
}
