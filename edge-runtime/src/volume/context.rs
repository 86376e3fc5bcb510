//! What the volumes of a pod are made from, and where each lies once it is made.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};
use serde_json::Value;

use super::downward::DownwardFacts;
use super::layout::PodLayout;
use crate::paths::Paths;

/// Looks up a ConfigMap or Secret that the node holds: `(kind, namespace, name)` to the object's JSON.
pub type ObjectLookup<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Value>;

/// All that volumes of one pod are made from.
#[derive(Clone, Copy)]
pub struct VolumeContext<'a> {
    pub paths: &'a Paths,
    pub pod: &'a Pod,
    pub objects: ObjectLookup<'a>,
    pub facts: &'a DownwardFacts,
    /// The pod uses the local API, and has to trust its certificate.
    pub uses_local_api: bool,
}

impl<'a> VolumeContext<'a> {
    pub(super) fn layout(&self) -> PodLayout {
        PodLayout::new(self.paths, self.pod.metadata.uid.as_deref().unwrap_or_default())
    }

    pub(super) fn namespace(&self) -> &'a str {
        self.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    fn spec(&self) -> Option<&'a PodSpec> {
        self.pod.spec.as_ref()
    }

    pub(super) fn volumes(&self) -> &'a [Volume] {
        self.spec().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
    }

    pub(super) fn change_policy(&self) -> Option<&'a str> {
        self.spec()?.security_context.as_ref()?.fs_group_change_policy.as_deref()
    }

    pub(super) fn fs_group(&self) -> Option<u32> {
        let group = self.spec()?.security_context.as_ref()?.fs_group?;
        u32::try_from(group).ok()
    }
}

/// Where a volume lies on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHostPath {
    pub path: PathBuf,
    /// The source allows no writes (configMap, secret, downwardAPI, projected).
    pub read_only: bool,
    /// Not of the node's own making: only helpers look there.
    pub foreign: bool,
}

impl VolumeHostPath {
    pub(super) fn own(path: PathBuf, read_only: bool) -> Self {
        Self { path, read_only, foreign: false }
    }

    pub(super) fn foreign(path: PathBuf, read_only: bool) -> Self {
        Self { path, read_only, foreign: true }
    }
}
