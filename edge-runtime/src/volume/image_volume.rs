//! image: the layers of an image as a read-only volume. Pulling is the node's affair; this mounts what is here.
//!
//! The runtime looks for a `subPath`, as containerd does (internal/cri/server/container_image_mount.go): it makes none.

use std::fs::File;
use std::path::Path;

use super::error::VolumeError;
use super::layout::{PodLayout, make_dir};
use super::subpath;
use crate::image::rootfs::{self, Mapping};
use crate::paths::Paths;

/// Mounts the layers (diff ids, bottom to top) as volume `name` of the pod, for the users of `user_ns`; fine when
/// that is done already.
///
/// # Errors
/// A layer is missing, or the kernel refuses.
pub fn mount(
    paths: &Paths,
    uid: &str,
    name: &str,
    layers: &[String],
    user_ns: Option<&File>,
) -> Result<(), VolumeError> {
    let failed = |problem| VolumeError::Image { volume: name.to_owned(), problem };
    let target = PodLayout::new(paths, uid).image_volume(name);
    make_dir(&target).map_err(|error| error.of(name))?;
    let scratch = target.with_extension("layers");
    let mapping = user_ns.map(|user_ns| Mapping { user_ns, scratch: &scratch });
    rootfs::mount_layers(&paths.layers(), layers, &target, mapping.as_ref()).map_err(|error| failed(error.to_string()))
}

/// Mounts one path of the volume at `target`.
pub(super) fn bind_subpath(volume: &str, root: &Path, sub_path: &str, target: &Path) -> Result<(), VolumeError> {
    let source = subpath::find(root, sub_path).map_err(|error| VolumeError::Image {
        volume: volume.to_owned(),
        problem: format!("subPath {sub_path:?}: {error}"),
    })?;
    subpath::bind_at(&source, &root.join(sub_path), target).map_err(|error| error.of(volume))
}
