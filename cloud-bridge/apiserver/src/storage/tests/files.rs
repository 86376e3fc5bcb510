//! Starts with files after a crash, damaged files, and files restored from the copy.

use std::path::PathBuf;
use std::time::Instant;

use sampan_json::SetField;

use super::*;

#[test]
fn a_new_run_never_gives_a_revision_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let last = store.write("things", object("x", "1"), None, None).unwrap().rev;
    drop(store);
    let store = open(&dir);
    assert!(store.revision() > last);
    assert_eq!(store.knows("things", last), Ok(()));
    assert_eq!(store.knows("things", store.revision()), Ok(()));
    assert_eq!(store.list("things", None, None, None).unwrap().len(), 1);
}

#[test]
fn a_damaged_file_is_named_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.db");
    std::fs::write(&path, b"this is no database at all, but long enough to look at").unwrap();
    let error = Store::open(&path, HISTORY, true).err().unwrap().to_string();
    assert!(error.contains("api.db"), "{error}");
    assert!(std::fs::read(&path).unwrap().starts_with(b"this is no database"));
}

#[test]
fn nobody_else_reads_the_secrets() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    store.write("secrets", object("s", "1"), None, None).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
    }
}

#[test]
fn revisions_have_a_ceiling_that_is_raised_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut last = store.write(LEASES, lease("n", "n", 0), None, None).unwrap();
    for n in 1..3 {
        // As if a million renewals had been.
        store.rev = store.ceiling - 600_000;
        for _ in 0..200_000 {
            store.rev += 1;
        }
        last = store.write(LEASES, lease("n", "n", n), Some(&last), None).unwrap();
        assert!(store.ceiling > last.rev + 400_000);
        assert!(open(&crashed(&dir)).revision() > last.rev);
    }
}

/// A state file with a copy; returns the objects that were written before the copy and after it.
fn copied(dir: &tempfile::TempDir) -> (Arc<Stored>, Arc<Stored>) {
    let mut store = open(dir);
    let old = store.write("things", object("old", "1"), None, None).unwrap();
    store.tick();
    let copy = dir.path().join("api.db.copy");
    let began = Instant::now();
    while !copy.exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "no copy");
        std::thread::sleep(Duration::from_millis(5));
    }
    let new = store.write("things", object("new", "1"), None, None).unwrap();
    (old, new)
}

#[test]
fn a_damaged_file_is_replaced_by_its_copy_when_asked() {
    type Damage = fn(PathBuf);
    let damages: [Damage; 5] = [
        |path| std::fs::write(path, b"this is no database at all, but long enough to look at").unwrap(),
        |path| {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[8192..].fill(0xa5);
            std::fs::write(path, bytes).unwrap();
        },
        |path| File::options().write(true).open(path).unwrap().set_len(5000).unwrap(),
        |path| File::options().write(true).open(path).unwrap().set_len(0).unwrap(),
        |path| std::fs::remove_file(path).unwrap(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let (old, new) = copied(&dir);
        damage(path.clone());
        let damaged = std::fs::read(&path).ok();
        let refused = Store::open(&path, HISTORY, false).err().unwrap().to_string();
        assert!(refused.contains("--restore"), "damage {number}: {refused}");
        assert_eq!(std::fs::read(&path).ok(), damaged, "damage {number}: nothing is done unasked");
        let mut store = restored(&dir);
        let names: Vec<_> =
            store.list("things", None, None, None).unwrap().iter().map(|one| one.key.name.clone()).collect();
        assert_eq!(names, ["old"], "damage {number}");
        for shown in [old.rev, new.rev, new.rev + 1_000_000] {
            assert!(store.knows("things", shown).is_err(), "a watcher of then has to list again");
            assert!(shown < store.revision());
        }
        let next = store.write("things", object("new", "2"), None, None).unwrap();
        assert!(next.rev > new.rev + 1_000_000);
        assert_eq!(std::fs::read(dir.path().join("api.db.damaged")).ok(), damaged, "it is kept");
        drop(store);
        assert_eq!(open(&dir).list("things", None, None, None).unwrap().len(), 2, "and goes on from there");
    }
}

#[test]
fn deleted_nodes_and_used_tokens_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.db");
    let mut store = open(&dir);
    let mut token = object("join-1", "1");
    token.set("type", "sampan.dev/join-token".into());
    let node = store.write("nodes", object("edge-1", "1"), None, None).unwrap();
    store.write("nodes", object("edge-2", "1"), None, None).unwrap();
    let token = store.write("secrets", token, None, None).unwrap();
    let mut claim = object("claim-1", "1");
    claim.set("type", "sampan.dev/claim-token".into());
    let claim = store.write("secrets", claim, None, None).unwrap();
    let other = store.write("secrets", object("other", "1"), None, None).unwrap();
    store.tick();
    let began = Instant::now();
    while !dir.path().join("api.db.copy").exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "no copy");
        std::thread::sleep(Duration::from_millis(5));
    }
    for (storage, gone) in [("nodes", &node), ("secrets", &token), ("secrets", &claim), ("secrets", &other)] {
        store.delete(storage, gone).unwrap();
    }
    let mut again = object("edge-1", "2");
    again["metadata"]["uid"] = "uid-of-another".into();
    store.write("nodes", again, None, None).unwrap();
    drop(store);
    std::fs::remove_file(&path).unwrap();
    let store = restored(&dir);
    let names = |storage: &str| {
        let all = store.list(storage, None, None, None).unwrap();
        all.iter().map(|one| one.key.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names("nodes"), ["edge-2"]);
    assert_eq!(names("secrets"), ["other"], "what is no token is as it was");
}

