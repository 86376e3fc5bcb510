//! Why an upgrade is refused.

use std::path::{Path, PathBuf};

/// Why another version is not installed. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{what}: {why}")]
    Bad { what: String, why: String },
    #[error("{0}")]
    Refused(String),
}

impl UpgradeError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { path: path.to_path_buf(), source }
    }
}
