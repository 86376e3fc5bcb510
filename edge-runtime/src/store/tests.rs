//! The store against real SQLite files.

use std::path::PathBuf;
use std::time::Duration;

use edge_protocol::message::{Object, ObjectDigest, ObjectKey, Report};
use serde_json::json;

use super::*;
use crate::store::image_record::{ImageConfig, ImageRecord};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn open(path: &Path) -> Store {
    let opened = Store::open(path).expect("opens");
    assert!(opened.quarantined.is_none(), "{:?}", opened.quarantined);
    opened.store
}

fn config_map(name: &str, uid: &str) -> Object {
    let key = ObjectKey { kind: "ConfigMap".into(), namespace: "default".into(), name: name.into() };
    Object { digest: ObjectDigest { key, uid: uid.into(), digest: "d".into() }, body: json!({"data": {"a": "b"}}) }
}

fn status(uid: &str, phase: &str) -> Report {
    Report::PodStatus {
        namespace: "default".into(),
        name: "p".into(),
        uid: uid.into(),
        status: json!({ "phase": phase }),
    }
}

#[test]
fn facts_and_objects_survive_reopening() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let object = config_map("settings", "u1");
    open(&path)
        .write_durable(|writer| {
            writer.put_object(&object)?;
            writer.set_fact(Fact::LastSequence, "7")
        })
        .expect("commits");
    let store = open(&path);
    assert_eq!(store.fact(Fact::LastSequence).expect("reads").as_deref(), Some("7"));
    assert_eq!(store.object("ConfigMap", "default", "settings").expect("reads"), Some(object.body.clone()));
    assert_eq!(store.held().expect("reads"), vec![object.digest]);
}

#[test]
fn a_tombstone_hits_only_its_uid() {
    let mut store = Store::in_memory().expect("opens");
    let (old, new) = (config_map("settings", "old"), config_map("settings", "new"));
    store.write(|writer| writer.put_object(&new)).expect("commits");
    store.write(|writer| writer.delete_object(&old.digest.key, "old")).expect("commits");
    assert_eq!(store.held().expect("reads").len(), 1);
    store.write(|writer| writer.delete_object(&new.digest.key, "new")).expect("commits");
    assert!(store.held().expect("reads").is_empty());
}

#[test]
fn a_failed_transaction_leaves_nothing() {
    let mut store = Store::in_memory().expect("opens");
    let failed = store.write(|writer| {
        writer.put_object(&config_map("settings", "u"))?;
        Err::<(), _>(StoreError::Io { path: PathBuf::new(), source: std::io::Error::other("disk") })
    });
    assert!(failed.is_err());
    assert!(store.held().expect("reads").is_empty());
}

#[test]
fn late_ack_of_an_old_status_keeps_the_newest() {
    let mut store = Store::in_memory().expect("opens");
    let first = store.write(|writer| writer.report(&status("u", "Pending"))).expect("commits");
    let second = store.write(|writer| writer.report(&status("u", "Running"))).expect("commits");
    store.write(|writer| writer.acknowledged(first)).expect("commits");
    let rows = store.outbox().expect("reads");
    assert_eq!(rows, vec![OutboxRow { id: second, report: status("u", "Running") }]);
    store.write(|writer| writer.acknowledged(second)).expect("commits");
    assert!(store.outbox().expect("reads").is_empty());
}

#[test]
fn mirrors_of_one_name_in_two_namespaces_are_both_reported() {
    let mut store = Store::in_memory().expect("opens");
    let mirror = |namespace: &str, image: &str| Report::MirrorPod {
        pod: json!({"metadata": {"namespace": namespace, "name": "web-node"}, "spec": {"image": image}}),
    };
    for (namespace, image) in [("a", "1"), ("b", "1"), ("a", "2")] {
        store.write(|writer| writer.report(&mirror(namespace, image))).expect("commits");
    }
    let reports: Vec<Report> = store.outbox().expect("reads").into_iter().map(|row| row.report).collect();
    assert_eq!(reports, [mirror("b", "1"), mirror("a", "2")], "only the newest of each");
}

