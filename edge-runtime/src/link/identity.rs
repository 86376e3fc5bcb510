//! Identity of this node: name, cluster, bridges, certificate and key, in one file so that they always match.

use super::address::BridgeAddress;
use crate::paths::Paths;
use crate::sys::files::{replace, unless_missing};
use crate::sys::from_json::from_json;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

const FILE: &str = "identity.json";
/// A renewed identity that is not proven yet.
const NEXT: &str = "identity.next.json";
/// Key and request of a join that has not succeeded yet.
const JOINING: &str = "identity.joining.json";
/// Test file, as large as two identities.
const PROBE: &str = "probe";
const PROBE_SIZE: usize = 8 << 10;

/// No honest identity is larger; a damaged disk must not fill the memory.
const MAX_FILE: u64 = 256 << 10;

/// What `join` made, and `run` dials with.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub node: String,
    /// Id of the cluster.
    pub cluster: String,
    pub bridges: Vec<BridgeAddress>,
    /// PEM: the node's certificate.
    pub certificate: String,
    /// PEM: the trusted authority of the cluster; two during a change of authorities.
    pub ca: String,
    /// PEM, PKCS#8: made on this device, never leaves it.
    key: String,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Json { path: PathBuf, source: serde_json::Error },
    #[error("identity of node {node}: {field}: {source}")]
    Pem { node: String, field: &'static str, source: rustls_pki_types::pem::Error },
}

/// Not derived: the key must not reach a log.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("node", &self.node)
            .field("cluster", &self.cluster)
            .field("bridges", &self.bridges)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// Builds the identity from the DER of the join response.
    pub fn new(
        node: String,
        cluster: String,
        bridges: Vec<BridgeAddress>,
        certificate: &CertificateDer<'_>,
        ca: &CertificateDer<'_>,
        key: &[u8],
    ) -> Self {
        let [certificate, ca] = [certificate, ca].map(|der| pem("CERTIFICATE", der));
        Self { node, cluster, bridges, certificate, ca, key: pem("PRIVATE KEY", key) }
    }

    /// This node with another key, the certificate for it, and what to trust from then on. DER.
    pub(super) fn renewed(&self, certificate: &CertificateDer<'_>, cas: &[CertificateDer<'_>], key: &[u8]) -> Self {
        Self {
            certificate: pem("CERTIFICATE", certificate),
            ca: cas.iter().map(|ca| pem("CERTIFICATE", ca)).collect(),
            key: pem("PRIVATE KEY", key),
            ..self.clone()
        }
    }

    /// End of the certificate in seconds since 1970; `None` if it cannot be parsed.
    pub fn certificate_end(&self) -> Option<u64> {
        let end = super::certificate::not_after(&self.certificate().ok()?)?;
        Some(end.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?.as_secs())
    }

    /// Reads the identity; none if the node has not joined yet.
    ///
    /// # Errors
    /// The file is there but unreadable.
    pub fn load(paths: &Paths) -> Result<Option<Self>, IdentityError> {
        Self::read(paths.identity().join(FILE))
    }

    /// The renewed identity that a power cut has left unproven; none, too, if it cannot be read.
    pub(super) fn load_next(paths: &Paths) -> Option<Self> {
        Self::read(paths.identity().join(NEXT)).unwrap_or_else(|error| {
            log::warn!("{error}");
            None
        })
    }

    fn read(path: PathBuf) -> Result<Option<Self>, IdentityError> {
        let at = |source| IdentityError::Io { path: path.clone(), source };
        let Some(file) = unless_missing(File::open(&path)).map_err(at)? else { return Ok(None) };
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text).map_err(at)?;
        from_json(&text).map(Some).map_err(|source| IdentityError::Json { path, source })
    }

    /// Writes the identity: whole or not at all, readable by its owner only, durable when this returns.
    ///
    /// # Errors
    /// Names the path that could not be written.
    pub fn save(&self, paths: &Paths) -> Result<(), IdentityError> {
        // An unfinished renewal belongs to another identity.
        Self::discard_next(paths);
        self.write(paths, FILE)?;
        discard(paths, JOINING);
        Ok(())
    }

    /// Puts a renewed identity beside the one in use; as [`save`](Self::save) otherwise.
    pub(super) fn save_next(&self, paths: &Paths) -> Result<(), IdentityError> {
        self.write(paths, NEXT)
    }

    /// Replaces the identity by the renewed one, durably.
    pub(super) fn promote_next(paths: &Paths) -> Result<(), IdentityError> {
        let folder = paths.identity();
        let next = folder.join(NEXT);
        let renamed = fs::rename(&next, folder.join(FILE)).and_then(|()| File::open(&folder)?.sync_all());
        renamed.map_err(|source| IdentityError::Io { path: next, source })
    }

    pub(super) fn discard_next(paths: &Paths) {
        discard(paths, NEXT);
    }

    /// Tests whether an identity could be written now: a token works once, and must not be used up if the disk is full
    /// or read-only.
    ///
    /// # Errors
    /// Same as [`save`](Self::save).
    pub fn probe(paths: &Paths) -> Result<(), IdentityError> {
        put(paths, PROBE, &[b' '; PROBE_SIZE])?;
        let path = paths.identity().join(PROBE);
        fs::remove_file(&path).map_err(|source| IdentityError::Io { path, source })
    }

    fn write(&self, paths: &Paths, name: &str) -> Result<(), IdentityError> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|source| IdentityError::Json { path: paths.identity().join(name), source })?;
        put(paths, name, &text)
    }

    pub(crate) fn certificate(&self) -> Result<CertificateDer<'static>, IdentityError> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(self.bad("certificate"))
    }

    pub(crate) fn cas(&self) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
        CertificateDer::pem_slice_iter(self.ca.as_bytes()).collect::<Result<_, _>>().map_err(self.bad("ca"))
    }

    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, IdentityError> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(self.bad("key"))
    }

    fn bad(&self, field: &'static str) -> impl FnOnce(rustls_pki_types::pem::Error) -> IdentityError {
        let node = self.node.clone();
        move |source| IdentityError::Pem { node, field, source }
    }
}

fn discard(paths: &Paths, name: &str) {
    let path = paths.identity().join(name);
    if let Err(error) = unless_missing(fs::remove_file(&path)) {
        log::warn!("{}: {error}", path.display());
    }
}

/// What [`save_attempt`] has written, if that can be read.
pub(super) fn load_attempt(paths: &Paths) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(paths.identity().join(JOINING)).ok()?.take(MAX_FILE).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Keeps key and request of a join until an identity is saved; as [`Identity::save`] otherwise.
pub(super) fn save_attempt(paths: &Paths, text: &[u8]) -> Result<(), IdentityError> {
    put(paths, JOINING, text)
}

/// Writes a file of the identity's folder: whole or not at all, readable by its owner only, durable when this returns.
fn put(paths: &Paths, name: &str, text: &[u8]) -> Result<(), IdentityError> {
    let path = paths.identity().join(name);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(paths.identity());
    // An unfinished file of an earlier version may contain a key, too.
    let _ = fs::remove_file(paths.identity().join(format!(".{name}.partial")));
    made.and_then(|()| replace(&path, text, true)).map_err(|source| IdentityError::Io { path, source })
}

/// PEM text of DER bytes (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|b| char::from(*b)));
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests;
