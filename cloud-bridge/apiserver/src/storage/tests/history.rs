//! Reads of the history, and its limits.

use super::*;
use crate::storage::history::CHANGES;

/// Reads all things as they were at `rev`, this many bytes at a time: the number of pages, and the names.
fn pages_of(store: &Store, rev: u64, bytes: usize) -> (usize, Vec<String>) {
    let most = Most { items: 1000, bytes };
    let (mut after, mut pages, mut seen) = (None, 0, Vec::new());
    loop {
        let page = store.list_at("things", None, rev, after.as_ref(), most, &|_| true).unwrap();
        seen.extend(page.items.iter().map(|one| one.key.name.clone()));
        pages += 1;
        after = page.next;
        if after.is_none() {
            return (pages, seen);
        }
    }
}

/// Steps of SQLite in walking over changes, since the last reset.
fn steps(store: &Store, reset: bool) -> i32 {
    let statement = store.conn.prepare_cached(snapshot::EVERYWHERE[1]).unwrap();
    let status = rusqlite::StatementStatus::VmStep;
    if reset { statement.reset_status(status) } else { statement.get_status(status) }
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
fn changes_that_a_page_does_not_need_cost_no_look_into_their_table() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    for changes in [snapshot::EVERYWHERE[1], snapshot::IN_NAMESPACE[1]] {
        let mut plan = store.conn.prepare(&format!("EXPLAIN QUERY PLAN {changes}")).unwrap();
        let plan: Vec<String> =
            plan.query_map(["", "", ""], |row| row.get("detail")).unwrap().map(Result::unwrap).collect();
        assert!(matches!(plan.as_slice(), [one] if one.contains("USING COVERING INDEX changes_key")), "{plan:?}");
    }
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
fn changes_of_others_are_walked_over_without_what_they_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir);
    let mut statement = store.conn.prepare(&format!("EXPLAIN {CHANGES}")).unwrap();
    let steps = statement.query_map([0, 10], |row| Ok((row.get("opcode")?, row.get("p2")?))).unwrap();
    let steps: Vec<(String, i64)> = steps.map(Result::unwrap).collect();
    // The columns of `changes` in order: `kind` is the fifth, and the last is `before`.
    let reads = |column: i64| steps.contains(&("Column".to_owned(), column));
    assert!(reads(4) && !reads(6), "{steps:?}");
}

#[test]
fn bodies_of_objects_made_since_count_for_a_page_of_the_past() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    store.write("things", object("a", "1"), None, None).unwrap();
    let rev = store.revision();
    let large = "x".repeat(4 << 10);
    for at in 0..20 {
        store.write("things", object(&format!("b{at:02}"), &large), None, None).unwrap();
    }
    store.write("things", object("c", "1"), None, None).unwrap();
    let (pages, seen) = pages_of(&store, rev, 16 << 10);
    assert_eq!(seen, ["a"], "the past");
    assert!((5..=8).contains(&pages), "a page reads four or five of them: {pages}");
}

#[test]
fn page_of_the_past_walks_over_a_limited_number_of_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut hot = store.write("things", object("a", "1"), None, None).unwrap();
    for _ in 0..100 {
        hot = store.write("things", object("a", "2"), Some(&hot), None).unwrap();
    }
    for at in 0..100 {
        let brief = store.write("things", object(&format!("b{at:02}"), "1"), None, None).unwrap();
        store.delete("things", &brief).unwrap();
    }
    store.write("things", object("c", "1"), None, None).unwrap();
    let rev = store.revision();
    store.write("others", object("a", "1"), None, None).unwrap();
    let (pages, seen) = pages_of(&store, rev, 2 << 10);
    assert_eq!(seen, ["a", "c"], "each once");
    assert!((4..=8).contains(&pages), "about sixty changes a page: {pages}");
}

#[test]
fn page_of_the_past_ends_within_the_changes_of_one_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let mut hot = store.write("things", object("a", "1"), None, None).unwrap();
    store.write("things", object("b", "1"), None, None).unwrap();
    let early = store.revision();
    for _ in 0..1000 {
        hot = store.write("things", object("a", "2"), Some(&hot), None).unwrap();
    }
    let late = store.revision();
    store.write("things", object("c", "1"), None, None).unwrap();
    for (rev, data) in [(early, "1"), (late, "2")] {
        steps(&store, true);
        let most = Most { items: 1000, bytes: 2 << 10 };
        let page = store.list_at("things", None, rev, None, most, &|_| true).unwrap();
        assert_eq!((page.items.len(), page.items[0].value()["data"].as_str()), (1, Some(data)));
        let walked = steps(&store, false);
        assert!(walked < 2000, "{walked} steps for less than a hundred changes");
        assert_eq!(pages_of(&store, rev, 2 << 10), (2, vec!["a".to_owned(), "b".to_owned()]));
    }
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
    let sql = format!("SELECT sum({}) FROM changes", bodies::length("changes.before"));
    let kept: i64 = store.conn.query_row(&sql, [], |row| row.get(0)).unwrap();
    assert!(kept > 500 << 10 && kept <= 1 << 20, "{kept}");
    assert!(store.knows("things", first).is_err());
    assert_eq!(store.knows("things", stored.rev - 5), Ok(()));
    assert_eq!(store.since("things", None, (stored.rev - 5, u64::MAX / 2), Most::items(1000)).unwrap().0.len(), 5);
}
