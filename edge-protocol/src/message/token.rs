//! Service account tokens of a node's pods: what is asked and answered. Values only.

use serde::{Deserialize, Serialize};

/// Request for a service account token for a pod of the node. The bridge takes the service account from the pod itself,
/// and asks the API server in the node's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRequest {
    pub namespace: String,
    pub pod: String,
    /// The pod's; the token is bound to it.
    pub uid: String,
    /// One that the pod's spec names; empty for the API server's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub audience: String,
    pub expiration_seconds: i64,
}

/// What became of a [`TokenRequest`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TokenAnswer {
    /// RFC 3339 times of the API server's clock.
    Issued { token: String, issued: String, expires: String },
    /// The text is for the pod's events.
    Refused { reason: String },
    #[serde(other)]
    Unknown,
}

/// Never shows the token: debug texts end up in logs.
impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Issued { expires, .. } => write!(f, "Issued {{ expires: {expires:?}, .. }}"),
            Self::Refused { reason } => write!(f, "Refused {{ reason: {reason:?} }}"),
            Self::Unknown => write!(f, "Unknown"),
        }
    }
}
