//! Why the node does not start.

use std::path::PathBuf;

use crate::launch::error::OpenError;
use crate::link::identity::IdentityError;
use crate::store::StoreError;

/// Why the node did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("another edge-runtime runs on this root: {} is locked", .0.display())]
    Locked(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Launch(#[from] OpenError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Io { what, source }
}
