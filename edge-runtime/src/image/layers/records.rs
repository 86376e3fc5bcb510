//! Records of images beside their layers: `<hex>.image` in the folder of the layers, so that a node that lost its store
//! still knows its images. The store has priority; the start restores lost rows from these records
//! ([`crate::image::settle`]).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Layers;
use crate::image::ImageError;
use crate::image::digest::{hex, is_sha256};
use crate::image::incoming::DROP;
use crate::store::image_record::ImageRecord;
use crate::sys::files::replace;
use crate::sys::from_json::from_json;
use crate::sys::sort::sort_by;

/// A record has the image's environment and labels in it, which come in a document of at most 4 MiB.
const LONGEST: u64 = 32 << 20;

impl Layers {
    /// Writes the record of an image; `durable`: on the medium when this returns.
    ///
    /// # Errors
    /// The write fails, or the id is not a digest.
    pub fn put_record(&self, image: &ImageRecord, durable: bool) -> Result<(), ImageError> {
        let path = self.record_file(&image.id);
        let done = match is_sha256(&image.id) {
            true => serde_json::to_vec(image).map_err(io::Error::from).and_then(|text| replace(&path, &text, durable)),
            false => Err(io::Error::other("an image's id must be a sha256 digest")),
        };
        done.map_err(ImageError::io(&path, "cannot write"))
    }

    /// All readable records.
    pub fn records(&self) -> Vec<ImageRecord> {
        let entries = fs::read_dir(&self.layers).into_iter().flatten().flatten();
        // A name that begins with a dot is an unfinished file.
        let names = entries.filter(|entry| !entry.file_name().as_bytes().starts_with(b"."));
        let paths = names.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "image"));
        let mut records: Vec<ImageRecord> = paths.filter_map(|path| read_json(&path)).collect();
        // The content is untrusted: the id must match the name of the file.
        records.retain(|record| is_sha256(&record.id) && self.record_file(&record.id).exists());
        sort_by(&mut records, |a, b| a.id.cmp(&b.id));
        records
    }

    /// Takes the record of an image away and leaves a note that its layers are to go with the next sweep.
    ///
    /// # Errors
    /// Neither can be done.
    pub fn drop_record(&self, image: &ImageRecord) -> Result<(), ImageError> {
        let path = self.record_file(&image.id);
        let note = self.incoming.dir().join(format!("{DROP}{}", hex(&image.id)));
        let done = match fs::rename(&path, &note) {
            // An image of a version without records.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                serde_json::to_vec(image).map_err(io::Error::from).and_then(|text| fs::write(&note, text))
            }
            done => done,
        };
        done.map_err(ImageError::io(path, "cannot remove"))
    }

    fn record_file(&self, id: &str) -> PathBuf {
        self.layers.join(format!("{}.image", hex(id)))
    }
}

/// Reads a small JSON file of this module; `None` if it cannot be read.
pub(in crate::image) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    match from_json(&text) {
        Ok(value) => Some(value),
        Err(error) => {
            log::warn!("{} does not parse: {error}", path.display());
            None
        }
    }
}