#[test]
fn events_are_bounded_and_statuses_are_not_dropped_for_them() {
    let mut store = Store::in_memory().expect("opens");
    store
        .write(|writer| {
            writer.report(&status("u", "Running"))?;
            for number in 0..OUTBOX_LIMIT + 50 {
                writer.report(&Report::Event { event: json!({ "n": number }) })?;
            }
            Ok(())
        })
        .expect("commits");
    let rows = store.outbox().expect("reads");
    assert_eq!(i64::try_from(rows.len()), Ok(OUTBOX_LIMIT));
    assert_eq!(rows[0].report, status("u", "Running"));
    assert_eq!(rows.last().map(|row| &row.report), Some(&Report::Event { event: json!({ "n": OUTBOX_LIMIT + 49 }) }));
}

#[test]
fn g10_waiting_events_are_bounded_in_bytes_and_what_is_dropped_is_counted() {
    let mut store = Store::in_memory().expect("opens");
    let text = "x".repeat(10_000);
    let written = 300;
    store
        .write(|writer| {
            writer.report(&status("u", "Running"))?;
            for number in 0..written {
                writer.report(&Report::Event { event: json!({ "n": number, "text": text }) })?;
            }
            Ok(())
        })
        .expect("commits");
    let rows = store.outbox().expect("reads");
    let bytes: usize = rows.iter().map(|row| serde_json::to_string(&row.report).expect("is JSON").len()).sum();
    assert!(bytes < usize::try_from(OUTBOX_BYTES).expect("fits") + 40 * 10_100, "{bytes} bytes are kept");
    assert_eq!(rows[0].report, status("u", "Running"), "a status is never dropped");
    assert_eq!(
        rows.last().map(|row| row.report.clone()),
        Some(Report::Event { event: json!({"n": written - 1, "text": text}) })
    );
    let dropped: usize = store.fact(Fact::Dropped).expect("reads").expect("is counted").parse().expect("a number");
    assert_eq!(dropped + rows.len(), written + 1);
}

#[test]
fn g10_events_that_waited_too_long_go_and_a_boot_begins_their_time_anew() {
    let mut store = Store::in_memory().expect("opens");
    store
        .write(|writer| {
            writer.report(&status("u", "Running"))?;
            writer.report(&Report::Event { event: json!({ "n": 1 }) })?;
            writer.expire(5_000)?;
            writer.forget_waiting()?;
            writer.report(&Report::Event { event: json!({ "n": 2 }) })?;
            writer.expire(OUTBOX_TTL_S - 10)
        })
        .expect("commits");
    assert_eq!(store.outbox().expect("reads").len(), 3, "no clock that jumped can make them old");
    store.write(|writer| writer.expire(OUTBOX_TTL_S + 10)).expect("commits");
    let left: Vec<Report> = store.outbox().expect("reads").into_iter().map(|row| row.report).collect();
    assert_eq!(left, [status("u", "Running"), Report::Event { event: json!({ "n": 2 }) }]);
    assert_eq!(store.fact(Fact::Dropped).expect("reads").as_deref(), Some("1"));
}

#[test]
fn a_corrupt_file_is_set_aside_and_the_node_boots() {
    let folder = folder();
    let path = folder.path().join("store.db");
    std::fs::write(&path, b"this was a database until the power went".repeat(100)).expect("writes");
    let opened = Store::open(&path).expect("opens all the same");
    let Quarantined { aside, why, .. } = opened.quarantined.expect("tells");
    assert!(aside.exists() && !why.is_empty());
    assert!(opened.store.held().expect("reads").is_empty());
}

