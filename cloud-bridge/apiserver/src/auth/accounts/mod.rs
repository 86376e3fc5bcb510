//! Service accounts of the embedded API: their signed tokens, the objects that each namespace and pod gets for them,
//! and the user that a token identifies. A server opened without a key ([`Accounts`]) has no service accounts.

mod identity;
mod jwt;

pub(crate) use identity::{Proven, review};
pub use jwt::KeyError;

use jwt::SigningKey;
use serde_json::{Value, json};

/// Default audience and issuer of tokens: the defaults of a cluster's API server (`--api-audiences`,
/// `--service-account-issuer`).
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Name of the ConfigMap with the authority's certificate in every namespace.
pub(crate) const ROOT_CA: &str = "kube-root-ca.crt";

/// The key that signs tokens, and the certificate with which pods verify the server.
pub struct Accounts {
    pub(crate) key: SigningKey,
    pub(crate) root_ca: String,
}

impl Accounts {
    /// `pkcs8` is an ECDSA P-256 key, from [`Accounts::new_key`]; `root_ca` is PEM.
    ///
    /// # Errors
    /// The key cannot be read.
    pub fn new(pkcs8: &[u8], root_ca: String) -> Result<Self, KeyError> {
        Ok(Self { key: SigningKey::from_pkcs8(pkcs8)?, root_ca })
    }

    /// A new key, as PKCS #8.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new_key() -> Result<Vec<u8>, KeyError> {
        SigningKey::generate()
    }

    /// The keys that tokens are signed with, as a JSON Web Key Set (RFC 7517).
    pub(crate) fn jwks(&self) -> Value {
        json!({"keys": [self.key.public()]})
    }

    /// The metadata of the issuer (OpenID Connect Discovery), whose keys are at `keys`.
    pub(crate) fn issuer(&self, keys: &str) -> Value {
        json!({
            "issuer": ISSUER, "jwks_uri": keys, "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
        })
    }
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Accounts")
    }
}

#[cfg(test)]
mod tests;
