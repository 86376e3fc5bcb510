//! Which mounts one container sees, in order: the pod's files, its volumes, the termination message.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::context::VolumeHostPath;
use super::error::VolumeError;
use super::layout::PodLayout;
use super::look::Look;
use super::{image_volume, stop_lock, subpath};
use crate::net::etc_files;
use crate::paths::Paths;
use crate::pod::env::expand_with;
use crate::pod::hold;
use crate::pod::recursive_read_only::recursive_read_only;
use crate::pod::spec::{is_privileged, uid};
use crate::sys::sort::sort_by_key;
use crate::sys::vec_map::VecMap;

const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";

/// How mounts made later travel between host and container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Propagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

/// One bind mount of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Path on the node.
    pub source: PathBuf,
    /// Absolute path in the container.
    pub target: PathBuf,
    pub read_only: bool,
    /// Mounts below it, too (`recursiveReadOnly`; kernel 5.12 and a runtime that can).
    pub recursive_read_only: bool,
    pub propagation: Propagation,
    /// Options that it cannot lose in a user namespace, as `nosuid`: runc before 1.2 does not look for them.
    pub locked: Vec<&'static str>,
    /// The name of its volume, if that is not of the node's own making: only helpers look at the source.
    pub foreign: Option<String>,
}

#[derive(Clone, Copy)]
pub struct MountContext<'a> {
    pub paths: &'a Paths,
    pub pod: &'a Pod,
    pub container: &'a Container,
    /// Result of [`super::setup`].
    pub volumes: &'a VecMap<String, VolumeHostPath>,
    /// The container's environment, for `subPathExpr`.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Folder with `hosts`, `hostname` and `resolv.conf`: what `net::etc_files::write` made.
    pub pod_files: &'a Path,
    /// Empty file made for this attempt, to be mounted at `terminationMessagePath`.
    pub termination_log: &'a Path,
    /// The OCI runtime and the kernel can do it (5.12, `mount_setattr`).
    pub recursive_read_only: bool,
}

/// Whether the pod's containers share one `/dev/shm`: with a single one the OCI runtime's own does.
pub(super) fn shares_memory(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| {
        let containers = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
        containers > 1 && !spec.host_ipc.unwrap_or(false)
    })
}

/// Returns the container's mounts, parents before children. Creates subPath bind mounts. A helper creates those of
/// foreign volumes, and checks whether these answer.
pub fn container_mounts(ctx: &MountContext<'_>) -> Result<(Vec<Mount>, Vec<Look>), VolumeError> {
    let (mut mounts, mut looks) = (Vec::new(), Vec::new());
    for (index, mount) in volume_mounts(ctx.container).iter().enumerate() {
        mounts.push(volume_mount(ctx, index, mount, &mut looks)?);
    }
    // A volume mounted at one of the places below replaces it.
    let taken: Vec<PathBuf> = mounts.iter().map(|mount| mount.target.clone()).collect();
    let own = pod_mounts(ctx).into_iter().chain(stop_lock_mount(ctx)?);
    mounts.extend(own.filter(|mount| !taken.contains(&mount.target)));
    // Stable: mounts of equal depth keep the pod's order.
    sort_by_key(&mut mounts, |mount| mount.target.components().count());
    Ok((mounts, looks))
}

fn volume_mounts(container: &Container) -> &[VolumeMount] {
    container.volume_mounts.as_deref().unwrap_or_default()
}

fn pod_mounts(ctx: &MountContext<'_>) -> Vec<Mount> {
    let read_only_root =
        ctx.container.security_context.as_ref().and_then(|security| security.read_only_root_filesystem);
    let read_only_root = read_only_root.unwrap_or(false);
    let mount = |source: PathBuf, target: &str, read_only: bool| Mount {
        source,
        target: target.into(),
        read_only,
        ..Mount::default()
    };
    let termination = ctx.container.termination_message_path.as_deref().filter(|path| !path.is_empty());
    let mut mounts = vec![
        mount(ctx.pod_files.join(etc_files::HOSTS), "/etc/hosts", false),
        mount(ctx.pod_files.join(etc_files::HOSTNAME), "/etc/hostname", read_only_root),
        mount(ctx.pod_files.join(etc_files::RESOLV_CONF), "/etc/resolv.conf", read_only_root),
        mount(ctx.termination_log.to_path_buf(), termination.unwrap_or(TERMINATION_MESSAGE_PATH), false),
    ];
    let host_ipc = ctx.pod.spec.as_ref().and_then(|spec| spec.host_ipc).unwrap_or(false);
    if host_ipc {
        mounts.push(mount(PathBuf::from("/dev/shm"), "/dev/shm", false));
    } else if shares_memory(ctx.pod) {
        let uid = ctx.pod.metadata.uid.as_deref().unwrap_or_default();
        mounts.push(mount(PodLayout::new(ctx.paths, uid).shm(), "/dev/shm", false));
    }
    mounts
}

