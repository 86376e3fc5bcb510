//! How the helper works, as the daemon has resolved it from the section `local-api` of its configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of a helper. One with other settings ends, and another one starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Where pods reach it. An address that the node does not have yet is tried again.
    pub listen: Vec<SocketAddr>,
    /// Domain of the cluster's names, for the certificate.
    pub domain: String,
    /// Folder of certificate, key and cache; the helper creates it.
    pub folder: PathBuf,
    /// Most bytes of the cache, on disk and in memory together. 0: no cache.
    pub cache_bytes: u64,
    /// Answers with Secrets are kept in memory only.
    pub secrets_in_memory: bool,
}
