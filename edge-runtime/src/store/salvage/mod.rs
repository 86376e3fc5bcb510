//! Builds a store from the remains of a damaged one: every readable row, and missing ones from the last good copy. The
//! damaged files are kept for analysis. A power cut at any point leaves either the damaged store or the complete new
//! one.
//!
//! Lost rows are unknown, so the new store is marked as incomplete ([`Fact::Incomplete`]) until a complete list of the
//! cloud has been committed.

mod btree;
mod found;
mod pages;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use self::found::Found;
use self::pages::Pages;
use super::error::StoreError;
use super::facts::Fact;
use super::files::{beside, copy_of, create_private, remove, sync_folder};
use super::schema;
use crate::sys::files::unless_missing;
use crate::sys::gather::Gather;

/// Damaged stores that are kept.
const KEPT: usize = 2;

/// Fills `into`, a store without rows, from the damaged store at `path` and the copy beside it. Gives how many rows.
///
/// # Errors
/// `into` cannot be written. What cannot be read is left out.
pub(super) fn fill(into: &mut Connection, path: &Path) -> rusqlite::Result<usize> {
    let tx = into.transaction()?;
    let mut rows = each(path, &mut |found| found.add(&tx))?;
    // The copy is older: of its pods, only those still run that have something in their folder. An ended pod has it empty.
    let pods = path.with_file_name("pods");
    let runs = |uid: &str| std::fs::read_dir(pods.join(uid)).is_ok_and(|mut entries| entries.next().is_some());
    rows += each(&copy_of(path), &mut |found| match found.pod_uid() {
        Some(uid) if !runs(uid) => Ok(false),
        _ => found.add(&tx),
    })?;
    mark_incomplete(&tx, "damaged")?;
    tx.commit()?;
    Ok(rows)
}

/// The next connection brings a whole list, and what the store does not know may be wanted until then.
pub(super) fn mark_incomplete(db: &Connection, why: &str) -> rusqlite::Result<()> {
    for fact in [Fact::Stream, Fact::LastSequence] {
        db.execute("DELETE FROM facts WHERE key = ?1", [fact.key()])?;
    }
    db.execute("INSERT OR REPLACE INTO facts (key, value) VALUES (?1, ?2)", [Fact::Incomplete.key(), why]).map(drop)
}

/// Offers every row of a file to `add`; how many it took.
fn each(path: &Path, add: &mut dyn FnMut(Found) -> rusqlite::Result<bool>) -> rusqlite::Result<usize> {
    let Ok(pages) = Pages::open(path, &beside(path, "-wal")) else { return Ok(0) };
    let (mut taken, mut result) = (0, Ok(()));
    btree::rows(&pages, &mut |row| {
        if let (Ok(()), Some(found)) = (&result, Found::of(row)) {
            match add(found) {
                Ok(added) => taken += usize::from(added),
                Err(error) => result = Err(error),
            }
        }
    });
    result.map(|()| taken)
}

/// Makes a new store from the damaged one at `path` and puts it in its place. Gives where the damaged one is now and
/// how many rows the new one has.
///
/// # Errors
/// The folder cannot be written; the damaged store is then where it was.
pub(super) fn replace(path: &Path) -> Result<(PathBuf, usize), StoreError> {
    let part = beside(path, ".salvaging");
    let io = |source| StoreError::Io { path: part.clone(), source };
    for old in [part.clone(), beside(&part, "-journal"), beside(&part, "-wal"), beside(&part, "-shm")] {
        remove(&old).map_err(io)?;
    }
    create_private(&part)?;
    let sqlite = |source| StoreError::Sqlite { path: part.clone(), source };
    let mut db = Connection::open(&part).map_err(sqlite)?;
    schema::migrate(&mut db, &part)?;
    let rows = fill(&mut db, path).map_err(sqlite)?;
    db.close().map_err(|(_, source)| sqlite(source))?;
    File::open(&part).and_then(|file| file.sync_all()).map_err(io)?;
    std::fs::rename(&part, beside(path, ".salvaged")).map_err(io)?;
    sync_folder(path).map_err(io)?;
    let aside = finish(path)?.unwrap_or_else(|| path.to_path_buf());
    Ok((aside, rows))
}

/// Replaces the damaged store by a complete new one. A power cut in between is harmless, because the rename of the new
/// one comes last.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn finish(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let ready = beside(path, ".salvaged");
    if !ready.exists() {
        return Ok(None);
    }
    let aside = set_aside(path)?;
    let io = |source| StoreError::Io { path: ready.clone(), source };
    std::fs::rename(&ready, path).map_err(io)?;
    sync_folder(path).map_err(io)?;
    Ok(Some(aside))
}

/// Moves the store and its log out of the way, under a name of its own.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let io = |source| StoreError::Io { path: path.into(), source };
    let number = numbers(path).last().map_or(0, |last| last.saturating_add(1));
    let aside = beside(path, &format!(".corrupt-{number}"));
    for extra in ["-wal", "-shm", ""] {
        unless_missing(std::fs::rename(beside(path, extra), beside(&aside, extra))).map_err(io)?;
    }
    sync_folder(path).map_err(io)?;
    let all: Vec<u32> = numbers(path).into_iter().collect();
    for number in all.iter().rev().skip(KEPT) {
        for extra in ["-wal", "-shm", ""] {
            remove(&beside(path, &format!(".corrupt-{number}{extra}"))).map_err(io)?;
        }
    }
    Ok(aside)
}

/// Removes all stores that were set aside.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn forget_aside(path: &Path) -> io::Result<()> {
    for number in numbers(path) {
        for extra in ["-wal", "-shm", ""] {
            remove(&beside(path, &format!(".corrupt-{number}{extra}")))?;
        }
    }
    Ok(())
}

/// Numbers of the stores that were set aside.
fn numbers(path: &Path) -> BTreeSet<u32> {
    let prefix = format!("{}.corrupt-", path.file_name().unwrap_or_default().to_string_lossy());
    let names = path.parent().map(folders).unwrap_or_default();
    names.iter().filter_map(|name| name.strip_prefix(&prefix)?.split('-').next()?.parse().ok()).into_set()
}

/// Entries of a folder, including files.
fn folders(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).into_set()
}
