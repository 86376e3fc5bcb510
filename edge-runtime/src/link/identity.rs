//! Who this node is: name, cluster, bridges, certificate and key, in one file so that they always fit together.

use super::address::BridgeAddress;
use crate::paths::Paths;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "identity.json";

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
    /// PEM: the cluster's authority, the only one that is trusted.
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
    /// From DER as it comes in the join response.
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

    /// Reads the identity; none if the node has not joined yet.
    ///
    /// # Errors
    /// The file is there but unreadable.
    pub fn load(paths: &Paths) -> Result<Option<Self>, IdentityError> {
        let path = paths.identity().join(FILE);
        let at = |source| IdentityError::Io { path: path.clone(), source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(at(e)),
        };
        let mut text = Vec::new();
        file.take(MAX_FILE).read_to_end(&mut text).map_err(at)?;
        serde_json::from_slice(&text).map(Some).map_err(|source| IdentityError::Json { path, source })
    }

    /// Writes the identity: whole or not at all, readable by its owner only, durable when this returns.
    ///
    /// # Errors
    /// Names the path that could not be written.
    pub fn save(&self, paths: &Paths) -> Result<(), IdentityError> {
        let folder = paths.identity();
        let at = |path: &Path| {
            let path = path.to_path_buf();
            move |source| IdentityError::Io { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(at(&folder))?;
        let partial = folder.join(".identity.json.partial");
        // A left-over of a cut-off save may have any mode: make the file anew.
        match fs::remove_file(&partial) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(&partial)(e)),
            _ => {}
        }
        let text =
            serde_json::to_vec_pretty(self).map_err(|source| IdentityError::Json { path: partial.clone(), source })?;
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial).map_err(at(&partial))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(at(&partial))?;
        let path = folder.join(FILE);
        fs::rename(&partial, &path).map_err(at(&path))?;
        // The new name is durable only with its folder.
        File::open(&folder).and_then(|f| f.sync_all()).map_err(at(&folder))
    }

    pub(crate) fn certificate(&self) -> Result<CertificateDer<'static>, IdentityError> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(self.bad("certificate"))
    }

    pub(crate) fn ca(&self) -> Result<CertificateDer<'static>, IdentityError> {
        CertificateDer::from_pem_slice(self.ca.as_bytes()).map_err(self.bad("ca"))
    }

    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, IdentityError> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(self.bad("key"))
    }

    fn bad(&self, field: &'static str) -> impl FnOnce(rustls_pki_types::pem::Error) -> IdentityError {
        let node = self.node.clone();
        move |source| IdentityError::Pem { node, field, source }
    }
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
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn survives_the_disk_and_is_private() {
        let root = tempfile::tempdir().expect("temp dir");
        let paths = Paths::new(root.path());
        assert_eq!(Identity::load(&paths).expect("no file is no error"), None);
        let (certificate, ca) = (CertificateDer::from(vec![1; 100]), CertificateDer::from(vec![2; 100]));
        let bridges = vec!["https://b:1".parse().expect("address")];
        let identity = Identity::new("n".into(), "c".into(), bridges, &certificate, &ca, &[3; 50]);
        identity.save(&paths).expect("saved");
        identity.save(&paths).expect("saved again over the first");
        let again = Identity::load(&paths).expect("reads").expect("is there");
        assert_eq!(again, identity);
        assert_eq!(again.certificate().expect("pem"), certificate);
        assert_eq!(again.ca().expect("pem"), ca);
        assert_eq!(again.key().expect("pem").secret_der(), [3; 50]);
        let mode = |path: PathBuf| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(paths.identity().join(FILE)), 0o600);
        assert_eq!(mode(paths.identity()), 0o700);
        assert!(!format!("{identity:?}").contains("PRIVATE"), "the key stays out of logs");
    }

    #[test]
    fn a_damaged_file_is_named() {
        let root = tempfile::tempdir().expect("temp dir");
        let paths = Paths::new(root.path());
        fs::create_dir_all(paths.identity()).expect("made");
        fs::write(paths.identity().join(FILE), "{\"node\":").expect("written");
        let error = Identity::load(&paths).expect_err("damaged").to_string();
        assert!(error.contains("identity.json"), "{error}");
    }
}
