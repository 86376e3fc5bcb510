//! Volumes of CSI drivers: what the daemon knows of one, for a pod that uses it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most drivers of a node.
pub const MAX_DRIVERS: usize = 32;

/// Extension of the socket at which the helper takes calls of controllers; otherwise it is called as that of the daemon.
///
/// A connection is one call. The daemon sends `DRIVER PATH` and a line feed, where `PATH` is gRPC's, then the length of the
/// message in four bytes (big endian), and the message. The helper answers with one byte, gRPC's code, the length of the rest
/// in four bytes, and the driver's answer or the text of the error. The daemon passes both on without reading them.
pub const CSI_SOCKET: &str = "csi";

/// Longest `volumeHandle`, bytes.
pub const MAX_HANDLE: usize = 4_096;

/// A volume in a pod. The daemon has found it in the pod, the claim and the objects that these name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiMount {
    /// Name of the driver.
    pub driver: String,
    /// `volumeHandle` of the PersistentVolume. Empty for an inline volume: the helper makes it of pod and volume.
    pub handle: String,
    /// Name of the PersistentVolume; of an inline volume, its name in the pod.
    pub volume: String,
    pub pod: CsiPod,
    /// `spec.csi` of the PersistentVolume, or `csi` of the pod's volume.
    pub source: Value,
    /// The volume is in the pod's specification, and ends with the pod.
    pub inline: bool,
    /// Of the PersistentVolume, such as `ReadWriteOnce`. Empty for an inline volume.
    pub access_modes: Vec<String>,
    /// `mountOptions` of the PersistentVolume.
    pub mount_options: Vec<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// `readOnly` of the pod's reference to the claim, or of the inline volume.
    pub read_only: bool,
    pub fs_group: Option<i64>,
    /// `fsGroupChangePolicy: OnRootMismatch`.
    pub fs_group_on_root_mismatch: bool,
    /// `spec` of the CSIDriver object, or null without one.
    pub driver_object: Value,
    /// `status` of the VolumeAttachment, or null if the volume is not attached.
    pub attachment: Value,
    /// `data` of the Secret `nodeStageSecretRef`, in Base64 as in the object, or null.
    pub stage_secret: Value,
    /// `data` of the Secret `nodePublishSecretRef`, like `stage_secret`.
    pub publish_secret: Value,
    /// Tokens by audience, `{"AUDIENCE":{"token":…,"expirationTimestamp":…}}`, or null.
    pub tokens: Value,
    /// Bytes of the PersistentVolume, if it is larger than the claim's `status.capacity`: the driver is to grow the file
    /// system. `Mounted` says that this is done.
    pub capacity: Option<u64>,
}

/// The pod that uses a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiPod {
    pub uid: String,
    pub name: String,
    pub namespace: String,
    pub service_account: String,
}
