//! `edge-runtime images export IMAGE FILE`: writes an image of this node into an OCI archive, for `import` of another node.

mod archive;
mod layer;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use edge_runtime::cli::{CliError, print};
use edge_runtime::image::layers::Layers;
use edge_runtime::image::wants::{EXPORT, Wants};
use edge_runtime::image::{ImageError, Reference};
use edge_runtime::paths::Paths;
use edge_runtime::store::image_record::{Access, ImageConfig, ImageRecord};
use sampan_sys::files::{named, unless_missing};
use serde_json::{Map, Value, json};

use self::archive::{Archive, Blob};
use super::table::size;
use crate::find;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// Writes `file` at once; another file of that name stays unless `overwrite`.
pub(super) fn export(paths: &Paths, image: &str, file: &Path, overwrite: bool) -> Result<(), CliError> {
    let file = std::path::absolute(file).map_err(named(file))?;
    let failed = |why: String| CliError::Failed(format!("cannot export {image} to {}: {why}", file.display()));
    let store = find::store(paths)?;
    let full = Reference::parse(image).map(|name| name.to_string()).unwrap_or_default();
    let known = || -> Result<ImageRecord, CliError> {
        let known = store.image_by_reference(image)?;
        let known = known.map_or_else(|| store.image_by_reference(&full), |one| Ok(Some(one)))?;
        known.ok_or_else(|| failed("the image is not on this node".to_owned()))
    };
    let is_free = || is_free(&file, overwrite).map_err(failed);
    is_free()?;
    let layers = Layers::new(paths);
    // A read-only disk takes no note, and loses no layers.
    let _kept = keep(&layers, &known()?).inspect_err(|error| log::warn!("layers may be removed meanwhile: {error}"));
    // It may have been removed before it was kept.
    let record = known()?;
    if let Some(damaged) = record.layers.iter().find(|layer| !layers.verify(layer)) {
        return Err(failed(format!("layer {damaged} is damaged: edge-runtime images check --repair")));
    }
    let partial = partial(&file);
    let name = name(&record, &full);
    let done = write(&partial, &record, name, &layers).map_err(|error| failed(error.to_string()));
    // It may have come meanwhile.
    let done = done.and_then(|()| is_free());
    let done = done.and_then(|()| rename(&partial, &file).map_err(|error| failed(error.to_string())));
    if done.is_err() {
        let _ = fs::remove_file(&partial);
    }
    done?;
    let bytes = fs::metadata(&file).map_or(0, |meta| meta.len());
    print(&format!("exported {} to {} ({})", name.unwrap_or(&record.id), file.display(), size(bytes)))?;
    match name {
        Some(_) => Ok(()),
        None => print("it has no tag: import it with --reference NAME"),
    }
}

/// Keeps the layers of an image from being removed until the result is dropped or this process ends: a note like that of a
/// pull, which a sweep respects.
fn keep(layers: &Layers, record: &ImageRecord) -> Result<Wants, ImageError> {
    layers.prepare()?;
    let kept = Wants::default();
    // Several processes may export one image.
    let name = format!("{EXPORT}{}", std::process::id());
    kept.begin(layers.incoming(), &name, &record.layers, Vec::new(), Access::new())?;
    Ok(kept)
}

/// Whether a file may be written there. Only a regular file is replaced: with `/dev/null` it would be the device itself.
fn is_free(file: &Path, overwrite: bool) -> Result<(), String> {
    match unless_missing(fs::symlink_metadata(file)).map_err(|error| error.to_string())? {
        None => Ok(()),
        Some(there) if !there.is_file() => Err("it is not a regular file".to_owned()),
        Some(_) if overwrite => Ok(()),
        Some(_) => Err("the file exists; --overwrite replaces it".to_owned()),
    }
}

/// Name that the archive gives the image: `full` if that is a tag of it, otherwise its first tag. Never one with a digest: that of
/// the archive differs.
fn name<'a>(record: &'a ImageRecord, full: &str) -> Option<&'a str> {
    let tags = || record.references.iter().map(String::as_str).filter(|name| !name.contains('@'));
    tags().find(|name| *name == full).or_else(|| tags().next())
}

fn partial(file: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".partial");
    file.with_file_name(name)
}

fn rename(partial: &Path, file: &Path) -> io::Result<()> {
    fs::rename(partial, file)?;
    // A stick may be pulled out as soon as this command ends.
    file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn write(file: &Path, record: &ImageRecord, name: Option<&str>, layers: &Layers) -> io::Result<()> {
    // Left over from one that was killed.
    unless_missing(fs::remove_file(file))?;
    // It may have been pulled with a login.
    let archive = Archive::begin(File::options().write(true).create_new(true).mode(0o600).open(file)?)?;
    let (mut written, mut blobs) = (BTreeMap::<&String, Blob>::new(), Vec::new());
    for id in &record.layers {
        let blob = match written.get(id) {
            Some(blob) => blob.clone(),
            None => {
                let folder = layers.folder(id).map_err(|error| io::Error::other(error.to_string()))?;
                archive.blob(|out| layer::write(&folder, &layers.undescribed(id), out))?
            }
        };
        written.insert(id, blob.clone());
        blobs.push(blob);
    }
    let json = |value: Value| archive.blob(|out| out.write_all(value.to_string().as_bytes()));
    let config = json(config(&record.config, &blobs))?;
    let manifest = json(manifest(&config, &blobs))?;
    archive.finish(index(&manifest, name).to_string().as_bytes())
}

/// Architecture of this node in words of OCI. The node does not keep an image's own.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The image configuration. Layers are not compressed, so the digest of a blob is its diff id.
fn config(config: &ImageConfig, layers: &[Blob]) -> Value {
    let list = |all: &[String]| if all.is_empty() { Value::Null } else { json!(all) };
    let volumes: Map<String, Value> = config.volumes.iter().map(|path| (path.clone(), json!({}))).collect();
    let ids: Vec<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
    json!({
        "created": config.created,
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "User": config.user,
            "Env": list(&config.env),
            "Entrypoint": list(&config.entrypoint),
            "Cmd": list(&config.cmd),
            "WorkingDir": config.working_dir,
            "StopSignal": config.stop_signal,
            "Volumes": volumes,
        },
        "rootfs": {"type": "layers", "diff_ids": ids},
    })
}

fn descriptor(kind: &str, blob: &Blob) -> Value {
    json!({"mediaType": kind, "digest": blob.digest, "size": blob.size})
}

fn manifest(config: &Blob, layers: &[Blob]) -> Value {
    let layers: Vec<Value> = layers.iter().map(|layer| descriptor(LAYER, layer)).collect();
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor(CONFIG, config), "layers": layers})
}

/// containerd and Docker read the first annotation, others the second.
fn index(manifest: &Blob, name: Option<&str>) -> Value {
    let mut one = json!({"mediaType": MANIFEST, "digest": manifest.digest, "size": manifest.size,
        "platform": {"os": "linux", "architecture": architecture()}});
    if let (Some(fields), Some(name)) = (one.as_object_mut(), name) {
        let names = json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
        fields.insert("annotations".to_owned(), names);
    }
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [one]})
}

#[cfg(test)]
mod tests {
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
}
