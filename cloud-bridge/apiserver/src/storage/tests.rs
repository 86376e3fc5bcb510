//! What `storage` promises, case by case.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use edge_protocol::json::SetField;
use serde_json::json;

use super::*;

const HISTORY: History = History { age: Duration::from_secs(600), rows: 10_000, bytes: 1 << 20, expiring: 1 << 20 };

fn open(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("api.db"), HISTORY, false).unwrap()
}

fn restored(dir: &tempfile::TempDir) -> Store {
    Store::open(&dir.path().join("api.db"), HISTORY, true).unwrap()
}

/// The files as a crash of the program leaves them, elsewhere.
fn crashed(dir: &tempfile::TempDir) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["api.db", "api.db-wal"] {
        std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    copy
}

fn number(stored: &Stored) -> u64 {
    stored.value()["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
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
    let changes = store.since("things", Some("a"), (start, u64::MAX / 2), Most::items(1000)).unwrap().0;
    let expected = [
        (ChangeKind::Added, "x", "1"),
        (ChangeKind::Modified, "x", "2"),
        (ChangeKind::Added, "y", "1"),
        (ChangeKind::Deleted, "x", "2"),
        (ChangeKind::Added, "x", "3"),
    ];
    assert_eq!(data(&changes), expected.map(|(k, n, d)| (k, n.to_owned(), d.to_owned())));
    assert_eq!(changes[3].object.value()["metadata"]["resourceVersion"], gone.rev.to_string());
    let then = store.list_at("things", None, two.rev, None, Most::ALL, &|_| true).unwrap().items;
    assert_eq!(then.len(), 1);
    assert_eq!(then[0].value()["data"], "2");
    assert_eq!(then[0].rev, two.rev);
}

#[test]
fn no_more_is_counted_than_somebody_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    for name in ["a", "b", "c", "d"] {
        store.write("things", object(name, "1"), None, None).unwrap();
        store.write(LEASES, object(name, "1"), None, None).unwrap();
    }
    let elsewhere = json!({"metadata": {"name": "a", "namespace": "b", "uid": "uid"}});
    store.write("things", elsewhere, None, None).unwrap();
    let after = ObjectKey { namespace: "a".to_owned(), name: "b".to_owned() };
    for (storage, namespace, most, count) in [
        ("things", None, 3, Some(3)),
        ("things", None, 2, None),
        ("things", Some("a"), 2, Some(2)),
        ("things", Some("a"), 1, None),
        (LEASES, Some("a"), 2, Some(2)),
        (LEASES, None, 1, None),
    ] {
        assert_eq!(store.count(storage, namespace, &after, most).unwrap(), count, "{storage} {namespace:?} {most}");
    }
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
            let page = store.list_at("things", namespace, rev, after.as_ref(), Most::items(2), &all).unwrap().items;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            seen.extend(page.iter().map(|one| (one.key.name.clone(), one.value()["data"].clone())));
        }
        assert_eq!(seen, ["a", "b", "c", "d", "e"].map(|name| (name.to_owned(), "1".into())));
        let now = store.list_at("things", namespace, store.revision(), None, Most::ALL, &all).unwrap().items;
        assert_eq!(now.iter().map(|one| one.key.name.as_str()).collect::<Vec<_>>(), ["b", "bb", "c", "d"]);
        assert_eq!(now[2].value()["data"], "3");
    }
    let selected =
        store.list_at("things", None, rev, None, Most::items(1), &|one| one.key.name.as_str() > "b").unwrap().items;
    assert_eq!(selected[0].key.name, "c");
    assert!(store.list_at("things", Some("none"), rev, None, Most::ALL, &all).unwrap().items.is_empty());
}

#[test]
fn a_page_walks_over_no_more_of_the_past_than_of_its_objects() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let first = store.write("things", object("a", "1"), None, None).unwrap();
    store.write("things", object("b", "1"), None, None).unwrap();
    for at in 0..500 {
        store.write("things", object(&format!("z{at}"), "1"), None, None).unwrap();
    }
    let rev = store.revision();
    store.write("things", object("a", "2"), Some(&first), None).unwrap();
    let steps = |store: &Store, reset: bool| {
        let statement = store.conn.prepare_cached(snapshot::EVERYWHERE[1]).unwrap();
        let status = rusqlite::StatementStatus::VmStep;
        if reset { statement.reset_status(status) } else { statement.get_status(status) }
    };
    let page = |most| {
        steps(&store, true);
        let page = store.list_at("things", None, rev, None, Most::items(most), &|_| true).unwrap().items;
        (page.len(), steps(&store, false))
    };
    let (two, all) = (page(2), page(1000));
    assert_eq!((two.0, all.0), (2, 502));
    assert!(two.1 < 200 && all.1 > 2000, "{two:?} {all:?}");
}

