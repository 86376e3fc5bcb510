//! Damage of every page of a real store in turn.

use std::collections::BTreeMap;

use edge_protocol::message::{Object, ObjectDigest, ObjectKey, Report};
use jiff::Timestamp;
use serde_json::json;

use super::btree::Row;
use super::pages::PAGE;
use super::*;
use crate::pod::clock::{Mono, Now};
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::token::{Held, Wanted};
use crate::store::Store;
use crate::store::image_record::ImageRecord;

fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

fn object(kind: &str, number: usize, size: usize) -> Object {
    let key = ObjectKey { kind: kind.into(), namespace: "default".into(), name: format!("n{number}") };
    let digest = ObjectDigest { key, uid: uid(number), digest: format!("digest {number}") };
    Object { digest, body: json!({"metadata": {"name": number, "uid": uid(number)}, "data": "x".repeat(size)}) }
}

/// A store after some weeks: rows of all sizes, deleted rows, some rows in the log only.
fn lived_in(path: &Path) -> Store {
    let now = Now { wall: Timestamp::UNIX_EPOCH, mono: Mono(7), boot_id: "boot".into() };
    let mut store = Store::open(path).expect("opens").store;
    let held = Held { token: "t".repeat(900), issued: Timestamp::UNIX_EPOCH, expires: Timestamp::UNIX_EPOCH };
    let wanted = Wanted { audience: String::new(), seconds: 3607 };
    for round in 0..3 {
        for number in 0..30 {
            let pod = PodRecord::new(&uid(number), "default", &format!("n{number}"), PodSource::Api, &now);
            let image = ImageRecord {
                id: format!("sha256:{number:064}"),
                references: vec![format!("docker.io/library/a:{number}")],
                config: Default::default(),
                layers: vec![format!("sha256:{number:064}")],
                size: 1,
                pulled_at: round,
                access: Default::default(),
            };
            let written = store.write(|writer| {
                writer.put_object(&object("Pod", number, 40 * number))?;
                writer.put_object(&object("ConfigMap", number, 700 * number))?;
                writer.put_pod(&pod)?;
                if number % 3 == 0 {
                    writer.put_manifest(&uid(number), &object("Pod", number, 100 * number).body)?;
                }
                writer.put_token(&uid(number), &wanted, &held)?;
                let record = json!({"twins": {"temp": "z".repeat(90 * number)}}).to_string();
                writer.keep_device(&uid(number), &record, 1_700_000_000_000 + image.pulled_at)?;
                writer.put_message(
                    &uid(number),
                    3,
                    image.pulled_at,
                    &json!({"payload": "m".repeat(70 * number)}).to_string(),
                )?;
                writer.image_put(&image)?;
                writer.report(&Report::Event { event: json!({"n": number, "text": "y".repeat(150 * number)}) })?;
                writer.set_fact(Fact::Cluster, &format!("cluster {round}"))?;
                writer.set_fact(Fact::LastSequence, "7")
            });
            written.expect("commits");
        }
        if round == 1 {
            // Pages that are free hold their old rows.
            for number in 0..25 {
                let gone = object("ConfigMap", number, 0).digest;
                let done = store.write(|writer| {
                    writer.delete_object(&gone.key, &gone.uid)?;
                    writer.acknowledged(u64::try_from(number).expect("small"))
                });
                done.expect("commits");
            }
        }
        if round < 2 {
            store.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written out");
        }
    }
    for number in 10..18 {
        let done = store.write(|writer| {
            writer.delete_object(&object("ConfigMap", number, 0).digest.key, &uid(number))?;
            writer.delete_object(&object("Pod", number, 0).digest.key, &uid(number))?;
            writer.forget_pod(&uid(number))
        });
        done.expect("commits");
    }
    store
}

/// The files as a power cut leaves them.
fn snapshot(path: &Path) -> (Vec<u8>, Vec<u8>) {
    (std::fs::read(path).expect("reads"), std::fs::read(beside(path, "-wal")).expect("reads"))
}

