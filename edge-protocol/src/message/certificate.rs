//! Renewal of a node's certificate: what is asked and answered. Values only; nothing here is checked.

use super::base64_text;
use serde::{Deserialize, Serialize};

/// Bytes of a certificate or request, base64 on the wire.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Der(#[serde(with = "base64_text")] pub Vec<u8>);

/// The bytes mean nothing to a reader.
impl std::fmt::Debug for Der {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Der({} bytes)", self.0.len())
    }
}

/// What became of a `Renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RenewAnswer {
    Issued {
        certificate: Der,
        /// Every authority to trust from now on: two while one takes over from another.
        authorities: Vec<Der>,
    },
    /// The text is for people; the certificate in use stays good.
    Refused { reason: String },
    #[serde(other)]
    Unknown,
}
