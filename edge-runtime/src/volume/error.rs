//! Why a pod's volumes are not ready. The texts are the kubelet's, because users search for them.

use std::io;
use std::path::{Path, PathBuf};

use super::ownership::Owning;

/// Steps of a volume of a CSI driver, as the kubelet calls them in messages.
pub const ATTACH: &str = "AttachVolume.Attach";
pub const MAP: &str = "MapVolume.SetUpDevice";
pub const SET_UP: &str = "MountVolume.SetUp";
pub const TEAR_DOWN: &str = "UnmountVolume.TearDown";

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Cured by the token's arrival: wait and try again. Why it is missing is the node's to add.
    #[error("MountVolume.SetUp failed for volume {volume:?} : failed to fetch token")]
    MissingToken { volume: String },
    /// Cured by the start of the helper for the API: wait and try again.
    #[error(
        "MountVolume.SetUp failed for volume {volume:?} : the local API has no certificate yet: edge-api has not started \
         on this node"
    )]
    MissingCertificate { volume: String },
    /// Cured by the object's arrival: wait and try again.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {} {name:?} not found", kind.to_ascii_lowercase())]
    Missing { volume: String, kind: &'static str, name: String },
    /// Cured by the next connection to the bridge: wait and try again.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {problem}")]
    Withheld { volume: String, problem: String },
    /// Cured by an edit of the object: wait and try again.
    #[error("MountVolume.SetUp failed for volume {volume:?} : references non-existent {} key: {key}", kind.to_ascii_lowercase())]
    MissingKey { volume: String, kind: &'static str, key: String },
    /// Cured by the claim's or volume's change: wait and try again.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {problem}")]
    Claim { volume: String, problem: String },
    /// A volume of a CSI driver: cured by the driver, or by an object. `verb` is the kubelet's name of the step.
    #[error("{verb} failed for volume {volume:?} : {problem}")]
    Csi { verb: &'static str, volume: String, problem: String },
    #[error("MountVolume.SetUp failed for volume {volume:?} : hostPath type check failed: {} {problem}", path.display())]
    HostPathType { volume: String, path: PathBuf, problem: &'static str },
    #[error("MountVolume.SetUp failed for volume {volume:?} : volume type {source_type} is not supported by this node")]
    NotSupported { volume: String, source_type: String },
    /// The pod's volume or mount is invalid.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {problem}")]
    Invalid { volume: String, problem: String },
    /// Cured by a helper: wait and try again.
    #[error(
        "Setting volume ownership for {} and fsGroup {}: the volume has many files, so this takes a while",
        .0.path.display(),
        .0.group
    )]
    Owning(Box<Owning>),
    /// The image cannot be mounted, or has no such path. Shows at the container, as with CRI's errors.
    #[error("ImageVolumeMountFailed: volume {volume:?}: {problem}")]
    Image { volume: String, problem: String },
    /// Not failures of the volume (K8s pkg/kubelet/kubelet_pods.go, `makeMounts`).
    #[error("{0}")]
    SubPathExpr(String),
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}: {action} {}: {source}", path.display())]
    SubPath { volume: String, container: String, action: &'static str, path: PathBuf, source: io::Error },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {action} {}: {source}", path.display())]
    Io { volume: String, action: &'static str, path: PathBuf, source: io::Error },
    /// Tear-down met something it could not unmount or delete.
    #[error("{action} {}: {source}", path.display())]
    TearDown { action: &'static str, path: PathBuf, source: io::Error },
}

impl VolumeError {
    /// Event reason of most.
    pub const FAILED_MOUNT: &str = "FailedMount";

    /// Event reason, as the kubelet's.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Owning(_) => "VolumePermissionChangeInProgress",
            Self::Csi { verb: ATTACH, .. } => "FailedAttachVolume",
            Self::Csi { verb: MAP, .. } => "FailedMapVolume",
            _ => Self::FAILED_MOUNT,
        }
    }

    pub fn is_of_image(&self) -> bool {
        matches!(self, Self::Image { .. })
    }

    /// Waiting for an object that has not arrived yet; the caller retries when objects change.
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. }
                | Self::MissingKey { .. }
                | Self::MissingToken { .. }
                | Self::MissingCertificate { .. }
                | Self::Withheld { .. }
        )
    }
}

/// A failed call below one volume, which knows the path but not the volume's name.
#[derive(Debug)]
pub(super) struct PathError {
    pub(super) action: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl PathError {
    pub(super) fn of(self, volume: &str) -> VolumeError {
        VolumeError::Io { volume: volume.to_string(), action: self.action, path: self.path, source: self.source }
    }
}

/// Names action and path of a failed call.
pub(super) trait At<T> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, PathError>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, action: &'static str, path: &Path) -> Result<T, PathError> {
        self.map_err(|source| PathError { action, path: path.to_path_buf(), source: source.into() })
    }
}