fn rows_of(path: &Path) -> Vec<Row> {
    let pages = Pages::open(path, &beside(path, "-wal")).expect("opens");
    let mut all = Vec::new();
    btree::rows(&pages, &mut |row| all.push(row));
    all
}

/// Intact rows by content, with their pages.
fn found(path: &Path) -> BTreeMap<String, Vec<u32>> {
    let named = |row: Row| Some((row.pages.clone(), Found::of(row)?));
    rows_of(path).into_iter().filter_map(named).map(|(pages, found)| (format!("{found:?}"), pages)).collect()
}

/// Row counts of all tables, and their texts' sum, as SQL has them.
fn counts(db: &Connection) -> Vec<i64> {
    ["facts", "objects", "pods", "images", "image_references", "tokens", "outbox", "device_twins", "device_messages"]
        .iter()
        .map(|table| db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("counts"))
        .collect()
}

#[test]
fn a_sound_store_is_read_as_sql_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = lived_in(&path);
    let sums = |db: &Connection| -> Vec<i64> {
        let of = |sql: &str| db.query_row(sql, [], |row| row.get(0)).expect("sums");
        [
            "sum(length(body)) FROM objects",
            "sum(length(record)) + sum(length(manifest)) FROM pods",
            "sum(length(report)) + sum(id) FROM outbox",
            "sum(length(record)) FROM tokens",
            "sum(length(record)) + sum(written) FROM device_twins",
            "sum(length(rule)) + sum(length(record)) + sum(class) + sum(expires) + sum(bytes) FROM device_messages",
        ]
        .iter()
        .map(|what| of(&format!("SELECT {what}")))
        .collect()
    };
    let mut other = Connection::open_in_memory().expect("opens");
    schema::migrate(&mut other, Path::new("other")).expect("makes tables");
    let rows = fill(&mut other, &path).expect("fills");
    let (mut expected, got) = (counts(&store.db), counts(&other));
    // All rows except one that a new store writes itself: the oldest readable schema.
    assert_eq!(i64::try_from(rows), Ok(expected.iter().sum::<i64>() - 1));
    // One fact less, one more: where the stream was, and that the store is incomplete.
    assert_eq!((expected[0], got[0]), (3, 3));
    expected[0] = got[0];
    assert_eq!(got, expected);
    assert_eq!(sums(&other), sums(&store.db));
}

#[test]
fn damage_of_any_page_costs_the_rows_on_it_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = lived_in(&path);
    let (file, log) = snapshot(&path);
    let sound = found(&path);
    assert!(sound.len() > 150 && file.len() > 50 * PAGE && log.len() > PAGE, "{} {}", sound.len(), file.len());
    drop(store);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let pages = file.len() / PAGE;
    for page in 0..pages {
        // All zeros, and by turns noise, a bad sector, a flipped bit.
        for kind in [0, 1 + page % 3] {
            let (mut damaged, from) = (file.clone(), page * PAGE);
            let at = from + usize::try_from(noise() % (PAGE as u64)).expect("small");
            match kind {
                0 => damaged[from..from + PAGE].fill(0),
                1 => damaged[from..from + PAGE].fill_with(|| noise().to_le_bytes()[0]),
                2 => damaged[from..from + 512].fill(0xff),
                _ => damaged[at] ^= 1 << (noise() % 8),
            }
            std::fs::write(&path, &damaged).expect("written");
            std::fs::write(beside(&path, "-wal"), &log).expect("written");
            let left = found(&path);
            let number = u32::try_from(page + 1).expect("small");
            for (row, on) in &sound {
                let lost = !on.contains(&number) && !left.contains_key(row);
                assert!(!lost, "page {number}, kind {kind}: lost {row:.100} of pages {on:?}");
            }
        }
    }
}

