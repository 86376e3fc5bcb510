//! Unpacked layers on disk. Owns the folder `layers` and the rule that a layer is visible only when all of it is
//! durable; knows no registries.
//!
//! A layer is unpacked below `incoming`, written out, and renamed into place. Beside it stands `<hex>.layer`, a small
//! file with the number of its entries and bytes: a medium that lied about a write leaves it empty or the counts wrong,
//! and the layer is fetched again.

mod adding;
mod records;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::image::ImageError;
use crate::image::digest::hex;
use crate::image::incoming::{Incoming, Lock};
use crate::image::rootfs::layer_dir;
use crate::paths::Paths;
use crate::sys::files::unless_missing;
use crate::sys::from_json::from_json;
pub(in crate::image) use records::read_json;

/// Extension that earlier versions gave to files which were not whole yet; by now they begin with a dot.
const DRAFT: &str = "draft";

/// The layers of one node.
#[derive(Clone, Debug)]
pub struct Layers {
    layers: PathBuf,
    incoming: Incoming,
}

/// Counts from the unpacking of the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub entries: u64,
    /// Total size of regular files; a file with two names counts twice.
    pub bytes: u64,
}

impl Layers {
    pub fn new(paths: &Paths) -> Self {
        Self { layers: paths.layers(), incoming: Incoming::new(paths.incoming()) }
    }

    #[cfg(test)]
    pub(in crate::image) fn dir(&self) -> &Path {
        &self.layers
    }

    pub fn incoming(&self) -> &Incoming {
        &self.incoming
    }

    /// Makes the folders.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn prepare(&self) -> Result<(), ImageError> {
        use std::os::unix::fs::DirBuilderExt;
        for dir in [self.layers.as_path(), self.incoming.dir()] {
            // Set-user-id programs of images must not be within reach of the host's users.
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(ImageError::io(dir, "cannot make"))?;
        }
        Ok(())
    }

    /// Waits until no other process changes layers or records: see [`Incoming`].
    ///
    /// # Errors
    /// The folders cannot be made.
    pub fn lock(&self) -> Result<Lock, ImageError> {
        self.prepare()?;
        self.incoming.lock().map_err(self.incoming.error("cannot lock"))
    }

    /// Whether the layer is there, by its folder and its counts. Cheap; see [`Layers::verify`] for the rest.
    pub fn has(&self, diff_id: &str) -> bool {
        self.contents(diff_id).is_some() && layer_dir(&self.layers, diff_id).is_ok_and(|dir| dir.is_dir())
    }

    /// Whether all entries and bytes that were counted are still there. Walks the whole layer.
    pub fn verify(&self, diff_id: &str) -> bool {
        let counted = layer_dir(&self.layers, diff_id).ok().and_then(|dir| count(&dir).ok());
        counted.is_some() && counted == self.contents(diff_id)
    }

    /// Returns the counts from the unpacking of the layer.
    pub fn contents(&self, diff_id: &str) -> Option<Contents> {
        from_json(&fs::read(self.counts_file(diff_id)).ok()?).ok()
    }

    /// Paths of its folders that no entry of the layer describes ([`crate::image::folders`]).
    pub fn undescribed(&self, diff_id: &str) -> Vec<String> {
        let path = self.folders_file(diff_id);
        if path.exists() { read_json(&path).unwrap_or_default() } else { Vec::new() }
    }

    /// Where an unpacked layer lies.
    ///
    /// # Errors
    /// The id is not a digest.
    pub fn folder(&self, diff_id: &str) -> Result<PathBuf, ImageError> {
        layer_dir(&self.layers, diff_id)
    }

    fn folders_file(&self, diff_id: &str) -> PathBuf {
        self.layers.join(format!("{}.folders", hex(diff_id)))
    }

    fn counts_file(&self, diff_id: &str) -> PathBuf {
        self.layers.join(format!("{}.layer", hex(diff_id)))
    }

    /// Diff ids of all layers on disk, whole or not.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> Result<Vec<String>, ImageError> {
        let mut ids = Vec::new();
        let entries =
            unless_missing(fs::read_dir(&self.layers)).map_err(ImageError::io(&self.layers, "cannot read"))?;
        for entry in entries.into_iter().flatten() {
            let name = entry.map_err(ImageError::io(&self.layers, "cannot read"))?.file_name();
            let name = name.to_string_lossy();
            let id = format!("sha256:{}", name.strip_suffix(".layer").unwrap_or(&name));
            if crate::image::digest::is_sha256(&id) && !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// Takes a layer out of sight at once; its files go with [`Incoming::delete_gone`]. The caller holds the lock.
    ///
    /// # Errors
    /// The rename fails.
    pub fn retire(&self, diff_id: &str) -> Result<(), ImageError> {
        let dir = layer_dir(&self.layers, diff_id)?;
        let gone = unless_missing(fs::remove_file(self.counts_file(diff_id)));
        let gone = gone.and_then(|_| unless_missing(fs::remove_file(self.folders_file(diff_id))));
        gone.and_then(|_| self.incoming.set_aside(&dir)).map_err(ImageError::io(dir, "cannot remove the layer"))
    }
}

impl Layers {
    /// Removes what was being written when its process was killed. The caller holds the lock.
    pub(in crate::image) fn remove_drafts(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.layers)? {
            let path = entry?.path();
            let is_partial = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if is_partial || path.extension().is_some_and(|extension| extension == DRAFT) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn count(dir: &Path) -> io::Result<Contents> {
    let mut contents = Contents::default();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            contents.entries += 1;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                contents.bytes += entry.metadata()?.len();
            }
        }
    }
    Ok(contents)
}

#[cfg(test)]
pub(in crate::image) mod testing;
#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a skipped test says why")]
mod tests;
