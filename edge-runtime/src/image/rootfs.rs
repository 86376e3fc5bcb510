//! Makes one tree of an image's layers and a container's writable layer, with overlayfs.
//! Knows folders only, neither images nor pods.

use crate::image::ImageError;
use std::path::Path;

/// Mounts the layers (diff ids, bottom to top, folders below `layers_dir`) with `upper` above them at `target`.
/// `upper`, `work` and `target` must exist; `upper` and `work` on one file system.
///
/// # Errors
/// A layer is missing, or the kernel refuses the mount.
pub fn mount_rootfs(
    layers_dir: &Path,
    layers: &[String],
    upper: &Path,
    work: &Path,
    target: &Path,
) -> Result<(), ImageError> {
    let _ = (layers_dir, layers, upper, work, target);
    Err(ImageError::Helper { reason: "CreateContainerError".into(), why: "rootfs is not built yet".into() })
}

/// Takes the mount away; it is no error when nothing is mounted.
///
/// # Errors
/// The kernel refuses.
pub fn unmount_rootfs(target: &Path) -> Result<(), ImageError> {
    let _ = target;
    Ok(())
}
