//! `hostUsers: false`: which ids of the node a pod has for its own, and how its files look through them.
//!
//! K8s pkg/kubelet/userns: 65536 ids for each pod, written into its folder before they are used and free again with
//! the folder. What the pod mounts keeps its owners on the disk and is shown through a mapped mount, which this makes:
//! so any OCI runtime will do that can enter a user namespace.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::look::Look;
use crate::image::rootfs;
use crate::net::namespaces::{self, IDS, NamespaceMaker, NamespaceRequest, UserNamespace};
use crate::paths::Paths;
use crate::sys::files::{self, named};
use crate::sys::idmap;
use crate::volume::mounts::Mount;

/// File name in a pod's folder.
const FILE: &str = "userns";
/// Folder name in a bundle.
const MOUNTS: &str = "mounts";
/// User whose line in `/etc/subuid` bounds the pods' ids, as with the kubelet.
const SUBID_USER: &str = "kubelet";

/// The ids that pods may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ids {
    first: u32,
    pods: u32,
}

impl Ids {
    /// Those of the user `kubelet` in both texts, or all behind the node's own for `max_pods`.
    fn given(subuid: &str, subgid: &str, max_pods: u32) -> Result<Self, String> {
        let line =
            |text: &str| text.lines().find_map(|l| l.strip_prefix(SUBID_USER)?.strip_prefix(':').map(str::to_owned));
        let (users, groups) = (line(subuid), line(subgid));
        let Some(line) = users.as_ref().or(groups.as_ref()) else {
            return Ok(Self { first: IDS, pods: max_pods });
        };
        let numbers =
            |(first, count): (&str, &str)| Some((first.parse::<u32>().ok()?, count.trim().parse::<u32>().ok()?));
        let parsed = line.split_once(':').and_then(numbers);
        match parsed {
            _ if users != groups => Err(format!("{SUBID_USER} has other ids in /etc/subuid than in /etc/subgid")),
            Some((first, count)) if first >= IDS && first % IDS == 0 && count >= IDS => {
                Ok(Self { first, pods: count / IDS })
            }
            _ => Err(format!(
                "{SUBID_USER}:{line} in /etc/subuid: the first id must be a multiple of {IDS} above 0, the count {IDS} or more"
            )),
        }
    }

    fn free(self, taken: &BTreeSet<u32>) -> Option<u32> {
        (0..self.pods).filter_map(|n| self.first.checked_add(n.checked_mul(IDS)?)).find(|first| {
            // The last id of a range must be one.
            first.checked_add(IDS).is_some() && !taken.contains(first)
        })
    }
}

/// The ids for pods, after a trial of all that a pod with its own needs.
///
/// # Errors
/// Returns the missing features of this host.
pub(super) fn detect(paths: &Paths, maker: &NamespaceMaker, max_pods: u32) -> io::Result<Ids> {
    let text = |path| fs::read_to_string(path).unwrap_or_default();
    let ids = Ids::given(&text("/etc/subuid"), &text("/etc/subgid"), max_pods).map_err(io::Error::other)?;
    let dir = paths.run().join("userns-trial");
    let tried = trial(paths, maker, ids, &dir);
    unmap(&dir);
    let cleared = namespaces::remove(&dir.join("ns")).map_err(io::Error::other);
    let cleared = cleared.and_then(|()| files::remove_tree(&dir));
    tried.and(cleared).map(|()| ids)
}

fn trial(paths: &Paths, maker: &NamespaceMaker, ids: Ids, dir: &Path) -> io::Result<()> {
    unmap(dir);
    let request = NamespaceRequest { net: false, ipc: false, hostname: None, sysctls: &[], first_id: Some(ids.first) };
    files::private_dir(dir)?;
    let made = maker.create(&dir.join("ns"), &request).map_err(io::Error::other)?;
    let user = made.user.ok_or_else(|| io::Error::other("no user namespace was made"))?;
    let user = File::open(&user.path)?;
    let mounts = dir.join(MOUNTS);
    files::open_dir(&mounts)?;
    // Two separate folders on the disk, because overlayfs refuses nested layers, and one on a tmpfs.
    fs::create_dir_all(paths.pods())?;
    let sources = [paths.layers(), paths.pods(), paths.run()];
    let mut mapped = Vec::new();
    for (name, source) in ["1", "2", "3"].iter().zip(sources) {
        mapped.push(mounts.join(name));
        show(&source, &user, &mounts.join(name))?;
    }
    mapped.pop();
    let merged = mounts.join("4");
    files::open_dir(&merged)?;
    let laid = rootfs::overlay(&mapped, None, &merged, "");
    laid.map_err(|error| io::Error::other(format!("overlayfs with mapped layers: {error}")))
}

/// Mounts `source` at `target`, which is created, with the owners of the user namespace. Errors have containerd's and
/// runc's wording.
pub(super) fn show(source: &Path, namespace: &File, target: &Path) -> io::Result<()> {
    let made = if source.is_dir() { fs::create_dir(target) } else { File::create(target).map(drop) };
    files::unless_there(made).map_err(named(target))?;
    idmap::bind(source, namespace, target).map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(nix::libc::EINVAL | nix::libc::ENOSYS) => {
                " (maybe the filesystem used doesn't support idmap mounts on this kernel?)"
            }
            _ => "",
        };
        io::Error::other(format!("failed to set MOUNT_ATTR_IDMAP on {}: {error}{hint}", source.display()))
    })
}