#[test]
fn damage_inside_the_file_is_found() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    for number in 0..200 {
        store.write(|writer| writer.put_object(&config_map(&format!("n{number}"), "u"))).expect("commits");
    }
    drop(store);
    let mut bytes = std::fs::read(&path).expect("reads");
    assert!(bytes.len() > 16384, "large enough to hurt: {}", bytes.len());
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0xa5);
    std::fs::write(&path, bytes).expect("writes");
    assert!(Store::open(&path).expect("opens all the same").quarantined.is_some());
}

/// Converts the store to one of a future program.
fn of_the_future(path: &Path, readable_from: usize) {
    let db = Connection::open(path).expect("opens");
    db.pragma_update(None, "user_version", 999).expect("sets");
    let more =
        "CREATE TABLE more (a TEXT); ALTER TABLE pods ADD COLUMN colour TEXT; ALTER TABLE facts ADD COLUMN b TEXT;";
    db.execute_batch(more).expect("adds");
    let fact = "INSERT OR REPLACE INTO facts (key, value) VALUES ('readable-from', ?1)";
    db.execute(fact, [readable_from.to_string()]).expect("sets");
}

#[test]
fn a_store_of_the_future_that_only_has_more_is_used_as_it_is() {
    let folder = folder();
    let path = folder.path().join("store.db");
    open(&path).write(|writer| writer.put_object(&config_map("settings", "u"))).expect("commits");
    of_the_future(&path, 3);
    let mut store = open(&path);
    store.write_durable(|writer| writer.put_object(&config_map("more", "u2"))).expect("commits");
    store.write(|writer| writer.set_fact(Fact::Cluster, "c")).expect("commits");
    assert_eq!(store.held().expect("reads").len(), 2);
    drop(store);
    let version: i64 =
        Connection::open(&path).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).expect("reads");
    assert_eq!(version, 999, "it is still the other's");
}

#[test]
fn different_store_of_a_newer_version_yields_to_the_older_copy() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    store.write(|writer| writer.put_object(&config_map("settings", "u"))).expect("commits");
    store.write(|writer| writer.set_fact(Fact::LastSequence, "7")).expect("commits");
    // As the migration of a later program does it.
    copy::keep_before_migration(&store.db, &path, 3).expect("copies");
    drop(store);
    of_the_future(&path, 900);
    let opened = Store::open(&path).expect("opens the copy");
    let Quarantined { aside, why, .. } = opened.quarantined.expect("tells");
    assert!(aside.exists() && why.contains("newer"), "{why}");
    assert_eq!(opened.store.held().expect("reads").len(), 1);
    assert!(opened.store.is_incomplete().expect("reads"));
    assert_eq!(opened.store.fact(Fact::LastSequence).expect("reads"), None);
    drop(opened.store);
    drop(open(&path));
}

/// Each schema as it was released: what older programs have left on devices. A file is never changed; a migration adds one.
const RELEASED: &[&str] = &[
    include_str!("released/1.sql"),
    include_str!("released/2.sql"),
    include_str!("released/3.sql"),
    include_str!("released/4.sql"),
    include_str!("released/5.sql"),
];

/// Every table's columns: name, type, whether it may be null, part of the key.
fn columns(db: &Connection) -> Vec<(String, String, String, bool, i64)> {
    let sql = "SELECT t.name, c.name, c.type, c.\"notnull\", c.pk FROM sqlite_schema t, pragma_table_info(t.name) c
        WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY 1, 2";
    let mut statement = db.prepare(sql).expect("prepares");
    let row = |row: &Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    statement.query_map([], row).expect("asks").map(|row| row.expect("reads")).collect()
}

