//! A volume as the daemon has sent it: checked, and as the driver is told of it. K8s pkg/volume/csi/csi_mounter.go
//! (`SetUpAt`, `supportsFSGroup`, `supportsVolumeLifecycleMode`), csi_client.go. Pure: no I/O.

use sampan_plugins_control::{CsiMount, CsiPod, MAX_HANDLE};
use serde_json::Value;

use super::maps::{merged, secret, texts};
use super::paths::{Target, csi_name};
use crate::messages::csi::{Access, Kind, Map};
use crate::messages::csi_driver::Capabilities;
use crate::names::is_driver;

/// Most mount options, and the longest of them in bytes.
const MAX_OPTIONS: usize = 64;
const MAX_OPTION: usize = 4_096;
/// Longest type of a file system, bytes.
const MAX_FS_TYPE: usize = 64;
/// Key of the tokens in the attributes or the secrets.
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// `accessModes` of a PersistentVolume, as kubectl shortens them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Rwo,
    Rox,
    Rwx,
    Rwop,
}

/// `fsGroupPolicy` of a CSIDriver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    ReadWriteOnceWithFsType,
    File,
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) driver: String,
    pub(crate) handle: String,
    pub(crate) target: Target,
    pub(crate) inline: bool,
    pub(crate) read_only: bool,
    /// Attributes for staging; a publication gets those of the pod as well.
    pub(crate) context: Map,
    pub(crate) pod_context: Map,
    pub(crate) publish_context: Map,
    pub(crate) stage_secrets: Map,
    pub(crate) publish_secrets: Map,
    /// The driver wants it published again and again.
    pub(crate) republish: bool,
    pub(crate) on_root_mismatch: bool,
    /// Size to which the driver grows the file system, bytes. None for a read-only volume, as in the kubelet (K8s
    /// pkg/volume/util/operationexecutor, `expandVolumeDuringMount`).
    pub(crate) capacity: Option<i64>,
    modes: Vec<Mode>,
    fs_type: String,
    options: Vec<String>,
    fs_group: Option<u32>,
    policy: Policy,
}

impl Volume {
    /// # Errors
    /// It is invalid, or the driver does not support it; the text says why.
    pub(crate) fn new(mount: CsiMount) -> Result<Self, String> {
        let target = Target::new(&mount.pod.uid, &mount.volume, mount.block)?;
        let object = &mount.driver_object;
        if !is_driver(&mount.driver) {
            return Err("the name of the driver is invalid".to_owned());
        }
        lifecycle(&mount.driver, object, mount.inline)?;
        let handle = match mount.inline {
            true => csi_name(&[&mount.pod.uid, &mount.volume]),
            false => mount.handle,
        };
        if handle.is_empty() || handle.len() > MAX_HANDLE {
            return Err(format!("volumeHandle must have 1 to {MAX_HANDLE} bytes"));
        }
        let context = texts(&mount.source["volumeAttributes"], "volumeAttributes")?;
        let mut pod_context = context.clone();
        let mut publish_secrets = secret(&mount.publish_secret, "nodePublishSecretRef")?;
        if object["podInfoOnMount"] == true {
            pod_context = merged(pod_context, about(mount.pod, mount.inline));
        }
        if !mount.tokens.is_null() {
            let tokens =
                if object["serviceAccountTokenInSecrets"] == true { &mut publish_secrets } else { &mut pod_context };
            tokens.insert(TOKENS.to_owned(), mount.tokens.to_string());
        }
        Ok(Self {
            publish_context: publish_context(object, &mount.attachment, mount.inline)?,
            stage_secrets: secret(&mount.stage_secret, "nodeStageSecretRef")?,
            republish: object["requiresRepublish"] == true,
            on_root_mismatch: mount.fs_group_on_root_mismatch,
            capacity: mount.capacity.filter(|_| !mount.read_only).map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            modes: modes(&mount.access_modes)?,
            fs_type: fs_type(&mount.source["fsType"])?,
            options: options(mount.mount_options)?,
            fs_group: fs_group(mount.fs_group)?,
            policy: policy(object),
            driver: mount.driver,
            inline: mount.inline,
            read_only: mount.read_only,
            handle,
            target,
            context,
            pod_context,
            publish_secrets,
        })
    }

    /// Bytes of all attributes and secrets.
    pub(crate) fn weight(&self) -> usize {
        let maps =
            [&self.context, &self.pod_context, &self.publish_context, &self.stage_secrets, &self.publish_secrets];
        maps.into_iter().flat_map(|map| map.iter()).map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Whether only one pod at a time may have it. With more modes it is unknown which one a pod wants.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.modes == [Mode::Rwop]
    }

