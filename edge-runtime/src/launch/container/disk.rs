//! Root file system and mounts of a container, and what it leaves in files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::{Containers, image_volumes, own_boot, termination};
use crate::clock;
use crate::image::folders;
use crate::image::rootfs::{self, Mapping};
use crate::launch::error::ContainerError;
use crate::launch::look::Look;
use crate::launch::sandbox::Sandbox;
use crate::launch::user_ns;
use crate::net::namespaces::UserNamespace;
use crate::pod::ephemeral::definition;
use crate::pod::spec::{name, namespace, uid};
use crate::store::image_record::ImageRecord;
use crate::sys::files;
use crate::sys::gather::Gather;
use crate::volume::mounts::{self, MountContext};

impl Containers {
    /// Mounts of the container beside its root file system, and the work of a helper for them.
    pub(super) fn mounts(
        &self,
        sandbox: &Sandbox,
        pod: &Pod,
        container: &Container,
        env: &[(String, String)],
        dir: &Path,
    ) -> Result<(Vec<mounts::Mount>, Vec<Look>), ContainerError> {
        let (paths, uid) = (&self.base.paths, uid(pod));
        let termination_log = dir.join("termination-log");
        termination_file(&termination_log)?;
        let lookup: BTreeMap<&str, &str> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).into_map();
        let (mounts, looks) = mounts::container_mounts(&MountContext {
            paths,
            pod,
            container,
            volumes: &sandbox.prepared.volumes,
            env: &|name| lookup.get(name).map(|value| (*value).to_owned()),
            pod_files: &paths.pod_files(uid),
            termination_log: &termination_log,
            recursive_read_only: self.recursive_read_only,
        })
        .map_err(|error| {
            if error.is_of_image() { ContainerError::create(error) } else { ContainerError::config(error) }
        })?;
        Ok((mounts, looks.into_iter().map(Look::Volume).collect()))
    }

    pub(super) fn root_file_system(
        &self,
        dir: &Path,
        bundle: &Path,
        image: &ImageRecord,
        user: Option<(&UserNamespace, &File)>,
    ) -> Result<PathBuf, ContainerError> {
        let (upper, work, root) = (dir.join("upper"), dir.join("work"), bundle.join("rootfs"));
        files::private_dir(dir)?;
        files::private_dir(bundle)?;
        files::open_dir(&root)?;
        if !rootfs::is_mounted(&root, &upper)? {
            clock::boot_id().and_then(|boot| own_boot::renew(dir, &boot, &self.base.trash))?;
        }
        // The container's root folder itself must be open to its users.
        for path in [&upper, &work] {
            files::open_dir(path)?;
        }
        if let Some((user, _)) = user {
            user_ns::give(&self.base.paths, bundle, &upper, user)?;
        }
        // Does not overwrite files of the container.
        if std::fs::read_dir(&upper)?.next().is_none() {
            folders::lay(&image.config.folders, &upper, user.map_or(0, |(user, _)| user.first_id))?;
        }
        let scratch = user_ns::scratch(bundle);
        let mapping = user.map(|(_, user_ns)| Mapping { user_ns, scratch: &scratch });
        rootfs::mount_rootfs(&self.base.paths.layers(), &image.layers, &upper, &work, &root, mapping.as_ref())?;
        Ok(root)
    }

    /// Takes away what [`Containers::prepare`] made; log files stay. Safe at any time after the
    /// container has ended, also twice.
    ///
    /// # Errors
    /// Something is still in use.
    pub fn remove(&self, uid: &str, container: &str, attempt: u32, id: &str) -> std::io::Result<()> {
        let bundle = self.base.paths.bundle(id);
        rootfs::unmount_rootfs(&bundle.join("rootfs")).map_err(std::io::Error::other)?;
        user_ns::unmap(&bundle);
        files::remove_tree(&bundle)?;
        let dir = self.base.paths.attempt(uid, container, attempt);
        image_volumes::unmount(&dir)?;
        self.base.trash.throw(&dir)
    }

    /// Content of an ended container's `terminationMessagePath`. If it `failed` and its policy permits, the end of its
    /// log instead.
    pub fn termination_message(&self, pod: &Pod, container: &str, attempt: u32, failed: bool) -> String {
        let (paths, uid) = (&self.base.paths, uid(pod));
        let file = paths.attempt(uid, container, attempt).join("termination-log");
        let definition = definition(pod, container);
        let policy = definition.as_ref().and_then(|c| c.termination_message_policy.as_deref());
        let log = (failed && policy == Some("FallbackToLogsOnError"))
            .then(|| paths.container_log(namespace(pod), name(pod), uid, container, attempt));
        termination::message(&file, log.as_deref())
    }
}

/// Any user of the container may write its last words.
fn termination_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, b"")?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
}
