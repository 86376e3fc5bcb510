//! Network, IPC and UTS namespaces of a pod, held by bind mounts on files instead of a pause process.
//!
//! The files are named `net`, `ipc` and `uts` in the folder given by the caller. A crash at any point leaves files
//! that [`remove`] clears and [`NamespaceMaker::create`] replaces. Knows nothing of addresses and links.

use std::path::{Path, PathBuf};

use super::NetError;

/// Which namespaces a pod has of its own; what is not asked for is the node's.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceRequest<'a> {
    /// False for `hostNetwork`.
    pub net: bool,
    /// False for `hostIPC`.
    pub ipc: bool,
    /// Host name inside; `None` keeps the node's (CRI runtimes do so for `hostNetwork` pods).
    pub hostname: Option<&'a str>,
}

/// Paths to give to the OCI runtime. `None` means the node's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNamespaces {
    pub net: Option<PathBuf>,
    pub ipc: Option<PathBuf>,
    pub uts: Option<PathBuf>,
}

/// Holds this process' own namespaces, to come back to. One per daemon, opened before anything else.
#[derive(Debug)]
pub struct NamespaceMaker {}

impl NamespaceMaker {
    pub fn open() -> Result<Self, NetError> {
        Ok(Self {})
    }

    /// Makes the namespaces below `dir` (created, mode 0700), loopback up. What a crash left there is replaced.
    pub fn create(&self, _dir: &Path, _request: &NamespaceRequest<'_>) -> Result<PodNamespaces, NetError> {
        Err(NetError::Malformed("not built"))
    }
}

/// What [`NamespaceMaker::create`] made in `dir`, when all of it is there and still mounted (after a daemon restart).
pub fn existing(_dir: &Path, _request: &NamespaceRequest<'_>) -> Option<PodNamespaces> {
    None
}

/// Unpins and deletes `dir`. Safe on a missing or half-made folder; the kernel frees the namespaces when the last
/// process in them has gone.
pub fn remove(_dir: &Path) -> Result<(), NetError> {
    Ok(())
}