#[test]
fn stores_of_every_released_schema_are_migrated() {
    let folder = folder();
    let newest = columns(&open(&folder.path().join("new.db")).db);
    assert_eq!(*schema::known().end(), RELEASED.len(), "a new schema is released: add released/N.sql");
    for (number, tables) in (1..).zip(RELEASED) {
        let path = folder.path().join(format!("{number}.db"));
        let old = Connection::open(&path).expect("opens");
        old.execute_batch(tables).expect("makes the tables");
        old.pragma_update(None, "user_version", number).expect("sets");
        old.execute("INSERT INTO objects VALUES ('ConfigMap', 'a', 'b', 'u', 'd', '{}')", []).expect("inserts");
        drop(old);
        let store = open(&path);
        assert_eq!(columns(&store.db), newest, "from schema {number}");
        assert_eq!(store.held().expect("reads").len(), 1, "from schema {number}");
    }
}

#[test]
fn an_old_store_is_copied_before_it_is_migrated() {
    let folder = folder();
    let path = folder.path().join("store.db");
    open(&path).write(|writer| writer.put_object(&config_map("settings", "u"))).expect("commits");
    let db = Connection::open(&path).expect("opens");
    db.execute_batch("DROP TABLE device_messages; DROP TABLE device_twins; ALTER TABLE outbox DROP COLUMN seen; PRAGMA user_version = 2")
        .expect("is an old one");
    drop(db);
    drop(open(&path));
    let copy = Connection::open(folder.path().join("store.db.schema-2")).expect("opens");
    let rows: i64 = copy.query_row("SELECT count(*) FROM objects", [], |row| row.get(0)).expect("reads");
    let version: i64 = copy.query_row("PRAGMA user_version", [], |row| row.get(0)).expect("reads");
    assert_eq!((rows, version), (1, 2));
}

#[test]
fn a_newer_schema_without_a_copy_is_refused_and_kept() {
    let folder = folder();
    let path = folder.path().join("store.db");
    drop(open(&path));
    of_the_future(&path, 900);
    let error = Store::open(&path).err().expect("refused").to_string();
    assert!(error.contains("newer") && error.contains("store.db"), "{error}");
    assert!(path.exists());
}

