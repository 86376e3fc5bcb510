//! A pod's volumes on this node: made before its containers, refreshed while they run, gone with the pod.
//!
//! Everything of a pod lies below `Paths::pod(uid)`: `volumes/NAME` (emptyDir, on disk or its own tmpfs),
//! `objects/NAME` (configMap, secret, downwardAPI, projected; one tmpfs per pod, so that no secret and no copy of an
//! object wears the flash), `images/NAME` (image), `subpaths/CONTAINER/INDEX` (bind mounts), `shm` (shared by several
//! containers), `stop-lock` (a tmpfs with the file that the pod may lock).
//! Knows nothing of stores and containers' lives.

mod atomic;
mod claim;
mod context;
pub mod csi;
pub mod csi_kept;
pub mod csi_pod;
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
mod plan;
pub mod stop_lock;
pub mod subpath;
mod teardown;

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Volume;

pub use claim::{PROVISIONED, is_volume_name};
pub use context::{ObjectLookup, VolumeContext, VolumeHostPath};
pub use downward::DownwardFacts;
pub use error::VolumeError;
pub use ownership::Owning;
use plan::{Plan, plan};
pub use teardown::teardown;

use crate::pod::spec::uid;
use crate::sys::vec_map::VecMap;

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
            Plan::Csi(csi) => match csi_kept::path(ctx.paths, uid(ctx.pod), &csi.folder) {
                Some(path) => VolumeHostPath::foreign(path, csi.read_only),
                None => return Err(csi.not_supported()),
            },
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
