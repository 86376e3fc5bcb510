//! Where the folders of a volume are below the root, as the kubelet has them: drivers and their manifests expect these
//! names. K8s pkg/volume/csi/csi_attacher.go (`makeDeviceMountPath`), csi_mounter.go, csi_block.go. Pure: no I/O.

use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use crate::names::is_folder;

/// Folder of everything that is staged.
const CSI: &str = "plugins/kubernetes.io/csi";
/// Folder of all pods that have volumes.
pub(super) const PODS: &str = "pods";
/// Its kinds of volumes, and their folder of CSI.
pub(super) const VOLUMES: &str = "volumes";
pub(super) const DEVICES: &str = "volumeDevices";
pub(super) const OF_CSI: &str = "kubernetes.io~csi";
/// Name of the folder that a driver mounts, in those of a pod and of a volume.
const MOUNT: &str = "mount";
const GLOBAL_MOUNT: &str = "globalmount";
/// Folders beside those of block volumes, which have the names of PersistentVolumes.
const STAGING: &str = "staging";
const PUBLISH: &str = "publish";

/// A volume in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) pod: String,
    pub(crate) volume: String,
    pub(crate) block: bool,
}

impl Target {
    /// # Errors
    /// A name cannot be that of a folder.
    pub(crate) fn new(pod: &str, volume: &str, block: bool) -> Result<Self, String> {
        if let Some(wrong) = [pod, volume].into_iter().find(|name| !is_folder(name)) {
            let shown: String = wrong.chars().take(64).collect();
            return Err(format!("{shown:?} cannot be the name of a folder"));
        }
        if block && !is_block(volume) {
            return Err(format!("a block volume cannot have the name {volume:?}"));
        }
        Ok(Self { pod: pod.to_owned(), volume: volume.to_owned(), block })
    }

    /// Folder of its record.
    pub(super) fn folder(&self) -> PathBuf {
        let kind = if self.block { DEVICES } else { VOLUMES };
        [PODS, self.pod.as_str(), kind, OF_CSI, self.volume.as_str()].iter().collect()
    }

    /// Folder in which the driver makes [`Target::name`].
    pub(super) fn parent(&self) -> PathBuf {
        match self.block {
            true => [CSI, DEVICES, PUBLISH, self.volume.as_str()].iter().collect(),
            false => self.folder(),
        }
    }

    /// What the driver makes: a folder, or a device.
    pub(super) fn name(&self) -> &str {
        if self.block { &self.pod } else { MOUNT }
    }

    /// Path for the driver and the daemon.
    pub(crate) fn path(&self, root: &Path) -> PathBuf {
        root.join(self.parent()).join(self.name())
    }
}

/// Where a volume is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Staging {
    /// Folder of its record.
    folder: PathBuf,
    parent: PathBuf,
    name: String,
}

impl Staging {
    /// All pods that have the volume share it. `volume`: name of the PersistentVolume.
    pub(crate) fn new(driver: &str, handle: &str, volume: &str, block: bool) -> Self {
        if block {
            return Self {
                folder: [CSI, DEVICES, volume, "data"].iter().collect(),
                parent: [CSI, DEVICES, STAGING].iter().collect(),
                name: volume.to_owned(),
            };
        }
        let hash = sha256(&[handle]);
        let folder: PathBuf = [CSI, driver, hash.as_str()].iter().collect();
        Self { parent: folder.clone(), folder, name: GLOBAL_MOUNT.to_owned() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Path for the driver.
    pub(crate) fn path(&self, root: &Path) -> PathBuf {
        root.join(&self.parent).join(&self.name)
    }
}

/// Whether a block volume may have this name: two folders beside those of block volumes have the other names.
pub(super) fn is_block(volume: &str) -> bool {
    ![STAGING, PUBLISH].contains(&volume)
}

/// Folder whose folders have the names of block volumes that are staged.
pub(super) fn staged_blocks() -> PathBuf {
    [CSI, DEVICES].iter().collect()
}

/// `volumeHandle` of an inline volume (`makeVolumeHandle`), or name of a VolumeAttachment (`getAttachmentName`).
pub(super) fn csi_name(parts: &[&str]) -> String {
    format!("csi-{}", sha256(parts))
}

fn sha256(parts: &[&str]) -> String {
    let hash = digest(&SHA256, parts.concat().as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn folders_are_those_of_the_kubelet() {
        let root = Path::new("/var/lib/kubelet");
        let text = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
        let target = Target::new("uid", "pv", false).expect("names");
        assert_eq!(text(target.path(root)), "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/pv/mount");
        assert_eq!(text(target.folder()), "pods/uid/volumes/kubernetes.io~csi/pv");
        let staging = Staging::new("d.x", "abc", "pv", false);
        let folder = format!("plugins/kubernetes.io/csi/d.x/{ABC}");
        assert_eq!(text(staging.folder().to_owned()), folder);
        assert_eq!(text(staging.path(root)), format!("/var/lib/kubelet/{folder}/globalmount"));
        let block = Target::new("uid", "pv", true).expect("names");
        assert_eq!(text(block.folder()), "pods/uid/volumeDevices/kubernetes.io~csi/pv");
        let devices = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices";
        assert_eq!(text(block.path(root)), format!("{devices}/publish/pv/uid"));
        let staging = Staging::new("d.x", "abc", "pv", true);
        assert_eq!(text(staging.path(root)), format!("{devices}/staging/pv"));
        assert_eq!(text(root.join(staging.folder())), format!("{devices}/pv/data"));
        assert_eq!(csi_name(&["a", "b", "c"]), format!("csi-{ABC}"));
    }

    #[test]
    fn hostile_names_lead_nowhere() {
        for name in ["", ".", "..", "a/b", "../../etc", "/etc", "a\0", &"x".repeat(254)] {
            assert!(Target::new(name, "pv", false).is_err() && Target::new("uid", name, false).is_err(), "{name:?}");
        }
        assert!(Target::new("uid", "staging", true).is_err() && Target::new("uid", "publish", true).is_err());
        // A handle may be no valid name: it is hashed.
        let long = "../".repeat(1_365);
        let staging = Staging::new("d.x", &long, "pv", false);
        assert_eq!(staging.folder().components().count(), 5);
    }
}
