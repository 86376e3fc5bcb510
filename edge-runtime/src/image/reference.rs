//! Image names as people write them, and the one form in which they are stored and compared.
//! Pure; follows the grammar of the distribution project (`reference` package) and its Docker Hub defaults.

use std::fmt;

use crate::image::ImageError;
use crate::image::digest::is_sha256;

/// A parsed, normalized image name. Its text is the key under which the store knows the image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// `docker.io`, `registry.example:5000`, `[::1]:5000`.
    pub registry: String,
    /// Path below the registry: `library/busybox`.
    pub repository: String,
    /// Absent when a digest is given.
    pub tag: Option<String>,
    /// `sha256:<64 hex>`.
    pub digest: Option<String>,
}

const REGISTRY: &str = "docker.io";
const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;

impl Reference {
    /// Parses `busybox`, `registry:5000/a/b:tag`, `a@sha256:...`, with the defaults of Docker:
    /// registry `docker.io`, `library/` before a single-part name there, tag `latest` without a tag or digest.
    ///
    /// # Errors
    /// [`ImageError::InvalidName`], with the kubelet's text for `InvalidImageName`.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let fail = |why| ImageError::InvalidName { name: text.to_owned(), why };
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) if is_sha256(digest) => (name, Some(digest.to_owned())),
            Some(_) => return Err(fail("the digest must be sha256: and 64 lower-case hex digits")),
            None => (text, None),
        };
        let last_part = name.rfind('/').map_or(0, |slash| slash + 1);
        let (name, tag) = match name[last_part..].rfind(':') {
            Some(colon) => (&name[..last_part + colon], Some(&name[last_part + colon + 1..])),
            None => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(fail(
                "invalid reference format: a tag is 1 to 128 of [A-Za-z0-9_.-] and begins with [A-Za-z0-9_]",
            ));
        }
        let (registry, path) = split_registry(name);
        if !is_host(registry) {
            return Err(fail("invalid reference format: the registry must be HOST or HOST:PORT"));
        }
        // Docker Hub has two more names, and its official images live below `library`.
        let registry = if registry == "index.docker.io" { REGISTRY } else { registry };
        let repository = if registry == REGISTRY && !path.contains('/') && !path.is_empty() {
            format!("library/{path}")
        } else {
            path.to_owned()
        };
        if path.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(fail("invalid reference format: repository name must be lowercase"));
        }
        if !repository.split('/').all(is_path_component) {
            return Err(fail("invalid reference format"));
        }
        if registry.len() + 1 + repository.len() > LONGEST_NAME {
            return Err(fail("repository name must not be more than 255 characters"));
        }
        let tag = match (tag, &digest) {
            // A tag beside a digest is decoration: the digest decides.
            (_, Some(_)) => None,
            (Some(tag), None) => Some(tag.to_owned()),
            (None, None) => Some("latest".to_owned()),
        };
        Ok(Self { registry: registry.to_owned(), repository, tag, digest })
    }

    /// `docker.io/library/busybox`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Last part of the registry's path: `/v2/<repository>/manifests/<this>`.
    pub fn manifest(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// The first part is a registry when it looks like a host: a dot, a port, `localhost`, or an upper-case
/// letter (which no repository may have).
fn split_registry(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        _ => (REGISTRY, name),
    }
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            if address.is_empty() || !address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':') {
                return false;
            }
            ("", port)
        }
        None => text.find(':').map_or((text, ""), |colon| text.split_at(colon)),
    };
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let host_fits = text.starts_with('[') || host.split('.').all(label);
    let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.parse::<u16>().is_ok());
    host_fits && port_fits
}

/// Alphanumeric runs, joined by one `.`, one or two `_`, or any number of `-`.
fn is_path_component(part: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    if !part.bytes().next().is_some_and(alphanumeric) || !part.bytes().next_back().is_some_and(alphanumeric) {
        return false;
    }
    part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= LONGEST_TAG
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

#[cfg(test)]
mod tests;
