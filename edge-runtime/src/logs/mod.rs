//! Container log files: reading, retention, and which are this node's. The monitor writes them ([`sampan_monitor::logs`]).

pub mod read;

use std::fs;
use std::path::{Path, PathBuf};

use crate::paths::Paths;

/// Log folders of this node's pods, each with the pod's uid. A kubelet or another node may log in the same place: their pods
/// have no folder here. A pod keeps its folder until its logs are deleted.
pub fn own(paths: &Paths) -> Vec<(String, PathBuf)> {
    let of = |folder: PathBuf| {
        // NAMESPACE_NAME_UID, in which only the separators are underscores.
        let uid = folder.file_name()?.to_str()?.rsplit_once('_')?.1.to_owned();
        let is_own = uid.starts_with(|first: char| first.is_ascii_alphanumeric()) && paths.pod(&uid).exists();
        is_own.then_some((uid, folder))
    };
    let entries = fs::read_dir(paths.all_pod_logs()).into_iter().flatten().flatten();
    entries.filter_map(|entry| of(entry.path())).collect()
}

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
    fn logs_are_own_if_the_pod_has_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        let logs = ["default_web_0a-1", "default_web_0b-2", "default_web_", "x_..", "readme"];
        for folder in logs.map(|name| paths.all_pod_logs().join(name)).into_iter().chain([paths.pod("0a-1")]) {
            fs::create_dir_all(folder).unwrap();
        }
        assert_eq!(own(&paths), [("0a-1".to_owned(), paths.all_pod_logs().join(logs[0]))]);
        fs::remove_dir(paths.pod("0a-1")).unwrap();
        assert!(own(&paths).is_empty());
    }

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
