//! Which records there are after each step, and what is made of damaged ones.

use std::os::unix::fs::symlink;

use super::*;

fn record(handle: &str) -> Record {
    let text = str::to_owned;
    let (driver, volume, node) = (text("d.x"), text("pv"), text("n"));
    Record { driver, handle: text(handle), volume, node, inline: false, published: true }
}

fn target(pod: &str, block: bool) -> Target {
    Target::new(pod, "pv", block).expect("names")
}

#[test]
fn volume_is_used_until_its_last_record_goes() {
    let root = tempfile::tempdir().expect("temp dir");
    let (a, b) = (target("a", false), target("b", true));
    assert!(!is_used(root.path(), "d.x", "h", &a).expect("known"), "there is no folder yet");
    for target in [&a, &b] {
        write_target(root.path(), target, &record("h")).expect("written");
    }
    write_target(root.path(), &target("c", false), &record("other")).expect("written");
    assert_eq!(read_target(root.path(), &a).expect("read"), Some(record("h")));
    assert!(is_used(root.path(), "d.x", "h", &a).expect("known"), "by b");
    assert!(!is_used(root.path(), "d.y", "h", &a).expect("known"), "another driver has it");
    clear_target(root.path(), &b).expect("nothing is there");
    forget_target(root.path(), &b).expect("removed");
    assert!(!is_used(root.path(), "d.x", "h", &a).expect("known"));
    assert!(!root.path().join("pods/b").exists(), "no empty folder is left");
    forget_target(root.path(), &b).expect("it is removed");
    assert!(root.path().join(a.folder()).join(FILE).exists());
}

#[test]
fn damaged_record_keeps_all_volumes_staged() {
    let root = tempfile::tempdir().expect("temp dir");
    write_target(root.path(), &target("a", false), &record("h")).expect("written");
    std::fs::write(root.path().join(target("a", false).folder()).join(FILE), "{").expect("written");
    let why = is_used(root.path(), "d.x", "h", &target("b", false)).expect_err("unknown").to_string();
    assert!(why.contains("vol_data.json"), "{why}");
    // Links and files in `pods` do not count as pods.
    std::fs::remove_dir_all(root.path().join("pods/a")).expect("removed");
    symlink("/", root.path().join("pods/link")).expect("a link");
    std::fs::write(root.path().join("pods/file"), "").expect("a file");
    assert!(!is_used(root.path(), "d.x", "h", &target("b", false)).expect("known"));
    let link = target("link", false);
    assert!(write_target(root.path(), &link, &record("h")).is_err() && read_target(root.path(), &link).is_err());
}

#[test]
fn staged_volumes_are_found_and_removed() {
    let root = tempfile::tempdir().expect("temp dir");
    let mount = Staging::new("d.x", "h", "pv", false);
    let blocks = [Staging::new("d.x", "h", "pv1", true), Staging::new("d.x", "h", "pv2", true)];
    for staging in blocks.iter().chain([&mount]) {
        write_staging(root.path(), staging, &record("h")).expect("written");
    }
    write_staging(root.path(), &Staging::new("d.x", "g", "pv3", true), &record("g")).expect("written");
    assert_eq!(staged(root.path(), "d.x", "h").expect("read").len(), 3);
    let why = write_staging(root.path(), &Staging::new("d.x", "new", "pv1", true), &record("new"));
    assert!(why.is_err_and(|why| why.to_string().contains("another volume of this name")));
    assert_eq!(staged(root.path(), "d.x", "h").expect("read").len(), 3, "its record stays");
    assert!(staged(root.path(), "d.x", "x").expect("read").is_empty());
    // The folder where the block volume `data` is staged belongs to the driver, and holds no record.
    let foreign = Staging::new("d.x", "x", "data", true).path(root.path());
    std::fs::create_dir_all(&foreign).expect("a folder");
    std::fs::write(foreign.join(FILE), record("x").written()).expect("written");
    assert!(staged(root.path(), "d.x", "x").expect("read").is_empty());
    assert!(mount.path(root.path()).is_dir());
    // A driver may leave files where a block volume was staged; in a mounted one they would be the user's.
    std::fs::write(blocks[0].path(root.path()).join("device"), "").expect("a file");
    std::fs::write(mount.path(root.path()).join("data"), "").expect("a file");
    remove_staging(root.path(), &blocks[0]).expect("removed");
    assert!(remove_staging(root.path(), &mount).is_err());
    assert_eq!(staged(root.path(), "d.x", "h").expect("read").len(), 2);
    std::fs::remove_file(mount.path(root.path()).join("data")).expect("removed");
    remove_staging(root.path(), &mount).expect("removed");
    remove_staging(root.path(), &blocks[1]).expect("removed");
    assert!(staged(root.path(), "d.x", "h").expect("read").is_empty());
    assert_eq!(staged(root.path(), "d.x", "g").expect("read").len(), 1);
}

#[test]
fn volumes_of_a_node_have_a_limit() {
    let root = tempfile::tempdir().expect("temp dir");
    for pod in 0..MAX_TARGETS {
        let folder = root.path().join(target(&format!("p{pod}"), false).folder());
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(FILE), record("h").written()).expect("written");
    }
    let why = write_target(root.path(), &target("new", false), &record("h")).expect_err("too many").to_string();
    assert!(why.contains("1024 volumes"), "{why}");
    write_target(root.path(), &target("p0", false), &record("h")).expect("it is there already");
    assert_eq!(targets(root.path()).expect("within the limit").len(), MAX_TARGETS);
    // Two that were written at once.
    let folder = root.path().join(target("late", false).folder());
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(FILE), record("h").written()).expect("written");
    assert!(is_used(root.path(), "d.x", "h", &target("p0", false)).expect("known"));
}
