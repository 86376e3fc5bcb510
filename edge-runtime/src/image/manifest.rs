//! Parses documents of registries and archives about an image: index, manifest and configuration (OCI image-spec v1.1,
//! Docker image manifest v2 schema 2). Pure.
//!
//! Own shapes instead of oci-spec's: builders write `null` for empty lists and leave out keys that
//! the specification requires, and other clients accept that.

use serde::{Deserialize, Deserializer};

use crate::image::ImageError;
use crate::image::digest::is_sha256;
use crate::store::image_record::ImageConfig;
use crate::sys::from_json::from_json;

/// Kinds of document asked of a registry, in the `Accept` header.
pub const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Either of the two documents a name can lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One manifest per platform.
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// Content by digest and size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    pub digest: String,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub platform: Option<Platform>,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub variant: String,
}

/// The image configuration, as far as a node needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub platform: Platform,
    pub config: ImageConfig,
    /// Digests of the uncompressed layers, bottom to top.
    pub diff_ids: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    #[serde(default, deserialize_with = "null_is_empty")]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct RawConfiguration {
    // Not a flattened platform: that would keep all unknown fields of the image.
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    variant: String,
    created: Option<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    config: RawConfig,
    #[serde(default, deserialize_with = "null_is_empty")]
    rootfs: RawRootfs,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RawConfig {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
    /// A set, as an object of objects.
    volumes: Option<std::collections::BTreeMap<String, serde::de::IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawRootfs {
    #[serde(deserialize_with = "null_is_empty")]
    diff_ids: Vec<String>,
}

/// Reads an index or a manifest; `image` and `what` are named in errors.
///
/// # Errors
/// Invalid JSON, schema 1, a malformed digest, or an artifact that is not an image.
pub fn parse_document(bytes: &[u8], image: &str, what: &str) -> Result<Document, ImageError> {
    let broken = |why: String| ImageError::broken(image, what, why);
    let raw: RawDocument = from_json(bytes).map_err(|error| broken(format!("not a manifest: {error}")))?;
    if raw.schema_version != 2 {
        return Err(broken(format!(
            "manifest schema {} is not supported; push the image again with a current tool",
            raw.schema_version
        )));
    }
    let all = || raw.config.iter().chain(&raw.layers).chain(raw.manifests.iter().flatten());
    if let Some(bad) = all().find(|d| !is_sha256(&d.digest)) {
        return Err(broken(format!("{:?} is not a sha256 digest", bad.digest)));
    }
    match (raw.manifests, raw.config) {
        (Some(manifests), None) => Ok(Document::Index(manifests)),
        (None, Some(config)) => {
            if let Some(layer) = raw.layers.iter().find(|l| l.media_type.contains("encrypted")) {
                return Err(broken(format!("layer {} is encrypted, which is not supported", layer.digest)));
            }
            Ok(Document::Manifest(Manifest { config, layers: raw.layers }))
        }
        _ => Err(broken(format!("{:?} is neither an image index nor an image manifest", raw.media_type))),
    }
}

/// Reads the image configuration.
///
/// # Errors
/// Invalid JSON, or a diff id that is not a digest.
pub fn parse_configuration(bytes: &[u8], image: &str) -> Result<Configuration, ImageError> {
    let broken = |why: String| ImageError::broken(image, "image configuration", why);
    let raw: RawConfiguration = from_json(bytes).map_err(|error| broken(error.to_string()))?;
    if let Some(bad) = raw.rootfs.diff_ids.iter().find(|d| !is_sha256(d)) {
        return Err(broken(format!("diff id {bad:?} is not a sha256 digest")));
    }
    Ok(Configuration {
        platform: Platform { os: raw.os, architecture: raw.architecture, variant: raw.variant },
        config: ImageConfig {
            user: raw.config.user.unwrap_or_default(),
            env: raw.config.env.unwrap_or_default(),
            entrypoint: raw.config.entrypoint.unwrap_or_default(),
            cmd: raw.config.cmd.unwrap_or_default(),
            working_dir: raw.config.working_dir.unwrap_or_default(),
            stop_signal: raw.config.stop_signal.filter(|s| !s.is_empty()),
            doubt: None,
            folders: Vec::new(),
            volumes: volumes(raw.config.volumes.unwrap_or_default().into_keys()),
            created: raw.created.filter(|c| !c.is_empty()),
        },
        diff_ids: raw.rootfs.diff_ids,
    })
}

/// More than any honest image has.
const MOST_VOLUMES: usize = 64;

/// Absolute and plain; what names the root or climbs is left out.
fn volumes(named: impl Iterator<Item = String>) -> Vec<String> {
    let plain = |path: String| {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let wrong = parts.is_empty() || parts.contains(&"..") || path.contains('\0');
        (!wrong).then(|| format!("/{}", parts.join("/")))
    };
    let mut volumes: Vec<String> = named.filter_map(plain).take(MOST_VOLUMES).collect();
    volumes.dedup();
    volumes
}

fn null_is_empty<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn index_and_manifest_are_distinguished_by_content() {
        let index = format!(
            r#"{{"schemaVersion":2,"manifests":[{{"digest":"{D}","size":7,"platform":{{"os":"linux","architecture":"arm","variant":"v7"}}}}]}}"#
        );
        let Document::Index(list) = parse_document(index.as_bytes(), "a", "index").unwrap() else { panic!("index") };
        assert_eq!(list[0].platform.as_ref().unwrap().variant, "v7");
        let manifest = format!(r#"{{"schemaVersion":2,"config":{{"digest":"{D}","size":1}},"layers":null}}"#);
        assert!(
            matches!(parse_document(manifest.as_bytes(), "a", "m"), Ok(Document::Manifest(m)) if m.layers.is_empty())
        );
    }

    #[test]
    fn other_artifacts_are_refused_by_type() {
        for (text, expect) in [
            ("<html>", "not a manifest"),
            (r#"{"schemaVersion":1,"fsLayers":[]}"#, "schema 1"),
            (r#"{"schemaVersion":2}"#, "neither"),
            (r#"{"schemaVersion":2,"config":{"digest":"sha256:../../x"}}"#, "not a sha256 digest"),
        ] {
            let error = parse_document(text.as_bytes(), "reg/app:v1", "manifest v1").unwrap_err().to_string();
            assert!(error.contains(expect) && error.contains("reg/app:v1"), "{error}");
        }
    }

    #[test]
    fn a_configuration_with_nulls_is_an_empty_one() {
        let text = br#"{"architecture":"amd64","os":"linux","created":"","config":{"Env":null,"Cmd":["sh"],"Volumes":{"/data":{}},"StopSignal":"SIGQUIT"},"rootfs":{"type":"layers","diff_ids":null},"history":[{"x":1}]}"#;
        let parsed = parse_configuration(text, "a").unwrap();
        assert_eq!(parsed.config.cmd, ["sh"]);
        assert_eq!(parsed.config.volumes, ["/data"]);
        assert_eq!(parsed.config.stop_signal.as_deref(), Some("SIGQUIT"));
        assert_eq!((parsed.config.created, parsed.diff_ids.len()), (None, 0));
        assert!(parse_configuration(br#"{"os":"linux"}"#, "a").is_ok());
        assert!(parse_configuration(br#"{"rootfs":{"diff_ids":["x/../y"]}}"#, "a").is_err());
    }

    #[test]
    fn volumes_are_plain_absolute_paths() {
        let named = ["/data/", "var/lib//db", "/", "", "/a/../b", "/./x"].map(str::to_owned);
        assert_eq!(volumes(named.into_iter()), ["/data", "/var/lib/db", "/x"]);
    }
}
