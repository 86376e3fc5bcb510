//! Layers are there whole or not at all.

use std::fs::File;
use std::time::Duration;

use super::testing::{add, image, layer, node};
use super::*;
use crate::image::digest::sha256;
use crate::image::gc::{self, Sweep};
use crate::image::limits::Limits;
use crate::image::rootfs::{mount_rootfs, unmount_rootfs};
use crate::image::wants::{self, Wants};
use crate::store::image_record::Access;

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_layer_is_there_whole_or_not_at_all() {
    let (_temp, layers) = node();
    layers.prepare().unwrap();
    let tar = layer("content");
    let id = sha256(&tar);
    assert!(!layers.has(&id));
    let wrong = layers.add(&sha256(b"other"), &tar[..], &Limits::default(), "reg/app:v1").unwrap_err();
    assert!(wrong.to_string().contains("reg/app:v1"), "{wrong}");
    for cut in [0, 300, tar.len() - 1024] {
        assert!(layers.add(&id, &tar[..cut], &Limits::default(), "x").is_err(), "cut at {cut}");
    }
    assert_eq!((entries(&layers.layers), entries(layers.incoming.dir())), (0, 1), "only the lock file");
    layers.add(&id, &tar[..], &Limits::default(), "x").unwrap();
    assert!(layers.has(&id) && layers.verify(&id));
    assert_eq!(layers.list().unwrap(), [id]);
}

#[test]
fn damage_is_found_and_repaired_by_adding_again() {
    let (_temp, layers) = node();
    layers.prepare().unwrap();
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

fn usual(layers: &Layers, in_use: &[&str]) {
    sweep(layers, in_use, Sweep::USUAL);
}

fn sweep(layers: &Layers, in_use: &[&str], how: Sweep) {
    gc::sweep(layers, || Ok(in_use.iter().map(|layer| (*layer).to_owned()).collect()), how).unwrap();
}

#[test]
fn half_made_layers_of_the_dead_go_and_those_of_the_living_stay() {
    let (_temp, layers) = node();
    layers.prepare().unwrap();
    let at = |name: &str| layers.incoming.dir().join(name);
    fs::create_dir_all(at("layer-00/etc")).unwrap();
    fs::create_dir_all(at("gone-1-0/etc")).unwrap();
    fs::write(at("blob-00"), "part").unwrap();
    fs::write(at("anything"), "").unwrap();
    let claim = layers.incoming.claim_folder("layer-11").unwrap();
    let blob = layers.incoming.claim_file("blob-11").unwrap();
    fs::write(claim.path.join("file"), "").unwrap();
    usual(&layers, &[]);
    assert!(!at("layer-00").exists() && !at("gone-1-0").exists() && !at("anything").exists());
    assert!(at("blob-00").exists(), "a download waits for the next try");
    sweep(&layers, &[], Sweep::SHORTEST);
    assert!(!at("blob-00").exists() && blob.path.exists() && claim.path.join("file").exists());
    drop((claim, blob));
    // The next to work on it begins with nothing.
    let claim = layers.incoming.claim_folder("layer-11").unwrap();
    assert_eq!(entries(&claim.path), 0);
    drop(claim);
    sweep(&layers, &[], Sweep::SHORTEST);
    assert_eq!(entries(layers.incoming.dir()), 1, "only the lock file");
}

#[test]
fn a_layer_goes_only_when_nobody_may_want_it() {
    let (_temp, layers) = node();
    let ids: Vec<String> = ["used", "noted", "wanted", "orphan", "removed"].map(|text| add(&layers, text)).into();
    let [used, noted, wanted, orphan, removed] = [0, 1, 2, 3, 4].map(|n| ids[n].as_str());
    layers.put_record(&image(1, "reg/noted:1", &[noted]), true).unwrap();
    let gone = image(2, "reg/removed:1", &[removed, used]);
    layers.put_record(&gone, true).unwrap();
    let wants = Wants::default();
    wants.begin(&layers.incoming, &image(3, "", &[]).id, &[wanted.to_owned()], vec![1], Access::new()).unwrap();
    wants.brought(wanted);
    let left = || ids.iter().map(|id| layers.has(id)).collect::<Vec<_>>();
    // Old, by a correct clock and by one that was not yet set: without a shortage only deleted images go.
    for id in &ids {
        let file = File::options().write(true).open(layers.counts_file(id)).unwrap();
        file.set_modified(
            std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(if id == used { 5 } else { 4_000_000_000 }),
        )
        .unwrap();
    }
    usual(&layers, &[used]);
    assert_eq!(left(), [true; 5]);
    layers.drop_record(&gone).unwrap();
    // A collection that ended here goes on at the next occasion.
    usual(&layers, &[used]);
    assert_eq!(left(), [true, true, true, true, false], "shared layers stay");
    assert!(gc::has_leftovers(&layers, &[used.to_owned()].into()), "{orphan}");
    sweep(&layers, &[used], Sweep::SHORTEST);
    assert_eq!(left(), [true, true, true, false, false], "a pull under way keeps what it needs");
    drop(wants);
    sweep(&layers, &[used], Sweep::SHORT);
    assert!(layers.has(wanted), "and so does one that was cut short");
    assert_eq!(wants::all(&layers.incoming)[0].brought, [wanted]);
    sweep(&layers, &[used], Sweep::SHORTEST);
    assert_eq!(left(), [true, true, false, false, false]);
    assert!(!gc::has_leftovers(&layers, &[used.to_owned()].into()));
    assert_eq!(entries(layers.incoming.dir()), 1, "only the lock file");
}

#[test]
fn a_layer_is_proven_by_its_content() {
    let (_temp, layers) = node();
    let id = add(&layers, "content");
    let prove = |tar: &[u8]| layers.prove(&id, tar, &Limits::default(), "x");
    prove(&layer("content")).unwrap();
    assert!(prove(&layer("other")).unwrap_err().to_string().contains("announced as"));
    assert!(prove(&layer("content")[..512]).is_err());
}

/// What the specification says of changesets, seen through the mount: the reason for all of it.
#[test]
fn stacked_layers_show_what_the_image_means() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: whiteouts and mounts need root");
        return;
    }
    let (temp, layers) = node();
    layers.prepare().unwrap();
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
