//! Certificates, keys and join tokens: identities and their proofs.
//!
//! Owns the certificate authority, its certificates, the storage of both, and the tokens with which a node requests its
//! first certificate: single-use ones, and claim tokens for many boards. Must not know of sessions, watches or HTTP paths.

pub mod authority;
pub mod claim;
pub mod clock;
pub mod encoding;
pub mod identity;
pub mod keep;
pub mod request;
pub mod rotate;
pub mod rotation;
mod serial;
pub mod serving;
pub mod tls;
pub mod token;

use std::path::PathBuf;

/// Namespace of the state that bridges share through the API: the authority and the join tokens.
pub const NAMESPACE: &str = "sampan-system";

/// Errors of certificates and their files.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{what}: {source}")]
    Certificate { what: &'static str, source: rcgen::Error },
    /// A key without its certificate or vice versa: one was removed, and a new pair would lock all nodes out.
    #[error("{} is there without {}: restore it, or remove both to begin with a new authority", found.display(), missing.display())]
    HalfPair { found: PathBuf, missing: PathBuf },
    #[error("{what} is no PEM file with a {wanted}")]
    Pem { what: String, wanted: &'static str },
    #[error("tls settings: {0}")]
    Tls(#[from] rustls::Error),
    #[error("client certificate verifier: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("the random generator of the system failed")]
    Random,
    /// The request's signature, key type or encoding; the text is for the node's operator.
    #[error("certificate signing request: {0}")]
    Request(String),
    #[error("secret {NAMESPACE}/{name}: {source}")]
    Secret { name: String, source: Box<kube::Error> },
    #[error("secret {NAMESPACE}/{name} has no {field}")]
    SecretField { name: String, field: &'static str },
    #[error("{what}: state of the rotation: {source}")]
    Rotation { what: String, source: serde_json::Error },
    #[error("a rotation of the authority is under way: see cloud-bridge authority status")]
    Rotating,
    #[error("no rotation of the authority is under way: begin one with cloud-bridge authority rotate")]
    NotRotating,
}
