//! Renewals of leases, which are written seldom.

use super::*;

#[test]
fn renewals_are_seen_at_once_and_written_at_an_orderly_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut watcher = store.subscribe(LEASES, all(|_| Some(View::Modified)));
    let made = store.write(LEASES, lease("n", "n", 0), None, None).unwrap();
    let log = || std::fs::metadata(dir.path().join("api.db-wal")).unwrap().len();
    let before = (log(), store.written());
    let mut newest = Arc::clone(&made);
    for n in 1..=1000 {
        newest = store.write(LEASES, lease("n", "n", n), Some(&newest), None).unwrap();
        assert_eq!(store.get(LEASES, &newest.key).unwrap().unwrap().value()["spec"]["renewTime"], n);
    }
    assert_eq!((log(), store.written()), before, "not a byte");
    assert_eq!(std::iter::from_fn(|| watcher.try_recv().ok()).count(), 1001);
    assert_eq!(store.since(LEASES, None, (newest.rev - 10, u64::MAX / 2), Most::items(1000)).unwrap().0.len(), 10);
    let then = store.list_at(LEASES, None, newest.rev - 10, None, Most::ALL, &|_| true).unwrap().items;
    assert_eq!(then[0].value()["spec"]["renewTime"], 990);
    assert!(store.list_at(LEASES, None, made.rev - 1, None, Most::ALL, &|_| true).unwrap().items.is_empty());
    drop(store);
    let store = open(&dir);
    let kept = store.get(LEASES, &newest.key).unwrap().unwrap();
    assert_eq!(kept.value()["spec"]["renewTime"], 1000);
    assert!(kept.rev > newest.rev && number(&kept) == kept.rev, "nobody takes it for what was shown before");
}

#[test]
fn a_crash_loses_times_of_renewals_and_nothing_else_of_leases() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut last = store.write(LEASES, lease("n", "one", 0), None, None).unwrap();
    last = store.write(LEASES, lease("n", "two", 1), Some(&last), None).unwrap();
    for n in 2..=100 {
        last = store.write(LEASES, lease("n", "two", n), Some(&last), None).unwrap();
    }
    let gone = store.write(LEASES, lease("gone", "x", 0), None, None).unwrap();
    store.delete(LEASES, &gone).unwrap();
    let (shown, key) = (store.revision(), last.key.clone());
    let copy = crashed(&dir);
    let store = open(&copy);
    let kept = store.get(LEASES, &key).unwrap().unwrap();
    assert_eq!(kept.value()["spec"]["holderIdentity"], "two");
    assert_eq!(kept.value()["spec"]["renewTime"], 1);
    assert!(kept.rev > shown && number(&kept) == kept.rev, "a revision never goes back");
    assert!(store.revision() > shown);
    assert_eq!(store.list(LEASES, None, None, None).unwrap().len(), 1);
    assert!(store.knows(LEASES, shown).is_err(), "what was changed since then is not known");
    assert_eq!(store.knows(LEASES, store.revision()), Ok(()));
    assert_eq!(store.knows("pods", shown), Ok(()), "all of what was shown of others is in the file");
}

#[test]
fn renewals_leave_room_for_the_history_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let pod = store.write("pods", object("p", "1"), None, None).unwrap();
    let mut last = store.write(LEASES, lease("n", "n", 0), None, None).unwrap();
    let first = last.rev;
    for n in 1..10_000 {
        last = store.write(LEASES, lease("n", "n", n), Some(&last), None).unwrap();
    }
    store.trim().unwrap();
    assert_eq!(store.knows("pods", pod.rev), Ok(()), "10,000 renewals later");
    assert!(store.knows(LEASES, first).is_err());
    assert_eq!(store.knows(LEASES, last.rev - 100), Ok(()));
}