/// The file of the stop lock, which is made with the first container that sees it.
fn stop_lock_mount(ctx: &MountContext<'_>) -> Result<Option<Mount>, VolumeError> {
    if hold::stop_lock(ctx.pod).is_none() {
        return Ok(None);
    }
    let source = stop_lock::make(&PodLayout::new(ctx.paths, uid(ctx.pod))).map_err(|error| error.of("stop-lock"))?;
    Ok(Some(Mount { source, target: hold::LOCK_FILE.into(), ..Mount::default() }))
}

fn volume_mount(
    ctx: &MountContext<'_>,
    index: usize,
    mount: &VolumeMount,
    looks: &mut Vec<Look>,
) -> Result<Mount, VolumeError> {
    let invalid = |problem: String| VolumeError::Invalid { volume: mount.name.clone(), problem };
    let volume = ctx.volumes.get(&mount.name).ok_or_else(|| invalid("not found among the pod's volumes".into()))?;
    let recursive_read_only = recursive_read_only(mount, ctx.recursive_read_only).map_err(invalid)?;
    let sub_path = match (mount.sub_path_expr.as_deref(), mount.sub_path.as_deref()) {
        (Some(expression), _) if !expression.is_empty() => {
            // Unlike in `args` an unknown name is an error.
            let value = |name: &str| (ctx.env)(name).ok_or_else(|| format!("missing value for {name}"));
            expand_with(expression, value).map_err(VolumeError::SubPathExpr)?
        }
        (_, Some(path)) => path.to_string(),
        _ => String::new(),
    };
    let source = if sub_path.is_empty() {
        if volume.foreign {
            let touch = Look::Touch { volume: mount.name.clone(), path: volume.path.clone() };
            looks.extend((!looks.contains(&touch)).then_some(touch));
        }
        volume.path.clone()
    } else {
        subpath::check(&sub_path).map_err(invalid)?;
        let uid = ctx.pod.metadata.uid.as_deref().unwrap_or_default();
        let target = PodLayout::new(ctx.paths, uid).subpath(&ctx.container.name, index);
        let (name, container, path) = (mount.name.clone(), ctx.container.name.clone(), volume.path.clone());
        let look = Look::SubPath { volume: name, container, path, sub_path, target: target.clone() };
        match &look {
            _ if volume.foreign => looks.push(look),
            Look::SubPath { sub_path, .. } if is_image(ctx.pod, &mount.name) => {
                image_volume::bind_subpath(&mount.name, &volume.path, sub_path, &target)?;
            }
            own => own.run()?,
        }
        target
    };
    let propagation = match mount.mount_propagation.as_deref() {
        None | Some("" | "None") => Propagation::Private,
        Some("HostToContainer") => Propagation::HostToContainer,
        // The API server checks the same; a static pod does not pass it.
        Some("Bidirectional") if !is_privileged(ctx.container) => {
            return Err(invalid("Bidirectional mount propagation is available only to privileged containers".into()));
        }
        Some("Bidirectional") => Propagation::Bidirectional,
        Some(other) => return Err(invalid(format!("invalid MountPropagation mode: {other:?}"))),
    };
    let target = Path::new("/").join(&mount.mount_path);
    let read_only = volume.read_only || mount.read_only.unwrap_or(false);
    let foreign = volume.foreign.then(|| mount.name.clone());
    Ok(Mount { source, target, read_only, recursive_read_only, propagation, locked: Vec::new(), foreign })
}

fn is_image(pod: &Pod, volume: &str) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|one| one.name == volume && one.image.is_some())
}
