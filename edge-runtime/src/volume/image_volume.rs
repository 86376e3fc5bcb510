//! image: the layers of an image as a read-only volume. Pulling is the node's affair; this mounts what is here.
//!
//! The runtime looks for a `subPath`, as containerd does (internal/cri/server/container_image_mount.go): it makes none.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::error::VolumeError;
use super::layout::{PodLayout, make_dir};
use super::subpath;
use crate::image::folders;
use crate::image::rootfs::{self, Mapping};
use crate::paths::Paths;
use crate::store::image_record::{Folder, ImageRecord};
use crate::sys::files::{open_dir, unless_missing};

/// Mounts the layers of the image as volume `name` of the pod, for the users of `user_ns`; fine when that is done
/// already.
///
/// # Errors
/// A layer is missing, or the kernel refuses.
pub fn mount(
    paths: &Paths,
    uid: &str,
    name: &str,
    image: &ImageRecord,
    user_ns: Option<&File>,
) -> Result<(), VolumeError> {
    let failed = |problem| VolumeError::Image { volume: name.to_owned(), problem };
    let target = PodLayout::new(paths, uid).image_volume(name);
    make_dir(&target).map_err(|error| error.of(name))?;
    let is_mounted = rootfs::is_mounted(&target, target.parent().unwrap_or(&target));
    if is_mounted.map_err(|error| failed(error.to_string()))? {
        return Ok(());
    }
    let above = above(&image.config.folders, &target).map_err(|error| failed(error.to_string()))?;
    let scratch = target.with_extension("layers");
    let mapping = user_ns.map(|user_ns| Mapping { user_ns, scratch: &scratch });
    rootfs::mount_layers(&paths.layers(), &image.layers, above.as_deref(), &target, mapping.as_ref())
        .map_err(|error| failed(error.to_string()))
}

/// Makes a topmost layer of the folders that the image's own layers do not describe; `None` without such folders. What
/// is there from an earlier start may be incomplete, or of the image that the tag named then.
fn above(folders: &[Folder], target: &Path) -> io::Result<Option<PathBuf>> {
    let above = target.with_extension("folders");
    unless_missing(fs::remove_dir_all(&above))?;
    if folders.is_empty() {
        return Ok(None);
    }
    open_dir(&above)?;
    folders::lay(folders, &above, 0)?;
    Ok(Some(above))
}

/// Mounts one path of the volume at `target`.
pub(super) fn bind_subpath(volume: &str, root: &Path, sub_path: &str, target: &Path) -> Result<(), VolumeError> {
    let source = subpath::find(root, sub_path).map_err(|error| VolumeError::Image {
        volume: volume.to_owned(),
        problem: format!("subPath {sub_path:?}: {error}"),
    })?;
    subpath::bind_at(&source, &root.join(sub_path), target).map_err(|error| error.of(volume))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::store::image_record::ImageConfig;
    use crate::sys::files::unmount;

    #[test]
    fn folder_without_an_entry_looks_as_in_the_layer_below() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        let hex = |number: usize| format!("{number:064x}");
        for number in 0..2 {
            let folder = paths.layers().join(hex(number)).join("srv");
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(folder.join(number.to_string()), "").unwrap();
        }
        let image = |folders: Vec<Folder>| ImageRecord {
            id: String::new(),
            references: Vec::new(),
            config: ImageConfig { folders, ..ImageConfig::default() },
            layers: (0..2).map(|number| format!("sha256:{}", hex(number))).collect(),
            size: 0,
            pulled_at: 0,
            access: BTreeMap::new(),
        };
        let folder = |mode: u32| vec![Folder { path: "srv".to_owned(), mode, uid: 7, gid: 8 }];
        let target = PodLayout::new(&paths, "u").image_volume("data");
        // An earlier start may have ended amid this.
        fs::create_dir_all(target.with_extension("folders").join("srv")).unwrap();
        // Then the tag moves, twice.
        for (folders, seen) in
            [(folder(0o2770), (0o2770, 7, 8)), (folder(0o711), (0o711, 7, 8)), (Vec::new(), (0o755, 0, 0))]
        {
            let image = image(folders);
            for _ in 0..2 {
                mount(&paths, "u", "data", &image, None).unwrap();
            }
            let found = fs::metadata(target.join("srv")).unwrap();
            let files = fs::read_dir(target.join("srv")).unwrap().count();
            unmount(&target).unwrap();
            assert_eq!(((found.mode() & 0o7777, found.uid(), found.gid()), files), (seen, 2));
        }
        assert!(!target.with_extension("folders").exists());
    }
}
