//! Checks of foreign paths: a hostPath, a local volume, a folder in one of them. Such a path may be on a file system
//! whose server is unreachable, where a check never ends. So this runs in a helper process (the verb `look`), and the
//! daemon only gets its result.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::context::VolumeContext;
use super::error::{At, PathError, VolumeError};
use super::ownership::{self, Owning, Progress, set_mark};
use super::plan::{Plan, plan};
use super::{host_path, subpath};
use crate::sys::files::private_dir;

/// One thing to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// A hostPath: created if its type requires it, and checked.
    Host { volume: String, path: PathBuf, type_: String },
    /// A local persistent volume, which must exist, unless the node creates it (`made`).
    Local { volume: String, path: PathBuf, made: bool, group: Option<Group> },
    /// A folder or file inside one, bound to `target`.
    SubPath { volume: String, container: String, path: PathBuf, sub_path: String, target: PathBuf },
    /// Just before the OCI runtime mounts it: whether it answers.
    Touch { volume: String, path: PathBuf },
}

/// The pod's group, which is to have the whole volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub id: u32,
    /// `fsGroupChangePolicy: OnRootMismatch`.
    pub on_root_mismatch: bool,
    /// Made when that is done.
    pub mark: PathBuf,
}

impl Look {
    /// Where it looks.
    pub fn path(&self) -> &Path {
        match self {
            Self::Host { path, .. }
            | Self::Local { path, .. }
            | Self::SubPath { path, .. }
            | Self::Touch { path, .. } => path,
        }
    }

    /// Message for the user of the volume when the check failed because of `problem`.
    pub fn failed(&self, problem: &str) -> String {
        match self {
            Self::SubPath { volume, container, .. } => {
                format!("failed to prepare subPath for volumeMount {volume:?} of container {container:?}: {problem}")
            }
            Self::Host { volume, .. } | Self::Local { volume, .. } | Self::Touch { volume, .. } => {
                format!("MountVolume.SetUp failed for volume {volume:?} : {problem}")
            }
        }
    }

    /// Does it, for as long as it takes.
    ///
    /// # Errors
    /// The pod cannot have this volume; [`VolumeError::Owning`] when another helper has to work on it.
    pub fn run(&self) -> Result<(), VolumeError> {
        match self {
            Self::Host { volume, path, type_ } => {
                host_path::check(volume, &host_path::HostPath { path: &path.display().to_string(), type_ })
            }
            Self::Local { volume, path, made, group } => {
                if *made {
                    provision(path).map_err(|error| error.of(volume))?;
                }
                local(volume, path, group.as_ref())
            }
            Self::SubPath { volume, container, path, sub_path, target } => subpath::bind(path, sub_path, target)
                .map_err(|PathError { action, path, source }| {
                    let (volume, container) = (volume.clone(), container.clone());
                    VolumeError::SubPath { volume, container, action, path, source }
                }),
            Self::Touch { path, .. } => {
                // Whether it is there is the OCI runtime's to say.
                let _ = fs::metadata(path);
                Ok(())
            }
        }
    }
}

/// Makes the folder of a volume, for containers of any user: they see nothing of what is above it.
fn provision(path: &Path) -> Result<(), PathError> {
    let parent = path.parent().unwrap_or(path);
    private_dir(parent).at("create folder", parent)?;
    match fs::create_dir(path) {
        // Set again: the umask of a service is often 077.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o777))
            // Files that a pod has synced in it must survive a power cut.
            .and_then(|()| File::open(parent)?.sync_all())
            .at("create folder", path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error).at("create folder", path),
    }
}

fn local(volume: &str, path: &Path, group: Option<&Group>) -> Result<(), VolumeError> {
    let Ok(found) = fs::metadata(path) else {
        let problem = format!("path {path:?} does not exist");
        return Err(VolumeError::Claim { volume: volume.to_owned(), problem });
    };
    let Some(Group { id, on_root_mismatch, mark }) = group.filter(|group| found.is_dir() && !group.mark.exists())
    else {
        return Ok(());
    };
    let done = ownership::apply(path, *id, *on_root_mismatch).map_err(|error| error.of(volume))?;
    if matches!(done, Progress::TooMuch(_)) {
        let owning = Owning { path: path.to_path_buf(), group: *id, mark: mark.clone() };
        return Err(VolumeError::Owning(Box::new(owning)));
    }
    set_mark(mark).map_err(|error| error.of(volume))
}

/// Checks to run before [`super::setup`]. A malformed volume does not get one: `setup` reports it.
pub fn looks(ctx: &VolumeContext<'_>) -> Vec<Look> {
    let layout = ctx.layout();
    let of = |volume: &k8s_openapi::api::core::v1::Volume| {
        let name = volume.name.clone();
        match plan(ctx, &layout, volume) {
            Ok(Plan::Host(host)) => {
                Some(Look::Host { volume: name, path: host.path.into(), type_: host.type_.to_owned() })
            }
            Ok(Plan::Claim(bound)) => Some(match bound.host_path_type {
                Some(type_) => Look::Host { volume: name, path: bound.path, type_ },
                None => {
                    let group = ctx.fs_group().filter(|_| !bound.read_only);
                    let group = group.map(|id| Group {
                        id,
                        on_root_mismatch: ctx.change_policy() == Some("OnRootMismatch"),
                        mark: layout.owned(&name),
                    });
                    Look::Local { volume: name, path: bound.path, made: bound.provisioned, group }
                }
            }),
            _ => None,
        }
    };
    // Payloads are not needed here, so it does not read them.
    let foreign = |volume: &&k8s_openapi::api::core::v1::Volume| {
        volume.host_path.is_some() || volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some()
    };
    ctx.volumes().iter().filter(foreign).filter_map(of).collect()
}