#[test]
fn changes_of_others_are_walked_over_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let begin = store.revision();
    for at in 0..100 {
        store.write("others", object(&format!("o{at}"), "1"), None, None).unwrap();
    }
    let last = store.write("things", object("x", "1"), None, None).unwrap().rev;
    let (mut from, mut steps, mut seen) = (Some(begin), 0, Vec::new());
    while let Some(rev) = from {
        let most = Most { items: 1000, bytes: 10 * 256 };
        let (changes, next) = store.since("things", None, (rev, last), most).unwrap();
        seen.extend(changes.iter().map(|change| change.rev));
        (from, steps) = (next, steps + 1);
    }
    assert_eq!((seen, steps), (vec![last], 11));
}

#[test]
fn compaction_expires_old_revisions() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let first = store.write("things", object("x", "1"), None, None).unwrap().rev;
    let second = store.write("things", object("y", "1"), None, None).unwrap().rev;
    store.compact(first).unwrap();
    assert_eq!(store.knows("things", first), Ok(()));
    assert_eq!(store.since("things", None, (first, u64::MAX / 2), Most::items(1000)).unwrap().0.len(), 1);
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
fn expired_events_go_with_the_trim() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    store.write("events", object("old", "1"), None, Some(Duration::from_secs(60))).unwrap();
    store.clock.base += 3600;
    store.write("events", object("new", "1"), None, None).unwrap();
    // Time is enough, where nothing more is written.
    let now = Instant::now();
    store.trim_now_and_then(now + TRIM_AFTER / 2);
    assert_eq!(store.list("events", None, None, None).unwrap().len(), 2);
    store.trim_now_and_then(now + 2 * TRIM_AFTER);
    let names: Vec<_> = store.list("events", None, None, None).unwrap().iter().map(|s| s.key.name.clone()).collect();
    assert_eq!(names, ["new"]);
}

#[test]
fn the_oldest_events_make_room_for_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let at = |second: u64| Some(Duration::from_secs((1 << 40) + second));
    let names = |store: &Store| -> Vec<String> {
        store.list("events", None, None, None).unwrap().iter().map(|stored| stored.key.name.clone()).collect()
    };
    let mut store = open(&dir);
    let word = "x".repeat(100_000);
    store.write("things", object("thing", &word), None, None).unwrap();
    for n in 0..30 {
        store.write("events", object(&format!("e{n:02}"), &word), None, at(n)).unwrap();
    }
    // The room is for ten of them.
    assert_eq!(names(&store), (20..30).map(|n| format!("e{n:02}")).collect::<Vec<_>>());
    assert_eq!(store.list("things", None, None, None).unwrap().len(), 1, "nothing else goes");
    // One that is written again is new again.
    let old = store.get("events", &ObjectKey::of(&object("e20", ""))).unwrap();
    store.write("events", object("e20", &word), old.as_ref(), at(40)).unwrap();
    store.write("events", object("e41", &word), None, at(41)).unwrap();
    assert_eq!(names(&store)[0], "e20");
    assert!(!names(&store).contains(&"e21".to_owned()));
    // What is deleted leaves room, and what there is counts after a restart.
    let old = store.get("events", &ObjectKey::of(&object("e22", ""))).unwrap().unwrap();
    store.delete("events", &old).unwrap();
    drop(store);
    let mut store = open(&dir);
    assert_eq!(names(&store).len(), 9);
    for n in 50..52 {
        store.write("events", object(&format!("e{n}"), &word), None, at(n)).unwrap();
    }
    assert_eq!(names(&store).len(), 10);
    assert!(!names(&store).contains(&"e23".to_owned()));
}

#[test]
fn the_past_is_told_in_pages() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let start = store.revision();
    for n in 0..30 {
        let name = ["x", "y", "z"][n % 3];
        let old = store.get("things", &ObjectKey::of(&object(name, ""))).unwrap();
        match old {
            Some(old) if n % 7 == 0 => drop(store.delete("things", &old).unwrap()),
            old => drop(store.write("things", object(name, &n.to_string()), old.as_ref(), None).unwrap()),
        }
    }
    let all = store.since("things", None, (start, store.revision()), Most::items(1000)).unwrap();
    assert_eq!((all.0.len(), all.1), (30, None));
    let last = all.0[26].rev;
    let (mut pages, mut from) = (Vec::new(), Some(start));
    while let Some(rev) = from {
        let (page, next) = store.since("things", None, (rev, last), Most::items(4)).unwrap();
        assert!(page.len() <= 4);
        pages.extend(page);
        from = next;
    }
    let what = |changes: &[Change]| {
        let one =
            |c: &Change| (c.rev, c.kind, c.object.body.clone(), c.before.as_ref().map(|b| (b.rev, b.body.clone())));
        changes.iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(what(&pages), what(&all.0[..27]));
}

/// Interest in all namespaces, without a limit.
fn all(filter: impl Fn(&Change) -> Option<View> + Send + 'static) -> Interest {
    Interest { namespace: None, filter: Box::new(filter), charge: Box::new(|_| Some(Arc::new(()))) }
}

