//! Names and numbers of rotated log files, as the kubelet's log manager has them. Pure but for listing a folder.
//!
//! `0.log` is current; older ones are `0.log.YYYYMMDD-HHMMSS`, with `.NNNNNN` behind when a second saw several. Their
//! names sort by age. The kubelet compresses them; here they stay plain, for a small board's sake.

use std::fs;
use std::path::{Path, PathBuf};

use sampan_sys::sort::sort;

const NUMBER_DIGITS: usize = 6;

/// Name for the file being put away at `stamp` (RFC 3339 in UTC), sorting behind `newest`, the name given before:
/// several in one second, or a clock set back, must not mix up the order.
pub fn rotated_name(current: &str, stamp: &str, newest: Option<&str>) -> String {
    let digits: String = stamp.chars().filter(char::is_ascii_digit).take(14).collect();
    let (date, time) = digits.split_at(digits.len().min(8));
    let name = format!("{current}.{date}-{time}");
    match newest {
        Some(newest) if newest >= name.as_str() => {
            let (base, number) = match newest.rsplit_once('.') {
                Some((base, digits)) if digits.len() == NUMBER_DIGITS => (base, digits.parse().unwrap_or(0)),
                _ => (newest, 0u32),
            };
            format!("{base}.{:0NUMBER_DIGITS$}", number + 1)
        }
        _ => name,
    }
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
    sort(&mut names);
    names.into_iter().map(|n| folder.join(n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_time_and_sort_by_age() {
        let stamp = "2026-01-02T03:04:05.000000006Z";
        let first = rotated_name("0.log", stamp, None);
        assert_eq!(first, "0.log.20260102-030405");
        let second = rotated_name("0.log", stamp, Some(&first));
        let third = rotated_name("0.log", stamp, Some(&second));
        assert_eq!(third, "0.log.20260102-030405.000002");
        let set_back = rotated_name("0.log", "1970-01-01T00:00:00.000000000Z", Some(&third));
        let later = rotated_name("0.log", "2026-01-02T03:04:06.000000000Z", Some(&set_back));
        assert!(first < second && second < third && third < set_back && set_back < later);
        assert_eq!(later, "0.log.20260102-030406");
    }

    #[test]
    fn only_files_of_this_attempt_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["0.log", "0.log.20260102-030406", "0.log.20260102-030405", "10.log.20260102-030405", "0.logx"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names: Vec<_> =
            rotated_files(&dir.path().join("0.log")).iter().map(|p| p.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["0.log.20260102-030405", "0.log.20260102-030406"]);
    }
}
