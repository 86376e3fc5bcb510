//! Converts a manifest and its configuration to an image record: the checks and values that registry and archive share.
//! Pure.

use crate::image::ImageError;
use crate::image::limits::Limits;
use crate::image::manifest::{Configuration, Document, Manifest, parse_document};
use crate::image::platform::Wanted;
use crate::store::image_record::{Access, ImageConfig, ImageRecord};

/// The manifest to which a document leads, through indexes of platforms if it is one; `fetch` gets the document of
/// another digest.
///
/// # Errors
/// Those of `fetch`; no build for this machine; a document other than an index or a manifest.
pub(super) fn manifest(
    document: &[u8],
    digest: &str,
    wanted: &Wanted,
    image: &str,
    mut fetch: impl FnMut(&str) -> Result<Vec<u8>, ImageError>,
) -> Result<Manifest, ImageError> {
    let mut document = parse_document(document, image, digest)?;
    for _ in 0..MOST_INDEXES {
        match document {
            Document::Manifest(manifest) => return Ok(manifest),
            Document::Index(builds) => {
                let build = &wanted.select(&builds, image)?.digest;
                document = parse_document(&fetch(build)?, image, build)?;
            }
        }
    }
    match document {
        Document::Manifest(manifest) => Ok(manifest),
        Document::Index(_) => {
            Err(ImageError::broken(image, digest, format!("leads through more than {MOST_INDEXES} indexes")))
        }
    }
}

/// Indexes in one another. `docker buildx imagetools create` makes two: one by platform, and in it one of a build and its
/// attestation.
const MOST_INDEXES: usize = 3;

/// Checks a configuration before anything large is fetched.
///
/// # Errors
/// Built for another operating system, too many layers, or a number of layers that is not the manifest's.
pub(super) fn check(
    configuration: &Configuration,
    layers: usize,
    wanted: &Wanted,
    limits: &Limits,
    image: &str,
) -> Result<(), ImageError> {
    if let Some(warning) = wanted.check(&configuration.platform, image)? {
        log::warn!("{image} {warning}");
    }
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
    wanted: &Wanted,
    size: u64,
    now: i64,
) -> ImageRecord {
    // Earlier checks refused it if it cannot be determined.
    let doubt = wanted.check(&configuration.platform, &id).ok().flatten();
    let (config, layers) = (ImageConfig { doubt, ..configuration.config }, configuration.diff_ids);
    ImageRecord { id, references, config, layers, size, pulled_at: now, access: Access::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    /// An index whose only entry for this machine has this `digest`.
    fn index(digest: &str) -> Vec<u8> {
        let platform = r#"{"os":"linux","architecture":"amd64"}"#;
        format!(r#"{{"schemaVersion":2,"manifests":[{{"digest":"{digest}","platform":{platform}}}]}}"#).into_bytes()
    }

    #[test]
    fn three_indexes_in_one_another_lead_to_a_manifest() {
        let wanted = Wanted::new("x86_64", "x86_64");
        let found = |depth: usize| {
            let mut left = depth;
            let fetch = |_: &str| {
                left -= 1;
                Ok(match left {
                    0 => format!(r#"{{"schemaVersion":2,"config":{{"digest":"{D}","size":1}},"layers":[]}}"#)
                        .into_bytes(),
                    _ => index(D),
                })
            };
            manifest(&index(D), D, &wanted, "reg/app:v1", fetch)
        };
        for depth in 1..=3 {
            assert_eq!(found(depth).unwrap().config.digest, D, "{depth}");
        }
        let error = found(4).unwrap_err().to_string();
        assert!(error.contains("reg/app:v1") && error.contains("more than 3 indexes"), "{error}");
    }

    #[test]
    fn an_image_that_unpacks_to_more_than_the_limit_is_refused() {
        let limits = Limits::default();
        assert_eq!(limits.image_bytes, 64 << 30);
        check_unpacked(limits.image_bytes, &limits, "x").unwrap();
        let error = check_unpacked(limits.image_bytes + 1, &limits, "x").unwrap_err().to_string();
        assert!(error.contains("size of x, unpacked,") && error.contains(&limits.image_bytes.to_string()), "{error}");
    }
}
