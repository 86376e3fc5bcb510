//! A pod's volumes on this node: made before its containers, refreshed while they run, gone with the pod.
//!
//! Everything of a pod lies below `Paths::pod(uid)`: `volumes/NAME` (emptyDir, on disk or its own tmpfs),
//! `objects/NAME` (configMap, secret, downwardAPI, projected; one tmpfs per pod, so that no secret and no copy of an
//! object wears the flash), `images/NAME` (image), `subpaths/CONTAINER/INDEX` (bind mounts), `shm` (shared by several
//! containers).
//! Knows nothing of stores and containers' lives.

mod atomic;
mod claim;
pub mod downward;
mod empty_dir;
pub mod error;
mod host_path;
pub mod image_volume;
mod layout;
pub mod look;
pub mod mounts;
mod nested;
mod ownership;
mod payload;
pub mod subpath;
mod teardown;

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};
use serde_json::Value;

use crate::paths::Paths;
use crate::sys::vec_map::VecMap;
pub use downward::DownwardFacts;
pub use error::VolumeError;
use layout::PodLayout;
pub use ownership::Owning;
use payload::Payload;
pub use teardown::teardown;

/// Path of volumes of the cluster's local provisioner (`sampan.dev/local`), on every node. A node with another root has
/// them below that.
pub const PROVISIONED: &str = "/var/lib/edge-runtime/volumes";

/// Whether this can be the name of a provisioned volume: one folder, and none that is hidden.
pub fn is_volume_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && !name.contains('/') && !name.contains('\0')
}

/// Looks up a ConfigMap or Secret that the node holds: `(kind, namespace, name)` to the object's JSON.
pub type ObjectLookup<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Value>;

/// All that volumes of one pod are made from.
#[derive(Clone, Copy)]
pub struct VolumeContext<'a> {
    pub paths: &'a Paths,
    pub pod: &'a Pod,
    pub objects: ObjectLookup<'a>,
    pub facts: &'a DownwardFacts,
}

impl<'a> VolumeContext<'a> {
    fn layout(&self) -> PodLayout {
        PodLayout::new(self.paths, self.pod.metadata.uid.as_deref().unwrap_or_default())
    }

    fn spec(&self) -> Option<&'a PodSpec> {
        self.pod.spec.as_ref()
    }

    fn volumes(&self) -> &'a [Volume] {
        self.spec().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
    }

    fn change_policy(&self) -> Option<&'a str> {
        self.spec()?.security_context.as_ref()?.fs_group_change_policy.as_deref()
    }

    fn fs_group(&self) -> Option<u32> {
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
    fn own(path: PathBuf, read_only: bool) -> Self {
        Self { path, read_only, foreign: false }
    }

    fn foreign(path: PathBuf, read_only: bool) -> Self {
        Self { path, read_only, foreign: true }
    }
}

/// What to create, decided for all volumes before anything is touched.
enum Plan<'a> {
    Empty(empty_dir::EmptyDir),
    Host(host_path::HostPath<'a>),
    Claim(claim::Bound),
    Objects(Payload),
    /// Mounted when the first container needs it: only then it is pulled.
    Image,
    /// Made from objects earlier; one of these is gone. A running pod keeps its files.
    Keep,
}

/// Sets up every volume of the pod. Can be called again, for a retry or after a restart of the daemon: mounts of
/// running containers stay. Foreign paths are used as [`look::looks`] found them.
pub fn setup(ctx: &VolumeContext<'_>) -> Result<VecMap<String, VolumeHostPath>, VolumeError> {
    let layout = ctx.layout();
    let plans = ctx.volumes().iter().map(|volume| Ok((volume, plan(ctx, &layout, volume)?)));
    let plans: Vec<(&Volume, Plan<'_>)> = plans.collect::<Result<_, VolumeError>>()?;
    if plans.iter().any(|(_, plan)| matches!(plan, Plan::Objects(_))) {
        layout.mount_objects().map_err(|error| error.of("objects"))?;
    }
    if mounts::shares_memory(ctx.pod) {
        layout.mount_shm().map_err(|error| error.of("shm"))?;
    }
    let mut made = VecMap::new();
    for (volume, plan) in plans {
        let name = &volume.name;
        let path = match plan {
            Plan::Empty(wanted) => {
                empty_dir::make(&layout, name, &wanted, ctx.fs_group()).map_err(|error| error.of(name))?;
                VolumeHostPath::own(layout.volume(name), false)
            }
            Plan::Host(wanted) => VolumeHostPath::foreign(PathBuf::from(wanted.path), false),
            Plan::Claim(bound) => VolumeHostPath::foreign(bound.path, bound.read_only),
            Plan::Objects(payload) => {
                let dir = layout.object_volume(name);
                atomic::write(&dir, &payload, ctx.fs_group()).map_err(|error| error.of(name))?;
                nested::make_mount_points(&dir, name, ctx.pod).map_err(|error| error.of(name))?;
                VolumeHostPath::own(dir, true)
            }
            Plan::Image => VolumeHostPath::own(layout.image_volume(name), true),
            Plan::Keep => VolumeHostPath::own(layout.object_volume(name), true),
        };
        made.insert(name.clone(), path);
    }
    Ok(made)
}

fn plan<'a>(ctx: &VolumeContext<'a>, layout: &PodLayout, volume: &'a Volume) -> Result<Plan<'a>, VolumeError> {
    if let Some(source) = &volume.host_path {
        return Ok(Plan::Host(host_path::HostPath {
            path: &source.path,
            type_: source.type_.as_deref().unwrap_or(""),
        }));
    }
    if let Some(source) = &volume.persistent_volume_claim {
        return claim::find(ctx, &volume.name, source).map(Plan::Claim);
    }
    if volume.image.is_some() {
        return Ok(Plan::Image);
    }
    match payload::of_volume(ctx, volume) {
        Some(Ok(payload)) => return Ok(Plan::Objects(payload)),
        Some(Err(error)) if error.is_missing() && atomic::exists(&layout.object_volume(&volume.name)) => {
            return Ok(Plan::Keep);
        }
        Some(Err(error)) => return Err(error),
        None => {}
    }
    match (&volume.empty_dir, payload::source_type(volume)) {
        (Some(source), _) => Ok(Plan::Empty(empty_dir::EmptyDir::new(ctx, &volume.name, source)?)),
        // An API server defaults a volume without a source so; a static pod comes without that.
        (None, None) => Ok(Plan::Empty(empty_dir::EmptyDir::default())),
        (None, Some(source_type)) => {
            Err(VolumeError::NotSupported { volume: volume.name.clone(), source_type: source_type.to_string() })
        }
    }
}

/// Brings configMap, secret, downwardAPI and projected volumes up to date; returns the names of those that changed.
/// An object that has gone leaves its files as they are. Does nothing for volumes not yet made.
pub fn update(ctx: &VolumeContext<'_>) -> Result<Vec<String>, VolumeError> {
    let layout = ctx.layout();
    let mut changed = Vec::new();
    for volume in ctx.volumes() {
        let dir = layout.object_volume(&volume.name);
        let payload = match payload::of_volume(ctx, volume) {
            Some(Ok(payload)) if atomic::exists(&dir) => payload,
            Some(Err(error)) if !error.is_missing() => return Err(error),
            _ => continue,
        };
        if atomic::write(&dir, &payload, ctx.fs_group()).map_err(|error| error.of(&volume.name))? {
            changed.push(volume.name.clone());
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests;