#[test]
fn watcher_is_asked_about_its_own_namespace_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut interest = |namespace: Option<&str>, name: &'static str| {
        let asked = Arc::clone(&asked);
        let filter = move |_: &Change| {
            asked.lock().unwrap().push(name);
            Some(View::Modified)
        };
        let interest = Interest { namespace: namespace.map(str::to_owned), ..all(filter) };
        store.subscribe("things", interest)
    };
    let mut watchers = [interest(None, "all"), interest(Some("a"), "own"), interest(Some("other"), "other")];
    store.write("things", object("x", "0"), None, None).unwrap();
    assert_eq!(*asked.lock().unwrap(), ["all", "own"]);
    assert_eq!(watchers.each_mut().map(|watcher| watcher.try_recv().is_ok()), [true, true, false]);
}

#[test]
fn watcher_beyond_its_share_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let room = Arc::new(());
    let charge = {
        let room = Arc::clone(&room);
        move |_| (Arc::strong_count(&room) < 5).then(|| Arc::new(Arc::clone(&room)) as Held)
    };
    let mut watcher = store.subscribe("things", Interest { charge: Box::new(charge), ..all(|_| Some(View::Modified)) });
    let mut write = |name: &str| drop(store.write("things", object(name, "0"), None, None).unwrap());
    write("a");
    drop(watcher.try_recv().unwrap());
    ["b", "c", "d", "e"].into_iter().for_each(&mut write);
    assert_eq!(std::iter::from_fn(|| watcher.try_recv().ok()).count(), 3);
    assert!(matches!(watcher.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Disconnected)));
}

#[test]
fn a_slow_watcher_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut watcher = store.subscribe("things", all(|_| Some(View::Modified)));
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
fn what_waits_for_a_watcher_is_not_parsed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut views: Vec<_> = [View::Added, View::Left]
        .map(|view| store.subscribe("things", all(move |change| change.before.as_ref().map(|_| view))))
        .into();
    let old = store.write("things", object("x", "0"), None, None).unwrap();
    let new = store.write("things", object("x", "1"), Some(&old), None).unwrap();
    let told =
        |views: &mut Vec<Subscription>| views.iter_mut().map(|view| view.try_recv().unwrap()).collect::<Vec<_>>();
    let told = told(&mut views);
    assert!(told.iter().all(|told| told.object.value.get().is_none() && told.rev == new.rev));
    assert_eq!(told[0].object.value(), new.value());
    let mut left = old.value().clone();
    left.set_at(&["metadata", "resourceVersion"], new.rev.to_string().into());
    assert_eq!(told[1].object.value(), &left, "what it was, at the revision at which it left");
}

#[test]
fn unwritten_object_has_its_bytes_and_revision() {
    let value = json!({"metadata": {"name": "x", "namespace": "a", "resourceVersion": "7"}});
    let stored = Stored::unwritten(value.clone());
    assert_eq!((stored.rev, stored.key.name.as_str(), stored.value()), (7, "x", &value));
    assert_eq!(stored.body, value.to_string());
}

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

fn lease(name: &str, holder: &str, time: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": name}, "spec": {"holderIdentity": holder, "renewTime": time}})
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

#[test]
fn the_history_is_bounded_in_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let large = "x".repeat(100 << 10);
    let mut stored = store.write("things", object("x", &large), None, None).unwrap();
    let first = stored.rev;
    for _ in 0..100 {
        stored = store.write("things", object("x", &large), Some(&stored), None).unwrap();
        assert!(!store.past.is_too_large(&HISTORY));
    }
    let kept: i64 = store.conn.query_row("SELECT sum(length(before)) FROM changes", [], |row| row.get(0)).unwrap();
    assert!(kept > 500 << 10 && kept <= 1 << 20, "{kept}");
    assert!(store.knows("things", first).is_err());
    assert_eq!(store.knows("things", stored.rev - 5), Ok(()));
    assert_eq!(store.since("things", None, (stored.rev - 5, u64::MAX / 2), Most::items(1000)).unwrap().0.len(), 5);
}

/// A state file with a copy; returns what was written before the copy and after it.
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
    let other = store.write("secrets", object("other", "1"), None, None).unwrap();
    store.tick();
    let began = Instant::now();
    while !dir.path().join("api.db.copy").exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "no copy");
        std::thread::sleep(Duration::from_millis(5));
    }
    for (storage, gone) in [("nodes", &node), ("secrets", &token), ("secrets", &other)] {
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

#[test]
fn a_namespace_tells_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    assert!(store.storages_in("a").unwrap().is_empty());
    for (storage, namespace) in [("z", "a"), ("b", "a"), ("c", "other"), (LEASES, "a"), ("d", "")] {
        let mut object = object(&format!("{storage}-{namespace}"), "1");
        object.set_at(&["metadata", "namespace"], namespace.into());
        store.write(storage, object, None, None).unwrap();
    }
    assert_eq!(store.storages_in("a").unwrap(), ["b", LEASES, "z"]);
    let key = ObjectKey { namespace: "a".into(), name: "z-a".into() };
    let last = store.get("z", &key).unwrap().unwrap();
    store.delete("z", &last).unwrap();
    assert_eq!(store.storages_in("a").unwrap(), ["b", LEASES]);
}
