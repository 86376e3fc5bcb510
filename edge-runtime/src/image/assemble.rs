//! From a manifest and its configuration to an image record: what both roads (registry and archive) check and
//! compute the same way. Pure.

use crate::image::ImageError;
use crate::image::limits::Limits;
use crate::image::manifest::{Configuration, Document, Manifest, parse_document};
use crate::image::platform::Wanted;
use crate::store::image_record::{Access, ImageRecord};

/// The manifest that a document of this digest leads to, through an index of platforms if it is one; `fetch` gets what
/// another digest names.
///
/// # Errors
/// Those of `fetch`; no build for this machine, or what is neither index nor manifest.
pub(super) fn manifest(
    document: &[u8],
    digest: &str,
    wanted: &Wanted,
    image: &str,
    mut fetch: impl FnMut(&str) -> Result<Vec<u8>, ImageError>,
) -> Result<Manifest, ImageError> {
    let builds = match parse_document(document, image, digest)? {
        Document::Manifest(manifest) => return Ok(manifest),
        Document::Index(builds) => builds,
    };
    let build = &wanted.select(&builds, image)?.digest;
    match parse_document(&fetch(build)?, image, build)? {
        Document::Manifest(manifest) => Ok(manifest),
        Document::Index(_) => Err(ImageError::broken(image, digest, "is an index inside an index")),
    }
}

/// Checks a configuration before anything large is fetched.
///
/// # Errors
/// Built for other machines, too many layers, or a number of layers that is not the manifest's.
pub(super) fn check(
    configuration: &Configuration,
    layers: usize,
    wanted: &Wanted,
    limits: &Limits,
    image: &str,
) -> Result<(), ImageError> {
    wanted.check(&configuration.platform, image)?;
    ImageError::bound(layers as u64, limits.layers as u64, || format!("number of layers of {image}"))?;
    let named = configuration.diff_ids.len();
    if named == layers {
        return Ok(());
    }
    let why = format!("names {named} layers where the manifest has {layers}; push the image again");
    Err(ImageError::broken(image, "image configuration", why))
}

/// Checks what all layers together hold.
///
/// # Errors
/// It is too much.
pub(super) fn check_unpacked(bytes: u64, limits: &Limits, image: &str) -> Result<(), ImageError> {
    ImageError::bound(bytes, limits.image_bytes, || format!("size of {image}, unpacked,"))
}

/// Bytes of an image as the manifest claims them.
pub(super) fn size(manifest: &Manifest) -> u64 {
    manifest.layers.iter().fold(manifest.config.size, |sum, layer| sum.saturating_add(layer.size))
}

/// The record of an image whose layers are all there. `id` is the digest of the configuration, `size` the bytes of
/// the compressed layers, `now` in Unix seconds.
pub(super) fn record(
    id: String,
    references: Vec<String>,
    configuration: Configuration,
    size: u64,
    now: i64,
) -> ImageRecord {
    let (config, layers) = (configuration.config, configuration.diff_ids);
    ImageRecord { id, references, config, layers, size, pulled_at: now, access: Access::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_unpacks_to_more_than_the_limit_is_refused() {
        let limits = Limits::default();
        assert_eq!(limits.image_bytes, 64 << 30);
        check_unpacked(limits.image_bytes, &limits, "x").unwrap();
        let error = check_unpacked(limits.image_bytes + 1, &limits, "x").unwrap_err().to_string();
        assert!(error.contains("size of x, unpacked,") && error.contains(&limits.image_bytes.to_string()), "{error}");
    }
}
