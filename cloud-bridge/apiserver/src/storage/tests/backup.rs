//! Backups of a state file, and what they can be restored into.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use sampan_json::SetField;

use super::*;
use crate::storage::backup::{MAX_FILES, SmallFile, copy_from, inspect, lock, write};

const MADE: &str = "2026-11-29T12:00:00Z";

/// A state in use with a Node, a join token and another Secret, and its backup.
fn backed_up(dir: &tempfile::TempDir) -> (Store, PathBuf) {
    let mut store = open(dir);
    let mut token = object("join-1", "1");
    token.set("type", "sampan.dev/join-token".into());
    store.write("secrets", token, None, None).unwrap();
    store.write("secrets", object("other", "1"), None, None).unwrap();
    store.write("nodes", object("edge-1", "1"), None, None).unwrap();
    let to = dir.path().join("backup");
    write(&dir.path().join("api.db"), &[key()], MADE, &to).unwrap();
    (store, to)
}

fn key() -> SmallFile {
    SmallFile { name: "pki/ca.key".to_owned(), bytes: b"a secret key".to_vec() }
}

fn names(store: &Store, storage: &str) -> Vec<String> {
    store.list(storage, None, None, None).unwrap().iter().map(|one| one.key.name.clone()).collect()
}

#[test]
fn backup_of_a_running_bridge_is_whole_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, backup) = backed_up(&dir);
    store.write("nodes", object("edge-2", "1"), None, None).unwrap();
    assert_eq!(std::fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
    let found = inspect(&backup).unwrap();
    assert_eq!((found.made.as_str(), found.nodes.as_slice(), found.tokens), (MADE, &["edge-1".to_owned()][..], 1));
    assert_eq!(found.files, [key()]);
    // The next one takes its name.
    write(&dir.path().join("api.db"), &[key()], MADE, &backup).unwrap();
    assert_eq!(inspect(&backup).unwrap().nodes.len(), 2);
    assert!(!dir.path().join("backup.partial").exists());
}

#[test]
fn backup_that_cannot_be_restored_replaces_none() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, backup) = backed_up(&dir);
    let many: Vec<SmallFile> =
        (0..=MAX_FILES).map(|number| SmallFile { name: format!("pki/{number}"), ..key() }).collect();
    write(&dir.path().join("api.db"), &many, MADE, &backup).unwrap_err();
    assert_eq!(inspect(&backup).unwrap().files, [key()]);
    assert!(!dir.path().join("backup.partial").exists());
}

#[test]
fn pipe_and_folder_are_no_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _) = backed_up(&dir);
    let (pipe, folder) = (dir.path().join("pipe"), dir.path().join("folder"));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::create_dir(&folder).unwrap();
    for (path, kind) in [(&pipe, "pipe"), (&folder, "folder")] {
        let said = format!("{}: this is a {kind}, not a regular file", path.display());
        assert_eq!(inspect(path).unwrap_err().to_string(), said);
        assert_eq!(write(&dir.path().join("api.db"), &[key()], MADE, path).unwrap_err().to_string(), said);
    }
}

#[test]
fn restored_backup_has_newer_revisions_and_no_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, backup) = backed_up(&dir);
    let shown = store.write("things", object("late", "1"), None, None).unwrap().rev;
    drop(store);
    for keep_tokens in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("api.db.copy");
        copy_from(&backup, &copy, &dir.path().join("api.db"), 0, keep_tokens).unwrap();
        let bytes = std::fs::read(&copy).unwrap();
        assert!(!bytes.windows(key().bytes.len()).any(|part| part == key().bytes), "the key is in the copy");
        let refused = Store::open(&folder.path().join("api.db"), HISTORY, false).err().unwrap().to_string();
        assert!(refused.contains("--restore"), "{refused}");
        let store = restored(&folder);
        assert_eq!(names(&store, "nodes"), ["edge-1"]);
        assert_eq!(names(&store, "secrets"), if keep_tokens { vec!["join-1", "other"] } else { vec!["other"] });
        assert!(store.revision() > shown && store.knows("things", shown).is_err(), "watchers list again");
    }
}

#[test]
fn restored_backup_lacks_what_its_folder_knows_as_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, backup) = backed_up(&dir);
    let node = store.list("nodes", None, None, None).unwrap().remove(0);
    store.delete("nodes", &node).unwrap();
    drop(store);
    let present = dir.path().join("api.db");
    copy_from(&backup, &dir.path().join("api.db.copy"), &present, 0, true).unwrap();
    std::fs::remove_file(&present).unwrap();
    assert!(names(&restored(&dir), "nodes").is_empty());
}

#[test]
fn other_files_are_refused_and_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let (store, backup) = backed_up(&dir);
    let state = dir.path().join("api.db");
    let refused = inspect(&state).unwrap_err().to_string();
    assert!(refused.contains("no backup"), "{refused}");
    let taken = dir.path().join("taken");
    std::fs::write(&taken, "text").unwrap();
    for path in [&taken, &state] {
        let before = std::fs::read(path).unwrap();
        let refused = write(&state, &[], MADE, path).unwrap_err().to_string();
        assert!(refused.contains("choose another name"), "{refused}");
        assert_eq!(std::fs::read(path).unwrap(), before);
    }
    assert!(lock(&state).unwrap_err().to_string().contains("stop"), "the bridge runs");
    drop(store);
    lock(&state).unwrap();
    let none = dir.path().join("none.db");
    assert!(write(&none, &[], MADE, &dir.path().join("of-none")).is_err() && !none.exists());
    assert!(!dir.path().join("of-none.partial").exists());
    assert_eq!(inspect(&backup).unwrap().files, [key()]);
}

#[test]
fn cut_damaged_and_newer_backups_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, backup) = backed_up(&dir);
    let bytes = std::fs::read(&backup).unwrap();
    let refused = |bytes: &[u8]| {
        let path = dir.path().join("changed");
        std::fs::write(&path, bytes).unwrap();
        inspect(&path).unwrap_err().to_string()
    };
    assert!(refused(&bytes[..bytes.len() - 1]).contains("cut off"));
    assert!(refused(&bytes[..50]).contains("no backup"));
    let mut damaged = bytes.clone();
    damaged[4096..].fill(0xa5);
    let why = refused(&damaged);
    assert!(why.contains("damaged") || why.contains("malformed"), "{why}");
    // The version is at byte 60 (SQLite, fileformat2.html).
    let mut newer = bytes;
    newer[60..64].copy_from_slice(&1000_u32.to_be_bytes());
    assert!(refused(&newer).contains("newer version"));
}
