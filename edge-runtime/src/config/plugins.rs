//! The `plugins` section: whether device plugins of Kubernetes offer devices of this board to pods, and CSI drivers
//! volumes, and where they find the node.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use sampan_plugins_control::{MAX_DRIVERS, Settings};
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
    /// Sockets of controllers of CSI drivers, by the driver's name: the bridge's `csi-proxy` calls them.
    pub csi_controllers: BTreeMap<String, String>,
    pub cdi_folders: Vec<PathBuf>,
}

impl Default for PluginsConfig {
    fn default() -> Self {
        Self {
            root: "/var/lib/kubelet".into(),
            device_plugins: false,
            pod_resources: false,
            csi: false,
            csi_controllers: BTreeMap::new(),
            cdi_folders: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
        }
    }
}

impl PluginsConfig {
    pub fn is_on(&self) -> bool {
        self.device_plugins || self.pod_resources || self.csi || !self.csi_controllers.is_empty()
    }

    /// What the helper is told. `devices`: resources that this node has without a plugin.
    pub fn settings(&self, devices: &BTreeMap<String, DeviceClass>) -> Settings {
        Settings {
            root: self.root.clone(),
            device_plugins: self.device_plugins,
            pod_resources: self.pod_resources,
            csi: self.csi,
            csi_controllers: self.csi_controllers.clone(),
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
        if let Some(path) = self.csi_controllers.values().find(|path| !self.is_inside(path)) {
            return Err(wrong("plugins.csi-controllers", format!("{path:?} is not a path below plugins.root")));
        }
        if self.csi_controllers.len() > MAX_DRIVERS {
            return Err(wrong("plugins.csi-controllers", format!("has more than {MAX_DRIVERS} drivers")));
        }
        Ok(self)
    }

    /// Whether a path leads to something below the root, as far as its text says.
    fn is_inside(&self, path: &str) -> bool {
        let path = Path::new(path);
        no_folder(path).is_none() && path != self.root && path.starts_with(&self.root)
    }
}

fn no_folder(path: &Path) -> Option<String> {
    let is_plain =
        path.is_absolute() && path != Path::new("/") && path.components().all(|one| one != Component::ParentDir);
    (!is_plain).then(|| format!("{path:?} is no absolute path of a folder without '..'"))
}
