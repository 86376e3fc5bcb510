//! The `plugins` section: whether device plugins of Kubernetes offer devices of this board to pods, and CSI drivers
//! volumes, and where they find the node.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use sampan_plugins_control::Settings;
use serde::{Deserialize, Serialize};

use super::devices::DeviceClass;
use super::error::{Wrong, wrong};

/// Most folders with CDI specifications.
const MOST_FOLDERS: usize = 16;

/// The section, with its defaults: nothing is on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct PluginsConfig {
    /// Folder of the kubelet, as manifests of plugins name it.
    pub root: PathBuf,
    /// Take device plugins.
    pub device_plugins: bool,
    /// Serve podresources.
    pub pod_resources: bool,
    /// Take CSI drivers.
    pub csi: bool,
    pub cdi_folders: Vec<PathBuf>,
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self {
            root: "/var/lib/kubelet".into(),
            device_plugins: false,
            pod_resources: false,
            csi: false,
            cdi_folders: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
        }
    }
}

impl PluginsConfig {
    pub fn is_on(&self) -> bool {
        self.device_plugins || self.pod_resources || self.csi
    }

    /// What the helper is told. `devices`: resources that this node has without a plugin.
    pub fn settings(&self, devices: &BTreeMap<String, DeviceClass>) -> Settings {
        Settings {
            root: self.root.clone(),
            device_plugins: self.device_plugins,
            pod_resources: self.pod_resources,
            csi: self.csi,
            cdi_folders: self.cdi_folders.clone(),
            taken: devices.keys().cloned().collect(),
        }
    }

    pub(super) fn checked(self) -> Result<Self, Wrong> {
        if let Some(why) = no_folder(&self.root) {
            return Err(wrong("plugins.root", why));
        }
        if let Some(why) = self.cdi_folders.iter().find_map(|folder| no_folder(folder)) {
            return Err(wrong("plugins.cdi-folders", why));
        }
        if self.cdi_folders.len() > MOST_FOLDERS {
            return Err(wrong("plugins.cdi-folders", format!("has more than {MOST_FOLDERS} folders")));
        }
        Ok(self)
    }
}

fn no_folder(path: &Path) -> Option<String> {
    let is_plain =
        path.is_absolute() && path != Path::new("/") && path.components().all(|one| one != Component::ParentDir);
    (!is_plain).then(|| format!("{path:?} is no absolute path of a folder without '..'"))
}
