//! Layers are there whole or not at all.

use std::time::Duration;

use super::*;
use crate::image::digest::sha256;
use crate::image::rootfs::{mount_rootfs, unmount_rootfs};

fn node() -> (tempfile::TempDir, Layers) {
    let temp = tempfile::tempdir().unwrap();
    let layers = Layers::new(&Paths::new(temp.path()));
    (temp, layers)
}

fn layer(content: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    builder.append_data(&mut header, "etc/file", content.as_bytes()).unwrap();
    builder.into_inner().unwrap()
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_layer_is_there_whole_or_not_at_all() {
    let (_temp, layers) = node();
    let _lock = layers.lock().unwrap();
    let tar = layer("content");
    let id = sha256(&tar);
    assert!(!layers.has(&id));
    let wrong = layers.add(&sha256(b"other"), &tar[..], &Limits::default(), "reg/app:v1").unwrap_err();
    assert!(wrong.to_string().contains("reg/app:v1"), "{wrong}");
    for cut in [0, 300, tar.len() - 1024] {
        assert!(layers.add(&id, &tar[..cut], &Limits::default(), "x").is_err(), "cut at {cut}");
    }
    assert_eq!((entries(&layers.layers), entries(&layers.incoming)), (0, 1), "only the lock file");
    layers.add(&id, &tar[..], &Limits::default(), "x").unwrap();
    assert!(layers.has(&id) && layers.verify(&id));
    assert_eq!(layers.list().unwrap(), [id]);
}

#[test]
fn damage_is_found_and_repaired_by_adding_again() {
    let (_temp, layers) = node();
    let _lock = layers.lock().unwrap();
    let tar = layer("content");
    let id = sha256(&tar);
    let add = || layers.add(&id, &tar[..], &Limits::default(), "x").unwrap();
    add();
    let dir = layer_dir(&layers.layers, &id).unwrap();
    // A power cut on a medium that lies leaves files without content.
    fs::write(dir.join("etc/file"), "").unwrap();
    assert!(layers.has(&id) && !layers.verify(&id));
    add();
    assert!(layers.verify(&id));
    fs::write(layers.counts_file(&id), "").unwrap();
    assert!(!layers.has(&id));
    add();
    fs::remove_dir_all(dir).unwrap();
    assert!(!layers.has(&id) && !layers.verify(&id));
    add();
    assert!(layers.has(&id));
}

#[test]
fn what_is_retired_or_half_made_is_cleared_and_downloads_stay() {
    let (_temp, layers) = node();
    let lock = layers.lock().unwrap();
    assert!(layers.try_lock().unwrap().is_none());
    drop(lock);
    let _lock = layers.try_lock().unwrap().unwrap();
    let tar = layer("content");
    let id = sha256(&tar);
    layers.add(&id, &tar[..], &Limits::default(), "x").unwrap();
    layers.retire(&id).unwrap();
    layers.retire(&id).unwrap();
    assert!(!layers.has(&id) && layers.list().unwrap().is_empty());
    fs::create_dir_all(layers.incoming.join("layer-00/etc")).unwrap();
    fs::write(layers.incoming.join("blob-00"), "part").unwrap();
    layers.empty_incoming(Duration::from_secs(60)).unwrap();
    assert_eq!(entries(&layers.incoming), 2, "lock and download");
    layers.empty_incoming(Duration::ZERO).unwrap();
    assert_eq!(entries(&layers.incoming), 1);
}

/// What the specification says of changesets, seen through the mount: the reason for all of it.
#[test]
fn stacked_layers_show_what_the_image_means() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: whiteouts and mounts need root");
        return;
    }
    let (temp, layers) = node();
    let _lock = layers.lock().unwrap();
    let below = ["dir/old", "opaque/old", "gone/old", "file", "replaced/old"];
    let above = ["dir/new", "opaque/.wh..wh..opq", "opaque/new", ".wh.gone", "file", "replaced"];
    let mut ids = Vec::new();
    for names in [&below[..], &above[..]] {
        let mut builder = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_size(4);
            builder.append_data(&mut header, name, &b"text"[..]).unwrap();
        }
        let tar = builder.into_inner().unwrap();
        layers.add(&sha256(&tar), &tar[..], &Limits::default(), "x").unwrap();
        ids.push(sha256(&tar));
    }
    let at = |name: &str| temp.path().join(name);
    for name in ["upper", "work", "target"] {
        fs::create_dir(at(name)).unwrap();
    }
    mount_rootfs(&layers.layers, &ids, &at("upper"), &at("work"), &at("target"), None).unwrap();
    let shown = |dir: &str| {
        let mut names: Vec<_> = fs::read_dir(at("target").join(dir)).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let seen = (shown(""), shown("dir"), shown("opaque"), at("target/replaced").is_file());
    unmount_rootfs(&at("target")).unwrap();
    assert_eq!(seen.0, ["dir", "file", "opaque", "replaced"]);
    assert_eq!((seen.1, seen.2, seen.3), (vec!["new".into(), "old".into()], vec!["new".into()], true));
}
