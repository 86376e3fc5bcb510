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
mod tests;
