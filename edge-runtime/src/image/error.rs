//! Errors of images, and the kubelet reason of each. Owns the texts; does not log.

use std::{io, path::PathBuf};

/// Every failure of reference, pull, import, unpack and rootfs.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("couldn't parse image name {name:?}: {why}")]
    InvalidName { name: String, why: &'static str },
    #[error("registry {registry} cannot be reached for {image}: {source}")]
    Unavailable { image: String, registry: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("registry {registry} refused {image}: {why}")]
    Refused { image: String, registry: String, why: String },
    #[error("{image}: {what}: {why}")]
    Broken { image: String, what: String, why: String },
    #[error("{image} has no build for {wanted}; it offers {offered}")]
    NoPlatform { image: String, wanted: String, offered: String },
    #[error("{what} is {found}, but its content was announced as {wanted}; it was not used and will be fetched again")]
    WrongDigest { what: String, wanted: String, found: String },
    #[error("layer entry {entry:?}: {why}")]
    Entry { entry: String, why: String },
    #[error("{what} is more than the limit of {limit}")]
    Limit { what: String, limit: u64 },
    #[error("{}: {what}: {source}", path.display())]
    Io { path: PathBuf, what: &'static str, source: io::Error },
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    #[error("{why}")]
    Helper { reason: String, why: String },
}

impl ImageError {
    /// The reason of `status.containerStatuses[].state.waiting`
    /// (kubelet `pkg/kubelet/images/types.go`).
    pub fn reason(&self) -> &str {
        match self {
            Self::InvalidName { .. } => "InvalidImageName",
            Self::Unavailable { .. } => "RegistryUnavailable",
            Self::Helper { reason, .. } => reason,
            _ => "ErrImagePull",
        }
    }

    pub(crate) fn broken(image: &str, what: impl Into<String>, why: impl ToString) -> Self {
        Self::Broken { image: image.to_owned(), what: what.into(), why: why.to_string() }
    }

    /// Refuses more than the limit.
    pub(crate) fn bound(amount: u64, limit: u64, what: impl FnOnce() -> String) -> Result<(), Self> {
        if amount > limit { Err(Self::Limit { what: what(), limit }) } else { Ok(()) }
    }

    /// Refuses what has another digest than it was announced with.
    pub(crate) fn compare(found: String, wanted: &str, what: impl FnOnce() -> String) -> Result<(), Self> {
        if found == wanted {
            return Ok(());
        }
        Err(Self::WrongDigest { what: what(), wanted: wanted.to_owned(), found })
    }

    pub(crate) fn io(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, what, source }
    }
}

/// The text of an error about hostile input, which may quote that input: one line, of bounded length.
pub(crate) fn one_line(error: impl std::fmt::Display) -> String {
    let text = error.to_string();
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}