/// First id of the pod with this folder; chosen and stored on first use.
///
/// # Errors
/// No range is free, or the file cannot be written.
pub(super) fn first_id(paths: &Paths, uid: &str, ids: Ids) -> io::Result<u32> {
    let dir = paths.pod(uid);
    if let Some(kept) = kept(&dir) {
        return Ok(kept);
    }
    let taken = fs::read_dir(paths.pods())?.flatten().filter_map(|other| kept(&other.path())).collect();
    let first = ids.free(&taken).ok_or_else(|| {
        let none = "could not find an empty slot to allocate a user namespace";
        io::Error::other(format!("{none}: all {} ranges are in use", ids.pods))
    })?;
    // On the disk before it is used.
    let path = dir.join(FILE);
    files::replace(&path, format!("{first}\n").as_bytes(), true).map_err(named(&path))?;
    Ok(first)
}

/// First id of a pod that has been prepared, by its folder.
pub(super) fn kept(dir: &Path) -> Option<u32> {
    fs::read_to_string(dir.join(FILE)).ok()?.trim().parse().ok()
}

/// Gives the pod's root, an unprivileged user here, a way to the root file system in `bundle`, and ownership of `own`.
/// Every user can then pass through the folders above the bundle, but only root can read them.
pub(super) fn give(paths: &Paths, bundle: &Path, own: &Path, user: &UserNamespace) -> io::Result<()> {
    let first = Some(user.first_id);
    chown(own, first, first)?;
    chown(bundle, None, first)?;
    fs::set_permissions(bundle, Permissions::from_mode(0o710))?;
    let run = paths.run();
    if fs::metadata(&run)?.permissions().mode() & 0o001 == 0 {
        // Its files were behind a closed door so far.
        for entry in fs::read_dir(&run)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())) {
            fs::set_permissions(entry.path(), Permissions::from_mode(0o600))?;
        }
    }
    for dir in [bundle.parent(), Some(run.as_path())].into_iter().flatten() {
        fs::set_permissions(dir, Permissions::from_mode(0o711))?;
    }
    closed_door(&run)
}

/// Folders above that are not the node's own.
fn closed_door(run: &Path) -> io::Result<()> {
    let closed = |dir: &&Path| fs::metadata(dir).is_ok_and(|found| found.permissions().mode() & 0o001 == 0);
    run.ancestors().skip(1).find(closed).map_or(Ok(()), |dir| {
        let why = format!("{}: users of a pod with hostUsers: false cannot pass it: chmod o+x", dir.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    })
}

/// Returns the mounts with their owners mapped to the pod's users, each bound below `bundle`. `pod_dir`: an overlay in
/// it is an image volume, which was mapped when it was mounted. Also returns the work of a helper at foreign volumes,
/// before the container starts and after its configuration is written.
///
/// # Errors
/// A file system that cannot be mapped.
pub(super) fn map(user: &UserNamespace, bundle: &Path, pod_dir: &Path, mounts: &mut [Mount]) -> io::Result<Vec<Look>> {
    let namespace = File::open(&user.path).map_err(named(&user.path))?;
    unmap(bundle);
    let dir = bundle.join(MOUNTS);
    files::open_dir(&dir)?;
    let mut looks = Vec::new();
    for (n, mount) in mounts.iter_mut().enumerate() {
        let target = dir.join(n.to_string());
        if let Some(volume) = &mount.foreign {
            let source = std::mem::replace(&mut mount.source, target.clone());
            let (volume, namespace, config) = (volume.clone(), user.path.clone(), bundle.join("config.json"));
            looks.push(Look::Map { volume, source, namespace, target, config });
            continue;
        }
        let is_overlay = || statfs(&mount.source).is_ok_and(|fs| fs.filesystem_type() == OVERLAYFS_SUPER_MAGIC);
        mount.locked = locked(&mount.source);
        if mount.source.starts_with(pod_dir) && is_overlay() {
            continue;
        }
        show(&mount.source, &namespace, &target)?;
        mount.source = target;
    }
    Ok(looks)
}

/// Options of the mount at `source` that cannot be cleared in a user namespace (mount_namespaces(7)).
pub(super) fn locked(source: &Path) -> Vec<&'static str> {
    let Ok(found) = statvfs(source) else { return Vec::new() };
    let all = [(FsFlags::ST_NOSUID, "nosuid"), (FsFlags::ST_NODEV, "nodev"), (FsFlags::ST_NOEXEC, "noexec")];
    all.into_iter().filter(|(flag, _)| found.flags().contains(*flag)).map(|(_, name)| name).collect()
}

/// Takes the mounts of [`map`] away. A container that has them keeps its own.
pub(super) fn unmap(bundle: &Path) {
    let entries = fs::read_dir(bundle.join(MOUNTS)).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        while files::unmount(&path).unwrap_or(false) {}
    }
}

/// Where the layers of a root file system are mapped before they are laid over each other.
pub(super) fn scratch(bundle: &Path) -> PathBuf {
    bundle.join("layers")
}

#[cfg(test)]
mod tests;
