//! Container log files: reading and retention. The monitor writes them ([`sampan_monitor::logs`]).

pub mod read;

use std::fs;
use std::path::Path;

/// Removes the logs, rotated ones too, of all attempts before `keep_from`: the current one and the one before stay, for
/// `kubectl logs -p` (the kubelet's `maxPerPodContainer` of one dead container). What cannot be removed now is tried again
/// with the next attempt.
pub fn drop_before(folder: &Path, keep_from: u32) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let attempt = name.to_str().and_then(|name| name.split_once(".log")?.0.parse::<u32>().ok());
        if attempt.is_some_and(|attempt| attempt < keep_from)
            && let Err(error) = fs::remove_file(entry.path())
        {
            log::warn!("{}: {error}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_attempts_go() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["7.log", "8.log", "8.log.20260102-030405", "9.log", "10.log", "other", "x.log"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        drop_before(dir.path(), 9);
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["10.log", "9.log", "other", "x.log"]);
        drop_before(Path::new("/nowhere"), 1);
    }
}
