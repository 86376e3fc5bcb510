//! Which volumes of a pod are of CSI drivers. Pure but for the object lookup.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use sampan_plugins_control::CsiMount;

use super::claim::{self, Reference};
use super::context::{ObjectLookup, VolumeContext};
use super::csi::{CsiVolume, driver_spec, requests};
use super::error::{SET_UP, VolumeError};
use super::plan::{Plan, plan};
use crate::pod::token::Wanted;

/// The volumes of CSI drivers of the pod.
///
/// # Errors
/// A claim that is not bound yet, or is of another pod.
pub fn of_pod(ctx: &VolumeContext<'_>) -> Result<Vec<CsiVolume>, VolumeError> {
    let (layout, mut all) = (ctx.layout(), Vec::new());
    for volume in ctx.volumes() {
        if volume.csi.is_none() && Reference::of(ctx.pod, volume).is_none() {
            continue;
        }
        if let Plan::Csi(csi) = plan(ctx, &layout, volume)? {
            all.push(*csi);
        }
    }
    Ok(all)
}

/// Returns the order to mount a volume of the pod.
///
/// # Errors
/// It is not attached; a Secret or a token is missing; the driver has no inline volumes.
pub fn order(ctx: &VolumeContext<'_>, folder: &str) -> Result<CsiMount, VolumeError> {
    // Volumes of the pod that name one claim are one mount, which is writable if one of them is. Containers have the
    // others read-only all the same.
    match of_pod(ctx)?.iter().filter(|volume| volume.folder == folder).min_by_key(|volume| volume.read_only) {
        Some(volume) => volume.order(ctx),
        None => {
            let problem = "the pod has no such volume any more".to_owned();
            Err(VolumeError::Csi { verb: SET_UP, volume: folder.to_owned(), problem })
        }
    }
}

/// Adds the tokens that drivers of the pod's volumes ask for (`tokenRequests` of CSIDriver).
pub fn wanted_tokens(pod: &Pod, objects: ObjectLookup<'_>, wanted: &mut BTreeSet<Wanted>) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let of_claim = || {
            let claim = objects(claim::KIND, namespace, &Reference::of(pod, volume)?.name)?;
            claim.pointer("/volume/spec/csi/driver")?.as_str().map(str::to_owned)
        };
        let driver = volume.csi.as_ref().map(|csi| csi.driver.clone()).or_else(of_claim);
        if let Some(driver) = driver {
            wanted.extend(requests(&driver_spec(objects, &driver)));
        }
    }
}

#[cfg(test)]
mod tests;
