//! Large bodies: written once, and deleted with the last row that names them.

use super::*;

/// Bytes of a large body: the history has room for two.
const LARGE: usize = 500 << 10;

fn large(word: &str) -> Value {
    object("x", &word.repeat(LARGE / word.len()))
}

fn apart(store: &Store) -> i64 {
    store.conn.query_row("SELECT count(*) FROM bodies", [], |row| row.get(0)).unwrap()
}

/// The first characters of each state that the history shows.
fn told(store: &Store, since: u64) -> Vec<(ChangeKind, String)> {
    let changes = store.since("things", None, (since, u64::MAX / 2), Most::ALL).unwrap().0;
    data(&changes).into_iter().map(|(kind, _, data)| (kind, data.chars().take(2).collect())).collect()
}

#[test]
fn each_large_body_is_written_once_and_not_by_a_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let start = store.revision();
    let mut length = std::fs::metadata(dir.path().join("api.db-wal")).unwrap().len();
    let mut grown = || {
        let now = std::fs::metadata(dir.path().join("api.db-wal")).unwrap().len();
        usize::try_from(now - std::mem::replace(&mut length, now)).unwrap()
    };
    let first = store.write("things", large("ab"), None, None).unwrap();
    let created = grown();
    let second = store.write("things", large("cd"), Some(&first), None).unwrap();
    let updated = grown();
    store.delete("things", &second).unwrap();
    let deleted = grown();
    assert!(created > LARGE && created < LARGE / 4 * 5, "{created}");
    assert!(updated > LARGE && updated < LARGE / 4 * 5, "{updated}");
    assert!(deleted < 64 << 10, "{deleted}");

    let text = |kind, text: &str| (kind, text.to_owned());
    let all = [text(ChangeKind::Added, "ab"), text(ChangeKind::Modified, "cd"), text(ChangeKind::Deleted, "cd")];
    assert_eq!(told(&store, start), all);
    let then = store.list_at("things", None, first.rev, None, Most::ALL, &|_| true).unwrap().items;
    assert_eq!(then[0].body, first.body);
    drop(store);
    let mut store = open(&dir);
    assert_eq!((told(&store, start), apart(&store)), (all.to_vec(), 2));
    store.compact(store.written).unwrap();
    assert_eq!(apart(&store), 0);
}

fn large_ones(store: &Store, least: usize) -> Vec<(ObjectKey, usize)> {
    let mut all = Vec::new();
    store.each_large("things", least, |key, body| all.push((key.clone(), body.len()))).unwrap();
    all
}

#[test]
fn objects_change_between_large_and_small() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let start = store.revision();
    let mut last = store.write("things", object("x", "small"), None, None).unwrap();
    for next in [large("ab"), object("x", "tiny"), large("cd")] {
        last = store.write("things", next, Some(&last), None).unwrap();
        assert_eq!(store.get("things", &last.key).unwrap().unwrap().body, last.body);
        assert_eq!(store.list("things", None, None, None).unwrap()[0].body, last.body);
    }
    let texts: Vec<_> = told(&store, start).into_iter().map(|(_, text)| text).collect();
    assert_eq!((texts, apart(&store)), (["sm", "ab", "ti", "cd"].map(str::to_owned).to_vec(), 2));
    assert_eq!(large_ones(&store, LARGE), [(last.key.clone(), last.body.len())]);
    assert!(large_ones(&store, LARGE * 2).is_empty());
}

#[test]
fn large_bodies_of_an_older_version_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let start = store.revision();
    let old = store.write("things", large("ab"), None, None).unwrap();
    let inline =
        "UPDATE objects SET body = (SELECT bodies.body FROM bodies WHERE id = objects.body); DELETE FROM bodies";
    store.conn.execute_batch(inline).unwrap();
    drop(store);
    let mut store = open(&dir);
    assert_eq!(large_ones(&store, LARGE), [(old.key.clone(), old.body.len())]);
    let old = store.get("things", &old.key).unwrap().unwrap();
    let new = store.write("things", large("cd"), Some(&old), None).unwrap();
    store.delete("things", &new).unwrap();
    let texts: Vec<_> = told(&store, start).into_iter().map(|(_, text)| text).collect();
    assert_eq!((texts, apart(&store)), (["ab", "cd", "cd"].map(str::to_owned).to_vec(), 1));
}

#[test]
fn file_and_copy_of_the_first_schema_are_migrated() {
    let dir = tempfile::tempdir().unwrap();
    let (file, copy) = (dir.path().join("api.db"), dir.path().join("api.db.copy"));
    let mut store = open(&dir);
    let start = store.revision();
    let old = store.write("things", large("ab"), None, None).unwrap();
    let first = "UPDATE objects SET body = (SELECT bodies.body FROM bodies WHERE id = objects.body); \
         DROP TABLE bodies; PRAGMA user_version = 1";
    store.conn.execute_batch(first).unwrap();
    drop(store);
    std::fs::copy(&file, &copy).unwrap();
    let mut store = open(&dir);
    let found = store.get("things", &old.key).unwrap().unwrap();
    assert_eq!(found.body, old.body);
    store.write("things", large("cd"), Some(&found), None).unwrap();
    let texts: Vec<_> = told(&store, start).into_iter().map(|(_, text)| text).collect();
    assert_eq!((texts, apart(&store)), (["ab", "cd"].map(str::to_owned).to_vec(), 1));
    drop(store);
    std::fs::remove_file(&file).unwrap();
    let store = restored(&dir);
    assert_eq!(store.get("things", &old.key).unwrap().unwrap().body, old.body);
}

#[test]
fn large_lease_leaves_no_body_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let holder = "x".repeat(LARGE);
    let first = store.write(LEASES, lease("n", &holder, 0), None, None).unwrap();
    let second = store.write(LEASES, lease("n", "n", 1), Some(&first), None).unwrap();
    store.write(LEASES, lease("n", &holder, 2), Some(&second), None).unwrap();
    assert_eq!(apart(&store), 0);
    drop(store);
    let store = open(&dir);
    assert_eq!(store.get(LEASES, &first.key).unwrap().unwrap().value()["spec"]["holderIdentity"], holder);
}

#[test]
fn restored_copy_keeps_no_replaced_body() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let first = store.write("things", large("ab"), None, None).unwrap();
    store.write("things", large("cd"), Some(&first), None).unwrap();
    drop(store);
    std::fs::rename(dir.path().join("api.db"), dir.path().join("api.db.copy")).unwrap();
    let store = restored(&dir);
    assert_eq!(apart(&store), 1);
    let kept = store.get("things", &first.key).unwrap().unwrap();
    assert_eq!(kept.value()["data"].as_str().unwrap().len(), LARGE);
}
