//! Names and numbers of rotated log files, as the kubelet's log manager has them. Pure but for listing a folder.
//!
//! `0.log` is current; older ones are `0.log.YYYYMMDD-HHMMSS`, with `.NNN` behind when a second saw several. Their
//! names sort by age. The kubelet compresses them; here they stay plain, for a small board's sake.

use std::fs;
use std::path::{Path, PathBuf};

/// Name for the file being put away at `stamp` (RFC 3339 in UTC), given the names that exist in its folder.
pub fn rotated_name(current: &str, stamp: &str, exists: impl Fn(&str) -> bool) -> String {
    let digits: Vec<u8> = stamp.bytes().filter(u8::is_ascii_digit).take(14).collect();
    let digits = String::from_utf8_lossy(&digits);
    let (date, time) = digits.split_at(digits.len().min(8));
    let base = format!("{current}.{date}-{time}");
    let numbered = (1..1000).map(|n| format!("{base}.{n:03}"));
    std::iter::once(base.clone()).chain(numbered).find(|name| !exists(name)).unwrap_or(base)
}

/// Rotated files of `log`, oldest first.
pub fn rotated_files(log: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (log.parent(), log.file_name().and_then(|n| n.to_str())) else {
        return Vec::new();
    };
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|n| n.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
        .collect();
    names.sort_unstable();
    names.into_iter().map(|n| folder.join(n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_time_and_sort_by_age() {
        let stamp = "2026-01-02T03:04:05.000000006Z";
        assert_eq!(rotated_name("0.log", stamp, |_| false), "0.log.20260102-030405");
        let taken = ["0.log.20260102-030405", "0.log.20260102-030405.001"];
        let next = rotated_name("0.log", stamp, |n| taken.contains(&n));
        assert_eq!(next, "0.log.20260102-030405.002");
        assert!(taken.iter().all(|t| *t < next.as_str()) && next.as_str() < "0.log.20260102-030406");
    }

    #[test]
    fn only_files_of_this_attempt_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["0.log", "0.log.20260102-030406", "0.log.20260102-030405", "10.log.20260102-030405", "0.logx"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names: Vec<_> = rotated_files(&dir.path().join("0.log")).iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["0.log.20260102-030405", "0.log.20260102-030406"]);
    }
}
