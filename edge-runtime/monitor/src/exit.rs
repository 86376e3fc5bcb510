//! Exit records: one small JSON file per ended container, written before the exit is reported.
//!
//! They are on the tmpfs of the run folder, because they must survive the death of monitor and daemon with any state of
//! the disk. They need not survive a power cut, because an end is reported to the cloud only when it is synced in the
//! store (`node/exit_sync.rs`). So nothing here waits for a disk.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use sampan_sys::files::{replace, unless_missing};
use sampan_sys::from_json::from_json;

/// How a container's first process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub id: String,
    #[serde(default)]
    pub pid: i32,
    /// Exit code; 128 + signal number for a death by signal, as shells and the kubelet count. 137 if `unknown`.
    pub code: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The kernel's out-of-memory killer has killed a process of the container's cgroup.
    #[serde(default)]
    pub oom_killed: bool,
    /// The process has ended while no monitor ran, so its status is unknown.
    #[serde(default)]
    pub unknown: bool,
    /// RFC 3339, UTC, nanoseconds.
    pub started_at: String,
    pub finished_at: String,
}

/// Writes one record atomically.
///
/// # Errors
/// The file system is full.
pub fn write(dir: &Path, record: &ExitRecord) -> io::Result<()> {
    write_all(dir, std::slice::from_ref(record))
}

/// Writes records, each atomically.
///
/// # Errors
/// The file system is full for one record; the others are written.
pub fn write_all(dir: &Path, records: &[ExitRecord]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    records.iter().map(|record| write_one(dir, record)).fold(Ok(()), io::Result::and)
}

fn write_one(dir: &Path, record: &ExitRecord) -> io::Result<()> {
    replace(&path(dir, &record.id), &serde_json::to_vec(record)?, false)
}

/// Removes what a monitor has left half-made.
pub(crate) fn clear_temporaries(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The record of one container, if there is a readable one.
pub fn read(dir: &Path, id: &str) -> Option<ExitRecord> {
    from_json(&fs::read(path(dir, id)).ok()?).ok()
}

/// All readable records. Files that a crash left half-made are skipped.
pub fn read_all(dir: &Path) -> Vec<ExitRecord> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .filter_map(|id| read(dir, &id))
        .collect()
}

/// Removes the record; no error if it is missing.
pub fn remove(dir: &Path, id: &str) -> io::Result<()> {
    unless_missing(fs::remove_file(path(dir, id))).map(drop)
}

fn path(dir: &Path, id: &str) -> PathBuf {
    dir.join(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_kept_until_removed() {
        let dir = tempfile::tempdir().unwrap();
        let record = ExitRecord { id: "a1".into(), code: 137, signal: Some(9), ..ExitRecord::default() };
        write(dir.path(), &record).unwrap();
        fs::write(dir.path().join(".half"), "{").unwrap();
        write_all(dir.path(), &[]).unwrap();
        assert_eq!(read_all(dir.path()), vec![record.clone()]);
        assert_eq!(read(dir.path(), "a1"), Some(record));
        remove(dir.path(), "a1").unwrap();
        remove(dir.path(), "a1").unwrap();
        assert!(read_all(dir.path()).is_empty());
    }

    #[test]
    fn half_made_records_do_not_gather() {
        let dir = tempfile::tempdir().unwrap();
        let record = ExitRecord { id: "a1".into(), ..ExitRecord::default() };
        // The record's name is taken by something that no rename replaces.
        fs::create_dir_all(dir.path().join("a1/x")).unwrap();
        write_all(dir.path(), &[record.clone(), ExitRecord { id: "a2".into(), ..record }]).unwrap_err();
        assert_eq!(read_all(dir.path()).len(), 1, "the other is there");
        assert!(!dir.path().join(".a1").exists());
        fs::write(dir.path().join(".a3"), "{").unwrap();
        clear_temporaries(dir.path());
        assert!(!dir.path().join(".a3").exists() && dir.path().join("a2").exists());
    }
}
