//! Expiry of objects, and counts of a namespace.

use std::time::Instant;

use rusqlite::params;
use sampan_json::SetField;

use super::*;
use crate::storage::write::REPLACE;

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
    // A deletion makes room, and existing objects count after a restart.
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
fn unwritten_object_has_its_bytes_and_revision() {
    let value = json!({"metadata": {"name": "x", "namespace": "a", "resourceVersion": "7"}});
    let stored = Stored::unwritten(value.clone());
    assert_eq!((stored.rev, stored.key.name.as_str(), stored.value()), (7, "x", &value));
    assert_eq!(stored.body, value.to_string());
}

#[test]
fn update_writes_only_what_has_changed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir);
    let owned = |data: &str, owner: &str| {
        let mut object = object("x", data);
        object.set_at(&["metadata", "ownerReferences"], json!([{ "uid": owner }]));
        object
    };
    let owns = |store: &Store, owner: &str| store.dependents(owner, None, 10).unwrap().len();
    let first = store.write("things", owned("1", "o"), None, None).unwrap();
    let before = store.conn.total_changes();
    let second = store.write("things", owned("2", "o"), Some(&first), None).unwrap();
    assert_eq!((store.conn.total_changes() - before, owns(&store, "o")), (2, 1), "the object and its change");
    let third = store.write("things", owned("3", "p"), Some(&second), None).unwrap();
    assert_eq!((owns(&store, "o"), owns(&store, "p")), (0, 1));
    let mut other = owned("4", "p");
    other.set_at(&["metadata", "uid"], "new".into());
    store.write("things", other, Some(&third), None).unwrap();
    assert!(store.by_uid("new").unwrap().is_some() && store.by_uid("uid-x").unwrap().is_none());

    let mut statement = store.conn.prepare(&format!("EXPLAIN {REPLACE}")).unwrap();
    let steps = statement.query_map(params!["things", "a", "x", 1, "body"], |row| row.get::<_, String>(1)).unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    assert!(steps.contains(&"Insert".to_owned()) && !steps.contains(&"IdxInsert".to_owned()), "{steps:?}");
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
