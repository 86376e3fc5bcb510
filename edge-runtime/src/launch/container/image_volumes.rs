//! `VOLUME` of an image: a folder of the container's own at that path, with the image's content, deleted with the
//! container. It is not on the root file system, so it is writable when that is read-only. It is not an overlay if the
//! image has nothing there, so an overlay can be mounted in it (Docker in Docker).

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::image::rootfs::{is_mounted, overlay, unmount_rootfs};
use crate::sys::beneath::open_in_root;
use crate::sys::files;
use crate::volume::mounts::Mount;

/// Name of the folder within an attempt's folder.
pub(super) const FOLDER: &str = "volumes";
const HELD: &str = "held";
const WORK: &str = "work";
const SHOWN: &str = "shown";

/// Mounts for the image's `volumes`, made in the attempt's folder `dir`. What the pod mounts at the same path has precedence,
/// as with containerd. `first` is root of the pod's user namespace.
///
/// # Errors
/// A folder cannot be made, or the image's content not be shown in it.
pub(super) fn make(
    volumes: &[String],
    root: &Path,
    dir: &Path,
    pods: &[Mount],
    first: Option<u32>,
) -> io::Result<Vec<Mount>> {
    let mut mounts = Vec::new();
    for (number, target) in volumes.iter().enumerate() {
        if pods.iter().any(|mount| mount.target.components().eq(Path::new(target).components())) {
            continue;
        }
        let own = dir.join(FOLDER).join(number.to_string());
        let source = one(target, root, &own, first)
            .map_err(|error| io::Error::new(error.kind(), format!("VOLUME {target} of the image: {error}")))?;
        mounts.extend(source.map(|source| Mount { source, target: target.into(), ..Mount::default() }));
    }
    Ok(mounts)
}

/// Returns the folder to mount; `None` if the image has a file there.
fn one(target: &str, root: &Path, own: &Path, first: Option<u32>) -> io::Result<Option<PathBuf>> {
    let opened = open_in_root(File::open(root)?, target, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK);
    let image = match opened {
        Ok(folder) => Some(folder),
        Err(Errno::ENOENT) => None,
        Err(Errno::ENOTDIR) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let held = own.join(HELD);
    let is_new = !held.exists();
    fs::create_dir_all(own)?;
    files::open_dir(&held)?;
    let has_content = match &image {
        Some(folder) => fs::read_dir(by_descriptor(folder.as_fd()))?.next().is_some(),
        None => false,
    };
    if is_new {
        let found = image.as_ref().map(|folder| fs::metadata(by_descriptor(folder.as_fd()))).transpose()?;
        let (uid, gid, mode) = found.map_or((0, 0, 0o755), |found| (found.uid(), found.gid(), found.mode() & 0o7777));
        // A plain folder is shown to the pod's users as they are on the disk; through an overlay they are seen as they are.
        let shift = |id: u32| if has_content { id } else { id.saturating_sub(first.unwrap_or(0)) };
        chown(&held, Some(shift(uid)), Some(shift(gid)))?;
        fs::set_permissions(&held, Permissions::from_mode(mode))?;
    }
    let Some(image) = image.filter(|_| has_content) else { return Ok(Some(held)) };
    let (work, shown) = (own.join(WORK), own.join(SHOWN));
    files::open_dir(&work)?;
    files::open_dir(&shown)?;
    if !is_mounted(&shown, &held)? {
        let lower = [by_descriptor(image.as_fd())];
        let _ = fs::remove_dir_all(work.join("work/incompat"));
        overlay(&lower, Some([&held, &work]), &shown, ",volatile")
            .or_else(|_| overlay(&lower, Some([&held, &work]), &shown, ""))?;
    }
    Ok(Some(shown))
}

fn by_descriptor(folder: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", folder.as_raw_fd()).into()
}

/// Takes the mounts away that [`make`] made in the attempt's folder.
///
/// # Errors
/// One is still in use.
pub(super) fn unmount(dir: &Path) -> io::Result<()> {
    let volumes = files::unless_missing(fs::read_dir(dir.join(FOLDER)))?;
    for volume in volumes.into_iter().flatten() {
        unmount_rootfs(&volume?.path().join(SHOWN)).map_err(io::Error::other)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_folders_like_those_of_the_image() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let (root, dir) = (temp.path().join("root"), temp.path().join("c/0"));
        fs::create_dir_all(root.join("data/db")).unwrap();
        fs::set_permissions(root.join("data/db"), Permissions::from_mode(0o1770)).unwrap();
        chown(root.join("data/db"), Some(1000), Some(1000)).unwrap();
        fs::write(root.join("file"), "").unwrap();
        let volumes = ["/data/db", "/file", "/mine", "/none"].map(str::to_owned);
        let pods = [Mount { target: "/mine/".into(), ..Mount::default() }];
        let made = make(&volumes, &root, &dir, &pods, None).unwrap();
        let targets: Vec<_> = made.iter().map(|mount| mount.target.to_str().unwrap()).collect();
        assert_eq!(targets, ["/data/db", "/none"]);
        let like = |mount: &Mount| {
            let found = fs::metadata(&mount.source).unwrap();
            (found.uid(), found.gid(), found.mode() & 0o7777)
        };
        assert_eq!((like(&made[0]), like(&made[1])), ((1000, 1000, 0o1770), (0, 0, 0o755)));
        // A repeated step of the same start finds what the container wrote.
        fs::write(made[0].source.join("row"), "kept").unwrap();
        assert_eq!(make(&volumes, &root, &dir, &pods, None).unwrap(), made);
        assert_eq!(fs::read_to_string(made[0].source.join("row")).unwrap(), "kept");
        unmount(&dir).unwrap();
    }
}
