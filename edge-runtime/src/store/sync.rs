//! Which commits are on the medium, and how those that are not get there.

use std::fs::File;
use std::path::PathBuf;

use super::{Store, StoreError};
use crate::counters;
use crate::sys::files::unless_missing;

impl Store {
    /// Whether a power cut now would take no commit back.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Brings all commits to the medium: one sync for however many there were. A store in memory is as safe as it gets.
    ///
    /// # Errors
    /// The medium refuses.
    pub fn sync(&mut self) -> Result<(), StoreError> {
        if self.is_in_memory() {
            // The log beside its path is that of the store on a disk that refuses.
            self.synced = true;
        }
        if self.is_synced() {
            return Ok(());
        }
        // Batched commits are in the log (sqlite.org/wal.html), or in the database behind a checkpoint, which syncs both.
        let log = PathBuf::from(format!("{}-wal", self.path.display()));
        let synced = unless_missing(File::open(&log).and_then(|file| file.sync_data()));
        counters::SYNCS.one();
        synced.map_err(|source| StoreError::Io { path: log, source })?;
        self.synced = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fact;
    use super::*;

    #[test]
    fn a_durable_commit_and_a_sync_take_all_along() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("store.db")).unwrap().store;
        assert!(!store.is_synced(), "left by a former process, perhaps");
        store.write(|writer| writer.set_fact(Fact::Cluster, "a")).unwrap();
        store.sync().unwrap();
        assert!(store.is_synced());
        store.write(|writer| writer.set_fact(Fact::Cluster, "b")).unwrap();
        assert!(!store.is_synced());
        store.write_durable(|writer| writer.set_fact(Fact::Cluster, "c")).unwrap();
        assert!(store.is_synced());
    }

    #[test]
    fn every_build_of_sqlite_syncs_without_times() {
        for file in [".cargo/config.toml", "scripts/cross"] {
            let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains("-DHAVE_FDATASYNC"), "{file}");
        }
    }
}
