//! Which commits are on the medium, and how those that are not get there.

use std::fs::File;
use std::path::PathBuf;

use super::{Store, StoreError};
use crate::counters;
use crate::sys::files::unless_missing;

/// Pages of a log that is worth a checkpoint: one writes each page of the database once, however often it has changed.
const LONG: i64 = 500;

impl Store {
    /// Writes a long log into the database, in two syncs: for a time when nothing waits for the store.
    pub fn checkpoint_if_long(&self) {
        if self.log_pages() >= LONG
            && let Err(error) = self.db.query_row("PRAGMA wal_checkpoint", [], |_| Ok(()))
        {
            // A later commit tries again.
            log::debug!("{}: no checkpoint: {error}", self.path.display());
        }
    }

    /// Pages of the log that are not in the database yet.
    fn log_pages(&self) -> i64 {
        // Only asks; -1 for both without a log.
        let pages = self
            .db
            .query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| Ok(row.get::<_, i64>(1)?.saturating_sub(row.get(2)?)));
        pages.unwrap_or_default()
    }

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
    fn long_log_waits_for_an_idle_node() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(&dir.path().join("store.db")).unwrap().store;
        let write = |store: &mut Store, count: i64| {
            for number in 0..count {
                store.write(|writer| writer.set_fact(Fact::Cluster, &number.to_string())).unwrap();
            }
        };
        write(&mut store, 10);
        store.checkpoint_if_long();
        assert!(store.log_pages() >= 10, "a short log is not worth the syncs");
        write(&mut store, 1200);
        assert!(store.log_pages() >= 1200, "no commit has written it out");
        store.checkpoint_if_long();
        assert_eq!(store.log_pages(), 0);
        write(&mut store, 2500);
        assert!(store.log_pages() < 2000, "it has a bound");
        assert_eq!(Store::in_memory().unwrap().log_pages(), 0);
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