#[test]
fn a_store_with_any_page_damaged_opens_with_what_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = lived_in(&path);
    store.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).expect("written out");
    let expected: i64 = counts(&store.db).iter().sum();
    let file = std::fs::read(&path).expect("reads");
    drop(store);
    let mut made_anew = 0;
    for page in 0..file.len() / PAGE {
        let mut damaged = file.clone();
        damaged[page * PAGE..(page + 1) * PAGE].fill(0x5a);
        for extra in ["-wal", "-shm"] {
            remove(&beside(&path, extra)).expect("removed");
        }
        std::fs::write(&path, &damaged).expect("written");
        let opened = Store::open(&path).expect("opens all the same");
        let Some(quarantined) = opened.quarantined else { continue };
        made_anew += 1;
        assert!(opened.store.is_incomplete().expect("reads"));
        assert_eq!(opened.store.fact(Fact::LastSequence).expect("reads"), None, "the next list is a whole one");
        let left: i64 = counts(&opened.store.db).iter().sum();
        assert!(left >= expected - 60 && quarantined.aside.exists(), "page {page}: {left} of {expected}");
        assert!(opened.store.held().expect("reads").iter().all(|object| object.digest.is_empty()));
        drop(opened.store);
        assert!(Store::open(&path).expect("opens").quarantined.is_none(), "once");
    }
    assert!(made_anew > file.len() / PAGE / 2, "{made_anew}");
    assert_eq!(numbers(&path).len(), KEPT, "no more damaged stores are kept");
}

#[test]
fn a_file_cut_short_anywhere_opens() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    drop(lived_in(&path));
    let file = std::fs::read(&path).expect("reads");
    for end in (1..file.len()).step_by(PAGE * 3 - 1000) {
        std::fs::write(&path, &file[..end]).expect("written");
        Store::open(&path).expect("opens all the same").store.held().expect("reads");
        for extra in ["-wal", "-shm"] {
            remove(&beside(&path, extra)).expect("removed");
        }
    }
}

#[test]
fn unreadable_rows_come_from_the_copy_except_ended_pods() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let store = lived_in(&path);
    assert!(store.copy().expect("copies") > 10 * PAGE as u64);
    let before = counts(&store.db);
    drop(store);
    // The last one has ended: its folder is empty.
    for (number, inside) in [(0, "etc"), (1, "etc"), (2, "etc"), (3, "")] {
        std::fs::create_dir_all(folder.path().join("pods").join(uid(number)).join(inside)).expect("a folder");
    }
    std::fs::write(&path, vec![0x5a; 20 * PAGE]).expect("written");
    let opened = Store::open(&path).expect("opens all the same");
    let store = opened.store;
    assert_eq!(opened.quarantined.map(|q| q.rows > 40), Some(true));
    let (pods, bad) = store.pods().expect("reads");
    let uids: Vec<String> = pods.into_iter().map(|pod| pod.record.uid).collect();
    assert_eq!((uids, bad.len()), (vec![uid(0), uid(1), uid(2)], 0));
    assert_eq!(counts(&store.db)[3..5], before[3..5], "images");
    assert_eq!(store.fact(Fact::Cluster).expect("reads").as_deref(), Some("cluster 2"));
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(copy_of(&path)).expect("a copy").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_power_cut_while_the_new_store_takes_its_place_leaves_one_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    drop(lived_in(&path));
    let file = std::fs::read(&path).expect("reads");
    // Made and not moved yet; and with the damaged one out of the way already.
    for moved in [false, true] {
        std::fs::write(beside(&path, ".salvaged"), &file).expect("written");
        if moved {
            std::fs::remove_file(&path).expect("removed");
        } else {
            std::fs::write(&path, vec![1; PAGE]).expect("written");
            std::fs::write(beside(&path, "-wal"), vec![1; PAGE]).expect("written");
        }
        let opened = Store::open(&path).expect("opens");
        assert!(opened.quarantined.is_some());
        assert!(opened.store.held().expect("reads").len() > 20);
        drop(opened);
        assert!(Store::open(&path).expect("opens").quarantined.is_none());
    }
    // An incomplete one is ignored.
    std::fs::write(beside(&path, ".salvaging"), b"half").expect("written");
    assert!(Store::open(&path).expect("opens").quarantined.is_none());
}