#[test]
fn g29_only_root_reads_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    store.write(|writer| writer.set_fact(Fact::Cluster, "c")).expect("commits");
    for name in ["store.db", "store.db-wal"] {
        let mode = std::fs::metadata(folder.path().join(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_moved_tag_leaves_its_old_image() {
    let mut store = Store::in_memory().expect("opens");
    let image = |id: &str| ImageRecord {
        id: id.into(),
        references: vec!["docker.io/library/a:latest".into()],
        config: ImageConfig::default(),
        layers: vec![format!("layer-of-{id}")],
        size: 1,
        pulled_at: 0,
        access: Default::default(),
    };
    store.write(|writer| writer.image_put(&image("one"))).expect("commits");
    store.write(|writer| writer.image_put(&image("two"))).expect("commits");
    let found = store.image_by_reference("docker.io/library/a:latest").expect("reads").expect("there");
    assert_eq!(found.id, "two");
    let old = store.image_by_reference("one").expect("reads").expect("still there by id");
    assert!(old.references.is_empty());
    assert_eq!(store.layers_in_use().expect("reads").len(), 2);
    store.write(|writer| writer.image_remove("two")).expect("commits");
    assert!(store.image_by_reference("docker.io/library/a:latest").expect("reads").is_none());
}

fn secret(name: &str, value: &str) -> Object {
    let key = ObjectKey { kind: "Secret".into(), namespace: "default".into(), name: name.into() };
    let digest = ObjectDigest { key, uid: format!("{name}-uid"), digest: format!("digest of {value}") };
    Object { digest, body: json!({"data": {"key": value}}) }
}

/// Whether any file of the store holds these bytes.
fn on_disk(folder: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(folder).expect("reads").map(|entry| entry.expect("reads").path());
    let mut texts = files.map(|file| std::fs::read(file).expect("reads"));
    texts.any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

#[test]
fn g29_secrets_stay_off_the_disk_when_asked_to() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    store.keep_secrets_in_memory(true).expect("moves");
    let (first, second, plain) = (secret("a", "topsecret-1"), secret("a", "topsecret-2"), config_map("m", "u"));
    for object in [&first, &second, &plain] {
        let put = |writer: &Writer<'_>| {
            writer.put_object(object)?;
            writer.set_fact(Fact::Stream, "s")?;
            writer.set_fact(Fact::LastSequence, "7")
        };
        store.write_durable(put).expect("commits");
    }
    assert_eq!(store.lookup("Secret", "default", "a"), Some(second.body.clone()));
    assert_eq!(store.held().expect("reads"), [plain.digest.clone(), second.digest.clone()]);
    let failed: Result<(), _> = store.write(|writer| {
        writer.put_object(&first)?;
        Err(StoreError::Io { path: PathBuf::new(), source: std::io::ErrorKind::Other.into() })
    });
    assert!(failed.is_err());
    assert_eq!(store.lookup("Secret", "default", "a"), Some(second.body.clone()), "as before the transaction");
    store.write(|writer| writer.put_object(&secret("b", "topsecret-3"))).expect("commits");
    store.write(|writer| writer.delete_object(&secret("b", "").digest.key, "b-uid")).expect("commits");
    assert_eq!(store.lookup("Secret", "default", "b"), None);
    drop(store);
    assert!(!on_disk(folder.path(), "topsecret") && on_disk(folder.path(), "\"a\":\"b\""));

    // Another start: it is known that there is a Secret, and the next connection must bring it.
    let mut store = open(&path);
    store.keep_secrets_in_memory(true).expect("opens");
    assert!(secrets::is_withheld(&store.lookup("Secret", "default", "a").expect("known")));
    let nobodys = ObjectDigest { digest: String::new(), ..second.digest.clone() };
    assert_eq!(store.held().expect("reads"), [plain.digest, nobodys]);
    assert_eq!(store.fact(Fact::LastSequence).expect("reads").as_deref(), Some(""));
    store.write(|writer| writer.put_object(&second)).expect("commits");
    assert_eq!(store.lookup("Secret", "default", "a"), Some(second.body.clone()));
    drop(store);

    // Switched off again: the same until the bodies have come, and then they are on disk.
    let mut store = open(&path);
    store.keep_secrets_in_memory(false).expect("opens");
    assert!(secrets::is_withheld(&store.lookup("Secret", "default", "a").expect("known")));
    store.write(|writer| writer.put_object(&second)).expect("commits");
    drop(store);
    assert_eq!(open(&path).lookup("Secret", "default", "a"), Some(second.body));
}

#[test]
fn g29_secrets_leave_the_disk_when_the_option_is_switched_on() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let (old, kept) = (secret("old", "topsecret-1"), secret("a", "topsecret-2"));
    let mut store = open(&path);
    for object in [&old, &kept] {
        store.write_durable(|writer| writer.put_object(object)).expect("commits");
    }
    store.write_durable(|writer| writer.delete_object(&old.digest.key, &old.digest.uid)).expect("commits");
    drop(store);
    assert!(on_disk(folder.path(), "topsecret"));
    let mut store = open(&path);
    store.keep_secrets_in_memory(true).expect("moves");
    assert!(!on_disk(folder.path(), "topsecret"), "not as a free page either");
    assert_eq!(store.lookup("Secret", "default", "a"), Some(kept.body));
    assert_eq!(store.held().expect("reads"), [kept.digest]);
}

#[test]
fn g29_logins_in_orders_stay_off_the_disk_too() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let order = |uid: &str, secrets: &[&str]| {
        let key = ObjectKey { kind: "Order".into(), namespace: String::new(), name: uid.into() };
        let digest = ObjectDigest { key, uid: uid.into(), digest: format!("digest of {uid}") };
        let body = json!({"job": {"kind": "ImagePrePullJob", "name": "j", "uid": uid}, "timeoutSeconds": 1,
            "work": {"prePull": {"images": ["a"], "secrets": secrets}}});
        Object { digest, body }
    };
    let mut store = open(&path);
    let before = order("before", &["topsecret-1"]);
    store.write_durable(|writer| writer.put_object(&before)).expect("commits");
    std::fs::write(folder.path().join("store.db.corrupt-0"), "topsecret-0").expect("written");
    store.keep_secrets_in_memory(true).expect("moves");
    assert_eq!(store.object("Order", "", "before").expect("reads"), Some(before.body));
    let after = order("after", &["topsecret-2"]);
    store.write_durable(|writer| writer.put_object(&after)).expect("commits");
    store.write_durable(|writer| writer.put_object(&order("plain", &[]))).expect("commits");
    assert_eq!(store.object("Order", "", "after").expect("reads"), Some(after.body));
    drop(store);
    assert!(!on_disk(folder.path(), "topsecret"), "in the store, its log, its copies or what was set aside");
    let mut store = open(&path);
    store.keep_secrets_in_memory(true).expect("opens");
    assert!(secrets::is_withheld(&store.lookup("Order", "", "after").expect("known")), "waits for the bridge");
    assert!(!secrets::is_withheld(&store.lookup("Order", "", "plain").expect("known")));
}

