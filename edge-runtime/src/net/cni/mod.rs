//! Pod networks made by CNI plugins (github.com/containernetworking/cni, SPEC 0.3.1 to 1.1.0): a configuration list
//! from a folder, plugins run one after the other, their results kept for the way back.
//!
//! | file | owns |
//! |---|---|
//! | `conf` | which configuration is used, and what is wrong with the others |
//! | `result` | what plugins answer: hostile until proven harmless |
//! | `stdin` | what plugins are told |
//! | `invoke` | running one plugin without holding the loop |
//! | `attachment` | one pod's attachment: kept on disk before the first plugin runs, taken back until it is gone |
//!
//! Knows nothing of bridges, leases and containers.

pub mod attachment;
pub mod conf;
pub mod invoke;
pub mod result;
pub mod stdin;

pub use attachment::{Attachment, Plugins};
pub use conf::NetworkList;

/// The link's name inside the pod.
pub const POD_LINK: &str = "eth0";

/// Versions of the specification that are spoken here, oldest first.
pub const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Problem of a configuration or a result, as text for its author.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CniError(String);

fn bad<T>(why: impl Into<String>) -> Result<T, CniError> {
    Err(CniError(why.into()))
}

/// Whether `version` knows CHECK, and `prevResult` at DEL.
pub(crate) fn has_check(version: &str) -> bool {
    !version.starts_with("0.3.")
}
