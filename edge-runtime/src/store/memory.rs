//! A store in memory, for a disk that takes nothing any more: filled from what can be read of the one on disk, and put in
//! its place when the disk takes it again.

use std::path::Path;

use super::files::{beside, create_private, remove};
use super::{Store, StoreError, salvage};

impl Store {
    /// Opens a store in memory with the readable part of the one at `path`. It [is incomplete](Store::is_incomplete):
    /// data that an earlier process had in memory is lost.
    ///
    /// # Errors
    /// Out of memory.
    pub fn remember(path: &Path) -> Result<Self, StoreError> {
        let mut store = Self::in_memory()?;
        store.path = path.into();
        salvage::fill(&mut store.db, path).map_err(|source| store.sqlite(source))?;
        Ok(store)
    }

    /// Whether it is in memory alone.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Puts what is in memory in the place of the store on disk, which is opened next. Writes little as long as the disk
    /// takes nothing.
    ///
    /// # Errors
    /// The disk takes nothing yet.
    pub fn put_on_disk(&self) -> Result<(), StoreError> {
        let probe = beside(&self.path, ".probe");
        let file = create_private(&probe)?;
        let io = |source| StoreError::Io { path: probe.clone(), source };
        file.sync_all().map_err(io)?;
        remove(&probe).map_err(io)?;
        self.copy_to(&beside(&self.path, ".salvaged"))?;
        salvage::finish(&self.path).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Fact;

    #[test]
    fn what_was_changed_in_memory_is_on_disk_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.db");
        let mut disk = Store::open(&path).expect("opens").store;
        disk.write_durable(|writer| writer.set_fact(Fact::Cluster, "one")).expect("commits");
        drop(disk);
        let mut memory = Store::remember(&path).expect("reads");
        assert!(memory.is_in_memory() && memory.is_incomplete().expect("reads"));
        assert_eq!(memory.fact(Fact::Cluster).expect("reads").as_deref(), Some("one"));
        memory.write_durable(|writer| writer.set_fact(Fact::Cluster, "two")).expect("commits");
        memory.put_on_disk().expect("the disk takes it");
        let disk = Store::open(&path).expect("opens");
        assert!(disk.quarantined.is_none() && !disk.store.is_in_memory());
        assert_eq!(disk.store.fact(Fact::Cluster).expect("reads").as_deref(), Some("two"));
    }

    #[test]
    fn nothing_of_the_disk_is_asked_for_a_store_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.db");
        let log = beside(&path, "-wal");
        // This file cannot be read or synced.
        std::os::unix::fs::symlink(&log, &log).expect("a link to itself");
        let mut memory = Store::remember(&path).expect("reads");
        memory.write(|writer| writer.set_fact(Fact::Cluster, "one")).expect("commits");
        memory.sync().expect("there is nothing to sync");
        assert!(memory.is_synced());
    }

    #[test]
    fn a_disk_that_takes_nothing_leaves_everything_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = Store::remember(&folder.path().join("not-there/store.db")).expect("reads");
        assert!(memory.put_on_disk().is_err());
        assert_eq!(memory.held().expect("reads").len(), 0);
    }
}