#[test]
fn g29_start_after_a_killed_one_erases_secrets_and_unfinished_copies() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    store.write_durable(|writer| writer.put_object(&secret("a", "topsecret-1"))).expect("commits");
    // Killed when it had moved the bodies, and not erased them.
    store.db.execute("UPDATE objects SET digest = '', body = ''", []).expect("updates");
    for left in [".copy", ".copy.part", ".schema-1.part", ".salvaging"] {
        std::fs::write(files::beside(&path, left), "topsecret-0").expect("written");
    }
    store.keep_secrets_in_memory(true).expect("erases");
    assert!(!on_disk(folder.path(), "topsecret"));
    drop(store);
    // Once, and again after a time without the option.
    for (in_memory, stays) in [(true, true), (false, true), (true, false)] {
        std::fs::write(files::beside(&path, ".copy"), "topsecret-0").expect("written");
        open(&path).keep_secrets_in_memory(in_memory).expect("opens");
        assert_eq!(on_disk(folder.path(), "topsecret"), stays, "{in_memory}");
    }
}

#[test]
fn a_new_store_may_be_opened_by_several_at_once() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("store.db");
        std::thread::scope(|scope| {
            let open = || Store::open_shared(&path).map(drop).map_err(|error| error.to_string());
            let all: Vec<_> = (0..6).map(|_| scope.spawn(open)).collect();
            for one in all {
                assert_eq!(one.join().expect("does not panic"), Ok(()));
            }
        });
    }
}

#[test]
fn locked_store_is_not_a_bad_disk() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    store.db.busy_timeout(Duration::ZERO).expect("a timeout");
    let other = Connection::open(&path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else has it");
    let error = store.write(|writer| writer.set_fact(Fact::LastSequence, "1")).expect_err("it is held");
    assert!(error.is_passing() && !error.is_of_disk() && !error.is_damage(), "{error}");
    other.execute_batch("ROLLBACK").expect("given up");
    store.write(|writer| writer.set_fact(Fact::LastSequence, "2")).expect("it is free");
}

#[test]
fn log_keeps_its_length_after_a_checkpoint() {
    let folder = folder();
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    let size = || std::fs::metadata(folder.path().join("store.db-wal")).expect("a log").len();
    let mut longest = 0;
    for number in 0..2500 {
        store.write(|writer| writer.set_fact(Fact::LastSequence, &number.to_string())).expect("room");
        assert!(size() >= longest, "write {number}: from {longest} to {} bytes", size());
        longest = size();
    }
    assert!(longest < 9 << 20, "{longest} bytes: it was not used again from its beginning");
}

