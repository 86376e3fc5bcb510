//! Which of the ways to make a volume one takes, from its source. Touches nothing.

use k8s_openapi::api::core::v1::Volume;

use super::context::VolumeContext;
use super::empty_dir::EmptyDir;
use super::error::VolumeError;
use super::host_path::HostPath;
use super::layout::PodLayout;
use super::payload::{self, Payload};
use super::{atomic, claim, csi};

/// What to create, decided for all volumes before anything is touched.
pub(super) enum Plan<'a> {
    Empty(EmptyDir),
    Host(HostPath<'a>),
    Claim(claim::Bound),
    /// A helper mounts it before all else of the pod.
    Csi(Box<csi::CsiVolume>),
    Objects(Payload),
    /// Mounted when the first container needs it: only then it is pulled.
    Image,
    /// Made from objects earlier; one of these is gone. A running pod keeps its files.
    Keep,
}

/// Returns the way to make a volume.
///
/// # Errors
/// The volume is malformed, not supported here, or waits for an object.
pub(super) fn plan<'a>(
    ctx: &VolumeContext<'a>,
    layout: &PodLayout,
    volume: &'a Volume,
) -> Result<Plan<'a>, VolumeError> {
    if let Some(source) = &volume.host_path {
        return Ok(Plan::Host(HostPath { path: &source.path, type_: source.type_.as_deref().unwrap_or("") }));
    }
    if let Some(claim) = claim::Reference::of(ctx.pod, volume) {
        return Ok(match claim::find(ctx, &volume.name, &claim)? {
            claim::Found::Here(bound) => Plan::Claim(bound),
            claim::Found::Csi(bound) => Plan::Csi(bound),
        });
    }
    if let Some(source) = &volume.csi {
        return Ok(Plan::Csi(Box::new(csi::CsiVolume::inline(ctx, &volume.name, source))));
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
        (Some(source), _) => Ok(Plan::Empty(EmptyDir::new(ctx, &volume.name, source)?)),
        // An API server defaults a volume without a source so; a static pod comes without that.
        (None, None) => Ok(Plan::Empty(EmptyDir::default())),
        (None, Some(source_type)) => {
            Err(VolumeError::NotSupported { volume: volume.name.clone(), source_type: source_type.to_string() })
        }
    }
}
