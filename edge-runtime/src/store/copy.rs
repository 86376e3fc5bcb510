//! A second copy of the store, in case the first is damaged, and one from before a migration, for the earlier program
//! version. Each is made completely or not at all. An old copy is safe: the next list of the cloud has all later
//! changes.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::files::{beside, copy_of, create_private, remove, sync_folder};
use super::{Store, StoreError, salvage, schema};

/// Added to the name of a copy until it is complete.
const PART: &str = ".part";

impl Store {
    /// Copies the store, in the place of the copy before. Gives the bytes written. Blocks on the disk: for a process
    /// of its own.
    ///
    /// # Errors
    /// The disk takes no copy; the one before stays.
    pub fn copy(&self) -> Result<u64, StoreError> {
        self.copy_to(&copy_of(&self.path))
    }

    /// # Errors
    /// Same as [`Store::copy`].
    pub(super) fn copy_to(&self, to: &Path) -> Result<u64, StoreError> {
        copy_to(&self.db, &self.path, to)
    }

    /// Removes all copies, also unfinished ones, and the damaged stores that were set aside: they have what must not be
    /// on the disk.
    pub(super) fn forget_copies(&self) {
        if let Err(error) = salvage::forget_aside(&self.path) {
            log::error!("{}: a store that was set aside: {error}", self.path.display());
        }
        let before = schema::known().map(|version| before_migration(&self.path, version));
        for copy in before.chain([copy_of(&self.path), beside(&self.path, ".salvaging")]) {
            for file in [beside(&copy, PART), copy] {
                if let Err(error) = remove(&file) {
                    log::error!("{}: {error}", file.display());
                }
            }
        }
    }
}

/// Where the store of schema `version` was copied to before it was migrated.
fn before_migration(store: &Path, version: usize) -> PathBuf {
    beside(store, &format!(".schema-{version}"))
}

/// Copies the store before it is migrated from schema `version`; older ones of that kind go.
///
/// # Errors
/// The disk takes no copy.
pub(super) fn keep_before_migration(db: &Connection, store: &Path, version: usize) -> Result<(), StoreError> {
    copy_to(db, store, &before_migration(store, version))?;
    for older in 1..version {
        let _ = remove(&before_migration(store, older));
    }
    Ok(())
}

/// Replaces a store that this program cannot open by the newest copy that it can. Returns the store's new path; `None`
/// without a copy.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn go_back(store: &Path) -> Result<Option<PathBuf>, StoreError> {
    let copies = schema::known().rev().map(|version| before_migration(store, version));
    let Some(copy) = copies.into_iter().find(|copy| copy.exists()) else { return Ok(None) };
    // The copy stays for the next rollback: a program of that version migrates its replacement.
    let io = |source| StoreError::Io { path: copy.clone(), source };
    let ready = beside(store, ".salvaged");
    let part = beside(store, ".salvaging");
    drop(create_private(&part)?);
    std::fs::copy(&copy, &part).map_err(io)?;
    let sqlite = |source| StoreError::Sqlite { path: part.clone(), source };
    let db = Connection::open(&part).map_err(sqlite)?;
    salvage::mark_incomplete(&db, "older").map_err(sqlite)?;
    db.close().map_err(|(_, source)| sqlite(source))?;
    File::open(&part).and_then(|file| file.sync_all()).map_err(io)?;
    std::fs::rename(&part, ready).map_err(io)?;
    salvage::finish(store)
}

fn copy_to(db: &Connection, store: &Path, to: &Path) -> Result<u64, StoreError> {
    let part = beside(to, PART);
    let io = |source| StoreError::Io { path: part.clone(), source };
    remove(&part).map_err(io)?;
    // SQLite fills a file that is empty, and keeps its mode.
    let file = create_private(&part)?;
    let name = part.to_string_lossy();
    let sqlite = |source| StoreError::Sqlite { path: store.into(), source };
    db.execute("VACUUM INTO ?1", [&*name]).map_err(sqlite)?;
    file.sync_all().map_err(io)?;
    std::fs::rename(&part, to).map_err(io)?;
    sync_folder(to).map_err(io)?;
    Ok(file.metadata().map_err(io)?.len())
}
