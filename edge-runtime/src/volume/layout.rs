//! Names of everything below a pod's folder, and the two tmpfs that all its volumes share.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use nix::mount::{MsFlags, mount};

use super::error::{At, PathError};
use crate::paths::Paths;

#[derive(Clone, Debug)]
pub(super) struct PodLayout {
    pod: PathBuf,
}

impl PodLayout {
    pub(super) fn new(paths: &Paths, uid: &str) -> Self {
        Self { pod: paths.pod(uid) }
    }

    pub(super) fn pod(&self) -> &Path {
        &self.pod
    }

    /// An emptyDir.
    pub(super) fn volume(&self, name: &str) -> PathBuf {
        self.pod.join("volumes").join(name)
    }

    /// A volume made from API objects.
    pub(super) fn object_volume(&self, name: &str) -> PathBuf {
        self.pod.join("objects").join(name)
    }

    /// The layers of an image, merged.
    pub(super) fn image_volume(&self, name: &str) -> PathBuf {
        self.pod.join("images").join(name)
    }

    /// Says that everything in a claim's volume belongs to the pod's group.
    pub(super) fn owned(&self, name: &str) -> PathBuf {
        self.pod.join("owned").join(name)
    }

    /// Bind mount of one subPath: `index` is the place in the container's `volumeMounts`.
    pub(super) fn subpath(&self, container: &str, index: usize) -> PathBuf {
        self.pod.join("subpaths").join(container).join(index.to_string())
    }

    pub(super) fn shm(&self) -> PathBuf {
        self.pod.join("shm")
    }

    /// Mount point of the stop lock's file.
    pub(super) fn stop_lock(&self) -> PathBuf {
        self.pod.join("stop-lock")
    }

    /// Folders that belong to volumes.
    pub(super) fn all(&self) -> [PathBuf; 6] {
        ["subpaths", "volumes", "objects", "images", "shm", "stop-lock"].map(|name| self.pod.join(name))
    }

    /// Secrets must not reach the disk, not even by swapping (`noswap`, kernel 6.3; older kernels refuse the option
    /// and complain in their log, so they are asked once).
    pub(super) fn mount_objects(&self) -> Result<(), PathError> {
        static SWAPS: AtomicBool = AtomicBool::new(false);
        let dir = self.pod.join("objects");
        let options = "mode=0755,size=128m";
        if !SWAPS.load(Ordering::Relaxed) {
            match mount_tmpfs(&dir, &format!("{options},noswap")) {
                Err(error) if error.source.raw_os_error() == Some(nix::libc::EINVAL) => {
                    SWAPS.store(true, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        mount_tmpfs(&dir, options)
    }

    /// Mounts `/dev/shm`, which containers of one pod share; its size is the default of container runtimes.
    pub(super) fn mount_shm(&self) -> Result<(), PathError> {
        mount_tmpfs(&self.shm(), "mode=1777,size=64m")
    }
}

/// Mounts a tmpfs; fine when something is mounted there already.
pub(super) fn mount_tmpfs(dir: &Path, options: &str) -> Result<(), PathError> {
    make_dir(dir)?;
    if is_mount_point(dir).at("look at", dir)? {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), dir, Some("tmpfs"), flags, Some(options)).at("mount tmpfs at", dir)
}

/// Makes a folder and its parents for root alone; a container sees what is mounted from it, never the way there.
pub(super) fn make_dir(dir: &Path) -> Result<(), PathError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).at("create folder", dir)
}

/// By device number: a bind mount of the same file system is not seen, a tmpfs always is.
fn is_mount_point(dir: &Path) -> io::Result<bool> {
    let parent = dir.parent().unwrap_or(dir);
    Ok(fs::symlink_metadata(dir)?.dev() != fs::symlink_metadata(parent)?.dev())
}