#[test]
fn restore_reads_nothing_that_an_earlier_attempt_has_left() {
    let dir = tempfile::tempdir().unwrap();
    copied(&dir);
    let left = Connection::open(dir.path().join("api.db.new")).unwrap();
    left.pragma_update(None, "journal_mode", "WAL").unwrap();
    left.execute_batch("CREATE TABLE left_over (a)").unwrap();
    let log = dir.path().join("api.db.new-wal");
    let bytes = std::fs::read(&log).unwrap();
    // To close it writes the log back, and deletes it.
    drop(left);
    std::fs::write(&log, bytes).unwrap();
    std::fs::remove_file(dir.path().join("api.db")).unwrap();
    let store = restored(&dir);
    let things = store.list("things", None, None, None).unwrap();
    assert_eq!(things.iter().map(|one| one.key.name.as_str()).collect::<Vec<_>>(), ["old"]);
    let sql = "SELECT count(*) FROM sqlite_master WHERE name = 'left_over'";
    assert_eq!(store.conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[test]
fn a_copy_that_is_damaged_too_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.db");
    copied(&dir);
    for file in ["api.db", "api.db.copy"] {
        std::fs::write(dir.path().join(file), b"this is no database at all, but long enough to look at").unwrap();
    }
    let error = Store::open(&path, HISTORY, true).err().unwrap().to_string();
    assert!(error.contains("api.db") && error.contains("copy"), "{error}");
    assert!(std::fs::read(&path).unwrap().starts_with(b"this is no database"));
}

#[test]
fn a_log_that_lost_its_end_is_read_up_to_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    for n in 0..20 {
        store.write("things", object(&format!("o{n:02}"), "1"), None, None).unwrap();
    }
    let mut before = 21;
    for cut in [0, 1, 4096, 9000, 20_000] {
        let copy = crashed(&dir);
        let log = File::options().write(true).open(copy.path().join("api.db-wal")).unwrap();
        let length = log.metadata().unwrap().len();
        log.set_len(length - cut).unwrap();
        let store = open(&copy);
        let names = store.list("things", None, None, None).unwrap();
        let expected: Vec<_> = (0..names.len()).map(|n| format!("o{n:02}")).collect();
        assert_eq!(names.iter().map(|one| one.key.name.as_str()).collect::<Vec<_>>(), expected, "a prefix");
        assert!(names.len() <= before);
        before = names.len();
    }
    assert!(before < 20);
}
