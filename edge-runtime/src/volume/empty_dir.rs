//! emptyDir: a folder of the pod's own, on disk or a tmpfs. Lives until the pod is deleted, over restarts of its
//! containers and of the daemon.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use k8s_openapi::api::core::v1::EmptyDirVolumeSource;

use super::context::VolumeContext;
use super::error::{At, PathError, VolumeError};
use super::layout::{PodLayout, make_dir, mount_tmpfs};
use crate::pod::quantity;

/// Everyone in the pod may write; with fsGroup new files inherit the group. A tmpfs has the mode that the kernel gives
/// it by default, sticky, as on a kubelet.
const MODE: u32 = 0o777;
const MEMORY_MODE: u32 = 0o1777;
const SET_GROUP_ID: u32 = 0o2000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EmptyDir {
    /// Size of the tmpfs for `medium: Memory`.
    memory_bytes: Option<u64>,
}

impl EmptyDir {
    pub(super) fn new(ctx: &VolumeContext<'_>, name: &str, source: &EmptyDirVolumeSource) -> Result<Self, VolumeError> {
        let invalid = |problem: String| VolumeError::Invalid { volume: name.to_string(), problem };
        let limit = source.size_limit.as_ref().map(|limit| {
            let bytes = quantity::value(&limit.0).and_then(|bytes| u64::try_from(bytes).ok());
            bytes.ok_or_else(|| invalid(format!("sizeLimit {:?} is no size", limit.0)))
        });
        let limit = limit.transpose()?.filter(|bytes| *bytes > 0);
        match source.medium.as_deref().unwrap_or_default() {
            "" => Ok(Self::default()),
            "Memory" => {
                let node = Some(ctx.facts.allocatable_memory_bytes).filter(|bytes| *bytes > 0);
                // The limit of the pod's cgroup (K8s pkg/volume/emptydir, `calculateEmptyDirMemorySize`).
                let smallest = [limit, ctx.facts.pod_memory_limit, node].into_iter().flatten().min();
                // Without any figure the kernel's own default of half the memory holds.
                Ok(Self { memory_bytes: Some(smallest.unwrap_or_default()) })
            }
            medium => Err(VolumeError::NotSupported {
                volume: name.to_string(),
                source_type: format!("emptyDir with medium {medium:?}"),
            }),
        }
    }
}

pub(super) fn make(layout: &PodLayout, name: &str, wanted: &EmptyDir, group: Option<u32>) -> Result<(), PathError> {
    let dir = layout.volume(name);
    if let Some(bytes) = wanted.memory_bytes {
        let mode = if group.is_some() { MEMORY_MODE | SET_GROUP_ID } else { MEMORY_MODE };
        let size = if bytes > 0 { format!(",size={bytes}") } else { String::new() };
        let group = group.map(|group| format!(",gid={group}")).unwrap_or_default();
        return mount_tmpfs(&dir, &format!("mode={mode:o}{size}{group}"));
    }
    if dir.exists() {
        // Contents, owner and mode are the pod's by now.
        return Ok(());
    }
    // Finished under another name first: a crash must not leave a folder with the wrong mode. Volume names are DNS
    // labels and cannot begin with a dot.
    let fresh = layout.volume(&format!(".{name}"));
    make_dir(&fresh)?;
    if let Some(group) = group {
        chown(&fresh, None, Some(group)).at("change group of", &fresh)?;
    }
    let mode = if group.is_some() { MODE | SET_GROUP_ID } else { MODE };
    fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).at("change mode of", &fresh)?;
    fs::rename(&fresh, &dir).at("create folder", &dir)
}
