//! The `upgrade` section: which programs this node accepts, and how long their trial is. Used by `edge-admin`.

use serde::{Deserialize, Serialize};

use super::number::Number;

/// Other versions of the programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct UpgradeConfig {
    /// Ed25519 public keys, base64 of 32 bytes each. If there are any, programs must be signed with one of them.
    pub keys: Vec<String>,
    /// How long a trial lasts.
    pub trial_seconds: Number<u64, 300>,
}
