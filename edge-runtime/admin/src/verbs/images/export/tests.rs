//! Archives of images, read back by an import.

use edge_runtime::image::archive::Source;
use edge_runtime::image::digest::sha256;
use edge_runtime::image::gc::{Sweep, sweep};
use edge_runtime::image::import::Import;
use edge_runtime::image::limits::Limits;
use edge_runtime::image::platform::Wanted;
use edge_runtime::image::wants::Want;

use super::*;

/// A node's layers, and an image with twice the same layer.
fn node() -> (tempfile::TempDir, Layers, ImageRecord) {
    let temp = tempfile::tempdir().unwrap();
    let layers = Layers::new(&Paths::new(temp.path()));
    layers.prepare().unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(3);
    tar.append_data(&mut header, "bin/app", &b"abc"[..]).unwrap();
    let tar = tar.into_inner().unwrap();
    layers.add(&sha256(&tar), &tar[..], &Limits::default(), "x").unwrap();
    let config = ImageConfig {
        user: "7:8".into(),
        env: vec!["A=b".into()],
        cmd: vec!["/bin/app".into()],
        working_dir: "/srv".into(),
        stop_signal: Some("SIGQUIT".into()),
        volumes: vec!["/data".into()],
        created: Some("2026-01-01T00:00:00Z".into()),
        ..ImageConfig::default()
    };
    let record = ImageRecord {
        id: sha256(b"id"),
        references: vec![
            format!("docker.io/library/a@{}", sha256(b"manifest")),
            "docker.io/library/a:1".into(),
            "docker.io/library/a:2".into(),
        ],
        config,
        layers: vec![sha256(&tar), sha256(&tar)],
        size: 3,
        pulled_at: 0,
        access: Default::default(),
    };
    (temp, layers, record)
}

#[test]
fn exported_image_is_imported_as_it_was() {
    let (temp, layers, record) = node();
    let file = temp.path().join("a.tar");
    write(&file, &record, Some("docker.io/library/a:2"), &layers).unwrap();
    let other = Layers::new(&Paths::new(&temp.path().join("other")));
    other.prepare().unwrap();
    let source = Source::open(Some(&file), other.incoming().dir(), &Limits::default()).unwrap();
    let import = Import {
        layers: &other,
        wanted: &Wanted::here(),
        limits: &Limits::default(),
        name: None,
        now: 7,
        wants: &Wants::default(),
    };
    let found = import.run(&source).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].config, record.config);
    assert_eq!(found[0].references[0], "docker.io/library/a:2");
    assert_eq!(found[0].layers.len(), 2);
    let app = other.folder(&found[0].layers[1]).unwrap().join("bin/app");
    assert_eq!(fs::read(app).unwrap(), b"abc");
}

#[test]
fn layers_stay_while_they_are_exported() {
    let (_temp, layers, record) = node();
    let kept = keep(&layers, &record).unwrap();
    let remove = || sweep(&layers, || Ok(Default::default()), Sweep::SHORTEST).unwrap();
    remove();
    assert!(layers.verify(&record.layers[0]));
    drop(kept);
    remove();
    assert!(!layers.has(&record.layers[0]));
}

#[test]
fn note_of_a_killed_export_keeps_no_layers() {
    let (_temp, layers, record) = node();
    let want = Want { layers: record.layers.clone(), ..Want::default() };
    let note = layers.incoming().dir().join("want-export-1");
    fs::write(&note, serde_json::to_vec(&want).unwrap()).unwrap();
    sweep(&layers, || Ok(Default::default()), Sweep::USUAL).unwrap();
    assert!(!note.exists() && !layers.has(&record.layers[0]));
}

#[test]
fn only_a_regular_file_is_replaced() {
    let temp = tempfile::tempdir().unwrap();
    let [file, link] = ["a.tar", "link"].map(|name| temp.path().join(name));
    assert_eq!(is_free(&file, false), Ok(()));
    fs::write(&file, "a").unwrap();
    assert!(is_free(&file, false).is_err_and(|why| why.contains("--overwrite")));
    assert_eq!(is_free(&file, true), Ok(()));
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    for other in [temp.path(), link.as_path(), Path::new("/dev/null")] {
        for overwrite in [false, true] {
            assert!(is_free(other, overwrite).is_err_and(|why| why.contains("regular")), "{}", other.display());
        }
    }
}

#[test]
fn archive_has_the_tag_that_was_asked_for() {
    let (_temp, _layers, mut record) = node();
    assert_eq!(name(&record, "docker.io/library/a:2"), Some("docker.io/library/a:2"));
    assert_eq!(name(&record, "sha256:1"), Some("docker.io/library/a:1"));
    record.references.truncate(1);
    assert_eq!(name(&record, &record.references[0]), None, "the archive has another digest");
}
