//! Exit records: one small JSON file per ended container, durable before anyone hears of the exit.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

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
    /// The process is gone and nobody saw how: it ended while no monitor lived.
    #[serde(default)]
    pub unknown: bool,
    /// RFC 3339, UTC, nanoseconds.
    pub started_at: String,
    pub finished_at: String,
}

/// Writes one record so that it survives a power cut.
///
/// # Errors
/// The disk is full or gone.
pub fn write(dir: &Path, record: &ExitRecord) -> io::Result<()> {
    write_all(dir, std::slice::from_ref(record))
}

/// Writes records so that they survive a power cut: temporary files, fsync, rename, fsync of the folder. Many at once
/// cost little more than one, because the first fsync takes the others' blocks along.
///
/// # Errors
/// The disk is full or gone; what could be written is there.
pub fn write_all(dir: &Path, records: &[ExitRecord]) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut outcome = Ok(());
    let mut written = Vec::with_capacity(records.len());
    for record in records {
        match write_temporary(dir, record) {
            Ok(file) => written.push((record, file)),
            Err(e) => outcome = Err(e),
        }
    }
    for (record, file) in written {
        let renamed = file.sync_all().and_then(|()| fs::rename(temporary(dir, &record.id), path(dir, &record.id)));
        outcome = outcome.and(renamed);
    }
    outcome.and(fs::File::open(dir)?.sync_all())
}

fn write_temporary(dir: &Path, record: &ExitRecord) -> io::Result<fs::File> {
    let mut file = fs::File::create(temporary(dir, &record.id))?;
    file.write_all(&serde_json::to_vec(record)?)?;
    Ok(file)
}

/// The record of one container, if there is a readable one.
pub fn read(dir: &Path, id: &str) -> Option<ExitRecord> {
    serde_json::from_slice(&fs::read(path(dir, id)).ok()?).ok()
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

/// Removes the record; one that is not there is no error.
pub fn remove(dir: &Path, id: &str) -> io::Result<()> {
    match fs::remove_file(path(dir, id)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn temporary(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!(".{id}"))
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
}
