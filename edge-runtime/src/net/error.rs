//! Errors while a pod is connected. Name the object and the path, and keep the kernel's answer.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("{action} {}: {source}", path.display())]
    Path { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{action}: {source}")]
    Namespace { action: &'static str, source: io::Error },
    #[error("{action} {object}: {source}")]
    Netlink { action: &'static str, object: String, source: io::Error },
    #[error("{name:?} is no usable bridge name: 1 to 15 letters, digits, '-', '_' or '.'")]
    BridgeName { name: String },
    #[error("{text:?} is no usable pod subnet: {reason}")]
    Subnet { text: String, reason: String },
    #[error("pods cannot have addresses of {subnet}: {why}")]
    NoFamily { subnet: super::Subnet, why: &'static str },
    #[error("link {name} exists and is no bridge: choose another bridge name")]
    NotABridge { name: String },
    #[error("the kernel cannot make {kind} links: load the module {kind} or use a kernel that has it")]
    NoKernelSupport { kind: &'static str },
    #[error("{0}")]
    Sysctl(String),
    #[error("the kernel cannot limit bandwidth: load the module sch_tbf or use a kernel that has it")]
    NoTokenBucket,
    #[error("rules of the pods' network: {0}")]
    Firewall(String),
}

impl NetError {
    pub(crate) fn path(action: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Path { action, path: path.into(), source: source.into() }
    }

    pub(crate) fn namespace(action: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Namespace { action, source: source.into() }
    }
}