    /// How the volume is accessed, for a driver with these capabilities.
    pub(crate) fn access(&self, capabilities: Capabilities) -> Access {
        let group = self.fs_group.map(i64::from).filter(|_| capabilities.mount_group);
        let kind = match self.target.block {
            true => Kind::Block,
            false => Kind::Mount { fs_type: self.fs_type.clone(), flags: self.options.clone(), group },
        };
        let first = self.modes.first().copied().unwrap_or(Mode::Rwo);
        Access { mode: number(first, capabilities.multi_writer), kind }
    }

    /// The group that is to own the files, if the driver does not see to that.
    pub(crate) fn owner(&self, capabilities: Capabilities) -> Option<u32> {
        let is_writer = |mode: &Mode| matches!(mode, Mode::Rwo | Mode::Rwop);
        let is_applied = match self.policy {
            Policy::None => false,
            Policy::File => true,
            Policy::ReadWriteOnceWithFsType => {
                !self.fs_type.is_empty() && (self.inline || self.modes.iter().any(is_writer))
            }
        };
        let is_ours = !self.target.block && !self.read_only && !capabilities.mount_group;
        self.fs_group.filter(|_| is_applied && is_ours)
    }
}

/// Whether the driver supports volumes of this kind. Without its object it supports PersistentVolumes alone.
fn lifecycle(driver: &str, object: &Value, inline: bool) -> Result<(), String> {
    let mode = if inline { "Ephemeral" } else { "Persistent" };
    let supported = match object["volumeLifecycleModes"].as_array() {
        Some(modes) if !modes.is_empty() => modes.iter().any(|supported| supported == mode),
        _ => !inline,
    };
    match (supported, object.is_null()) {
        (true, _) => Ok(()),
        (false, true) => Err(format!("volume mode {mode:?} not supported by driver {driver} (no CSIDriver object)")),
        (false, false) => Err(format!("volume mode {mode:?} not supported by driver {driver}")),
    }
}

/// `podInfoOnMount` (`getPodInfoAttrs`).
fn about(pod: CsiPod, inline: bool) -> Map {
    let CsiPod { uid, name, namespace, service_account } = pod;
    let all = [
        ("pod.name", name),
        ("pod.namespace", namespace),
        ("pod.uid", uid),
        ("serviceAccount.name", service_account),
        ("ephemeral", inline.to_string()),
    ];
    all.into_iter().map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value)).collect()
}

/// What the attacher has found out, unless the driver needs none (`getPublishContext`).
fn publish_context(object: &Value, attachment: &Value, inline: bool) -> Result<Map, String> {
    if inline || object["attachRequired"] == false {
        return Ok(Map::new());
    }
    if attachment["attached"] != true {
        return Err("the volume is not attached to this node yet".to_owned());
    }
    texts(&attachment["attachmentMetadata"], "attachmentMetadata")
}

fn modes(modes: &[String]) -> Result<Vec<Mode>, String> {
    let mode = |mode: &String| match mode.as_str() {
        "ReadWriteOnce" => Ok(Mode::Rwo),
        "ReadOnlyMany" => Ok(Mode::Rox),
        "ReadWriteMany" => Ok(Mode::Rwx),
        "ReadWriteOncePod" => Ok(Mode::Rwop),
        _ => Err("an access mode is unknown".to_owned()),
    };
    // There are no more.
    modes.iter().take(4).map(mode).collect()
}

/// Number of the mode in CSI (`asCSIAccessModeV1`, `asSingleNodeMultiWriterCapableCSIAccessModeV1`).
const fn number(mode: Mode, multi_writer: bool) -> i64 {
    match (mode, multi_writer) {
        (Mode::Rwo | Mode::Rwop, false) => 1,
        (Mode::Rox, _) => 3,
        (Mode::Rwx, _) => 5,
        (Mode::Rwop, true) => 6,
        (Mode::Rwo, true) => 7,
    }
}

fn policy(object: &Value) -> Policy {
    match object["fsGroupPolicy"].as_str() {
        Some("File") => Policy::File,
        Some("None") => Policy::None,
        _ => Policy::ReadWriteOnceWithFsType,
    }
}

fn fs_type(fs_type: &Value) -> Result<String, String> {
    let fs_type = fs_type.as_str().unwrap_or_default();
    match fs_type.len() > MAX_FS_TYPE {
        true => Err(format!("fsType has more than {MAX_FS_TYPE} bytes")),
        false => Ok(fs_type.to_owned()),
    }
}

fn options(options: Vec<String>) -> Result<Vec<String>, String> {
    match options.len() > MAX_OPTIONS || options.iter().any(|option| option.len() > MAX_OPTION) {
        true => Err(format!("there are more than {MAX_OPTIONS} mountOptions, or one has more than {MAX_OPTION} bytes")),
        false => Ok(options),
    }
}

fn fs_group(group: Option<i64>) -> Result<Option<u32>, String> {
    group.map(u32::try_from).transpose().map_err(|_| "fsGroup is not a number of a group".to_owned())
}

#[cfg(test)]
mod tests;