/// On a real file system without one free byte: first the reserve is released, then the log is reused from its
/// beginning.
#[test]
#[allow(clippy::print_stderr)]
fn goes_on_where_the_disk_is_full() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: mounts need root");
        return;
    }
    let folder = folder();
    nix::mount::mount(Some("store-test"), folder.path(), Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=2m"))
        .expect("a small disk");
    let path = folder.path().join("store.db");
    let mut store = open(&path);
    let size = || std::fs::metadata(folder.path().join("store.db-wal")).expect("a log").len();
    for number in 0.. {
        store.write(|writer| writer.set_fact(Fact::LastSequence, &number.to_string())).expect("room");
        if size() > 256 << 10 {
            break;
        }
    }
    std::fs::write(Paths::reserve_beside(&path), vec![0; 64 << 10]).expect("room");
    // Stops at the last byte.
    let _ = std::fs::write(folder.path().join("filler"), vec![0; 4 << 20]);
    for number in 0..200 {
        let written = store.write(|writer| writer.set_fact(Fact::LastSequence, &number.to_string()));
        assert!(written.is_ok(), "write {number}: {written:?}");
    }
    assert!(!Paths::reserve_beside(&path).exists());
    let large = Object { body: json!({ "data": "x".repeat(2 << 20) }), ..config_map("large", "u2") };
    let error = store.write(|writer| writer.put_object(&large)).expect_err("no room at all");
    assert!(error.is_full(), "{error}");
    drop(store);
    assert_eq!(open(&path).fact(Fact::LastSequence).expect("reads").as_deref(), Some("199"));
    nix::mount::umount(folder.path()).expect("no longer in use");
}

fn waiting(store: &Store, rule: &str) -> Vec<String> {
    let (mut last, mut all) = (0, Vec::new());
    while let Some(message) = store.next_message(rule, last).expect("reads") {
        last = message.id;
        all.push(message.record);
    }
    all
}

#[test]
fn d06_oldest_messages_of_the_lowest_class_are_dropped_first() {
    let mut store = Store::in_memory().expect("opens");
    let put = |writer: &Writer<'_>, rule: &str, class, expires, text: &str| {
        writer.put_message(rule, class, expires, &format!("{text:>10}"))
    };
    let made = store.write(|writer| {
        for (rule, class, expires, text) in
            [("a", 5, 100, "a1"), ("b", 1, 100, "b1"), ("a", 5, 50, "a2"), ("b", 1, 100, "b2"), ("a", 9, 100, "a3")]
        {
            put(writer, rule, class, expires, text)?;
        }
        writer.drop_messages(0, 50)
    });
    assert_eq!(made.expect("commits"), 0, "there is room for all");
    let texts = |store: &Store, rule: &str| -> Vec<String> {
        waiting(store, rule).iter().map(|text| text.trim().to_owned()).collect()
    };
    assert_eq!(
        (texts(&store, "a"), texts(&store, "b")),
        (vec!["a1".into(), "a2".into(), "a3".into()], vec!["b1".into(), "b2".into()])
    );
    let mut drop_some = |now, most| store.write(|writer| writer.drop_messages(now, most)).expect("commits");
    assert_eq!(drop_some(0, 45), 1);
    assert_eq!(drop_some(50, 45), 1, "its time is over");
    assert_eq!((texts(&store, "a"), texts(&store, "b")), (vec!["a1".into(), "a3".into()], vec!["b2".to_owned()]));
    let dropped = store.write(|writer| writer.drop_messages(0, 15)).expect("commits");
    assert_eq!((dropped, texts(&store, "a"), texts(&store, "b")), (2, vec!["a3".to_owned()], vec![]));
    assert_eq!(store.rules_with_messages().expect("reads"), ["a"]);
    store.write(|writer| writer.forget_messages_of("a")).expect("commits");
    assert_eq!(waiting(&store, "a"), [] as [&str; 0]);
    // Numbers are never reused: a message on its way would be confused with another.
    store.write(|writer| put(writer, "a", 0, 1, "x")).expect("commits");
    assert_eq!(store.next_message("a", 0).expect("reads").map(|message| message.id), Some(6));
}
