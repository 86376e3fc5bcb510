//! What `storage` promises, case by case.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use super::*;

fn open(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("api.db"), Duration::from_secs(600), 10_000).unwrap()
}

fn object(name: &str, data: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}")}, "data": data})
}

fn data(changes: &[Change]) -> Vec<(ChangeKind, String, String)> {
    changes
        .iter()
        .map(|c| (c.kind, c.object.key.name.clone(), c.object.value()["data"].as_str().unwrap_or_default().to_owned()))
        .collect()
}

#[test]
fn history_gives_each_state_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let start = store.revision();
    let one = store.write("things", object("x", "1"), None, None).unwrap();
    let two = store.write("things", object("x", "2"), Some(&one), None).unwrap();
    store.write("things", object("y", "1"), None, None).unwrap();
    let gone = store.delete("things", &two).unwrap();
    store.write("things", object("x", "3"), None, None).unwrap();
    let changes = store.since("things", Some("a"), start).unwrap();
    let expected = [
        (ChangeKind::Added, "x", "1"),
        (ChangeKind::Modified, "x", "2"),
        (ChangeKind::Added, "y", "1"),
        (ChangeKind::Deleted, "x", "2"),
        (ChangeKind::Added, "x", "3"),
    ];
    assert_eq!(data(&changes), expected.map(|(k, n, d)| (k, n.to_owned(), d.to_owned())));
    assert_eq!(changes[3].object.value()["metadata"]["resourceVersion"], gone.rev.to_string());
    let then = store.list_at("things", None, two.rev, None, None, &|_| true).unwrap();
    assert_eq!(then.len(), 1);
    assert_eq!(then[0].value()["data"], "2");
    assert_eq!(then[0].rev, two.rev);
}

#[test]
fn pages_of_the_past_are_the_past() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let made: Vec<_> =
        ["a", "b", "c", "d", "e"].map(|name| store.write("things", object(name, "1"), None, None).unwrap()).into();
    let rev = store.revision();
    store.delete("things", &made[0]).unwrap();
    let newer = store.write("things", object("c", "2"), Some(&made[2]), None).unwrap();
    store.write("things", object("c", "3"), Some(&newer), None).unwrap();
    store.write("things", object("bb", "1"), None, None).unwrap();
    store.delete("things", &made[4]).unwrap();
    store.write("others", object("c", "1"), None, None).unwrap();
    let all = |_: &Stored| true;
    for namespace in [None, Some("a")] {
        let (mut after, mut seen) = (None, Vec::new());
        loop {
            let page = store.list_at("things", namespace, rev, after.as_ref(), Some(2), &all).unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            seen.extend(page.iter().map(|one| (one.key.name.clone(), one.value()["data"].clone())));
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"].map(|name| (name.to_owned(), "1".into())));
        let now = store.list_at("things", namespace, store.revision(), None, None, &all).unwrap();
        assert_eq!(now.iter().map(|one| one.key.name.as_str()).collect::<Vec<_>>(), ["b", "bb", "c", "d"]);
        assert_eq!(now[2].value()["data"], "3");
    }
    let selected = store.list_at("things", None, rev, None, Some(1), &|one| one.key.name.as_str() > "b").unwrap();
    assert_eq!(selected[0].key.name, "c");
    assert!(store.list_at("things", Some("none"), rev, None, None, &all).unwrap().is_empty());
}

#[test]
fn compaction_expires_old_revisions() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let first = store.write("things", object("x", "1"), None, None).unwrap().rev;
    let second = store.write("things", object("y", "1"), None, None).unwrap().rev;
    store.compact(first).unwrap();
    assert_eq!(store.knows("things", first), Ok(()));
    assert_eq!(store.since("things", None, first).unwrap().len(), 1);
    assert!(store.knows("things", first - 1).is_err());
    assert_eq!(store.knows("things", second), Ok(()));
}

#[test]
fn a_new_run_never_gives_a_revision_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let last = store.write("things", object("x", "1"), None, None).unwrap().rev;
    drop(store);
    let store = open(&dir);
    assert!(store.revision() > last);
    assert_eq!(store.knows("things", last), Ok(()));
    assert!(store.knows("things", last + 1).is_err());
    assert_eq!(store.knows("things", store.revision()), Ok(()));
    assert_eq!(store.list("things", None, None, None).unwrap().len(), 1);
}

#[test]
fn a_damaged_file_is_named_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.db");
    std::fs::write(&path, b"this is no database at all, but long enough to look at").unwrap();
    let error = Store::open(&path, Duration::from_secs(1), 10).err().unwrap().to_string();
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
fn expired_events_go_with_the_trim() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    store.write("events", object("old", "1"), None, Some(UNIX_EPOCH)).unwrap();
    store.write("events", object("new", "1"), None, None).unwrap();
    store.trim().unwrap();
    let names: Vec<_> = store.list("events", None, None, None).unwrap().iter().map(|s| s.key.name.clone()).collect();
    assert_eq!(names, ["new"]);
}

#[test]
fn a_slow_watcher_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut watcher = store.subscribe("things", Box::new(|_| true));
    let mut stored = store.write("things", object("x", "0"), None, None).unwrap();
    for n in 1..1100 {
        stored = store.write("things", object("x", &n.to_string()), Some(&stored), None).unwrap();
    }
    let mut seen = 0;
    while watcher.try_recv().is_ok() {
        seen += 1;
    }
    assert_eq!(seen, 1024);
    assert!(matches!(watcher.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Disconnected)));
}

#[test]
fn renewals_are_seen_at_once_and_durable_with_the_next_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut watcher = store.subscribe(LEASES, Box::new(|_| true));
    let mut lease = store.write(LEASES, object("n", "0"), None, None).unwrap();
    for n in 1..=10 {
        lease = store.write(LEASES, object("n", &n.to_string()), Some(&lease), None).unwrap();
        assert_eq!(store.get(LEASES, &lease.key).unwrap().unwrap().value()["data"], n.to_string());
    }
    assert_eq!(std::iter::from_fn(|| watcher.try_recv().ok()).count(), 11);
    store.write("things", object("x", "1"), None, None).unwrap();
    // As a crash leaves it: nothing is flushed any more.
    let copy = tempfile::tempdir().unwrap();
    for name in ["api.db", "api.db-wal"] {
        std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    let copied = open(&copy);
    assert_eq!(copied.get(LEASES, &lease.key).unwrap().unwrap().value()["data"], "10");
}

#[test]
fn renewals_leave_room_for_the_history_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(&dir.path().join("api.db"), Duration::from_secs(600), 10_000).unwrap();
    let pod = store.write("pods", object("p", "1"), None, None).unwrap();
    let mut lease = store.write(LEASES, object("n", "0"), None, None).unwrap();
    let first = lease.rev;
    for n in 0..10_000 {
        lease = store.write(LEASES, object("n", &n.to_string()), Some(&lease), None).unwrap();
    }
    store.trim().unwrap();
    assert_eq!(store.knows("pods", pod.rev), Ok(()), "10,000 renewals later");
    assert!(store.knows(LEASES, first).is_err());
    assert_eq!(store.knows(LEASES, lease.rev - 100), Ok(()));
}
