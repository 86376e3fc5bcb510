//! Why a pod or a container cannot be launched: what failed, and how Kubernetes tells it.

use std::error::Error;
use std::{fmt, io};

use super::runtimes::NoRuntime;
use super::spec_error::SpecError;
use crate::net::NetError;
use crate::net::hostname::HostnameTooLong;
use crate::pod::event::StartFailure;
use crate::sys::cgroup::CgroupError;
use crate::volume::VolumeError;

/// Why the node cannot launch anything at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// A pod that cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Hostname(#[from] HostnameTooLong),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error("network is not ready: {0}")]
    NetworkNotReady(String),
    /// Failed work of a helper at a volume.
    #[error("{0}")]
    Mount(String),
    #[error("{0}")]
    Other(String),
}

impl SandboxError {
    /// Reason of its event, in the kubelet's words.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Volume(error) => error.reason(),
            Self::Mount(_) => VolumeError::FAILED_MOUNT,
            Self::NetworkNotReady(_) => "NetworkNotReady",
            _ => "FailedCreatePodSandBox",
        }
    }

    /// Cured by a service account token.
    pub fn lacks_token(&self) -> bool {
        matches!(self, Self::Volume(VolumeError::MissingToken { .. }))
    }
}

/// A container that cannot be prepared: what it waits for, and why. `?` turns any error into
/// [`ContainerError::create`], so this type does not implement `Error` itself.
#[derive(Debug)]
pub struct ContainerError {
    pub failure: StartFailure,
    source: Box<dyn Error>,
}

impl<E: Error + 'static> From<E> for ContainerError {
    fn from(error: E) -> Self {
        Self::create(error)
    }
}

impl fmt::Display for ContainerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl ContainerError {
    /// The pod asks for what cannot be, or is not there.
    pub fn config(source: impl Into<Box<dyn Error>>) -> Self {
        Self { failure: StartFailure::Config, source: source.into() }
    }

    /// The node cannot make it.
    pub fn create(source: impl Into<Box<dyn Error>>) -> Self {
        Self { failure: StartFailure::Create, source: source.into() }
    }
}
