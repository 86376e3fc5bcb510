//! What tests of images need: a node's folders, layers of one file, records.

use super::*;
use crate::image::digest::sha256;
use crate::image::limits::Limits;
use crate::store::image_record::ImageRecord;

pub(in crate::image) fn node() -> (tempfile::TempDir, Layers) {
    let temp = tempfile::tempdir().unwrap();
    let layers = Layers::new(&Paths::new(temp.path()));
    layers.prepare().unwrap();
    (temp, layers)
}

pub(in crate::image) fn layer(content: &str) -> Vec<u8> {
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

/// Id of the layer that was added.
pub(in crate::image) fn add(layers: &Layers, content: &str) -> String {
    add_tar(layers, &layer(content))
}

/// Id of the layer that was added.
pub(in crate::image) fn add_tar(layers: &Layers, tar: &[u8]) -> String {
    layers.add(&sha256(tar), tar, &Limits::default(), "x").unwrap();
    sha256(tar)
}

pub(in crate::image) fn image(id: u8, reference: &str, layers: &[&str]) -> ImageRecord {
    ImageRecord {
        id: sha256(&[id]),
        references: vec![reference.to_owned()],
        config: Default::default(),
        layers: layers.iter().map(|layer| (*layer).to_owned()).collect(),
        size: 1,
        pulled_at: 0,
        access: Default::default(),
    }
}
