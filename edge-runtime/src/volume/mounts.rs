//! Which mounts one container sees, in order: the pod's files, its volumes, the termination message.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{VolumeError, VolumeHostPath};
use crate::paths::Paths;

/// How mounts made later travel between host and container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Private,
    HostToContainer,
    Bidirectional,
}

/// One bind mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
    pub propagation: Propagation,
}

#[derive(Clone, Copy)]
pub struct MountContext<'a> {
    pub paths: &'a Paths,
    pub pod: &'a Pod,
    pub container: &'a Container,
    /// From [`super::setup`].
    pub volumes: &'a BTreeMap<String, VolumeHostPath>,
    /// The container's environment, for `subPathExpr`.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Folder with `hosts`, `hostname`, `resolv.conf` and, for pods of several containers, `shm`: what
    /// `net::etc_files::write` made.
    pub pod_files: &'a Path,
    /// Empty file made for this attempt, to be mounted at `terminationMessagePath`.
    pub termination_log: &'a Path,
}

/// The container's mounts, parents before children. Makes subPath bind mounts on the way.
pub fn container_mounts(_ctx: &MountContext<'_>) -> Result<Vec<Mount>, VolumeError> {
    Ok(Vec::new())
}
