//! How the helper works, as the daemon has resolved it from the section `plugins` of its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Settings of a helper. One with other settings ends, and another one starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Folder that plugins expect to be the kubelet's: `device-plugins`, `plugins_registry` and `pod-resources` are in it.
    /// Those of CSI (`plugins`, `pods`) as well.
    pub root: PathBuf,
    /// Take registrations of device plugins.
    pub device_plugins: bool,
    /// Serve podresources.
    pub pod_resources: bool,
    /// Take CSI drivers.
    pub csi: bool,
    /// Sockets of controllers of CSI drivers by the driver's name, below the root.
    pub csi_controllers: BTreeMap<String, String>,
    /// Folders with CDI specifications. A device in a later folder replaces the same one of an earlier folder.
    pub cdi_folders: Vec<PathBuf>,
    /// Names of resources that the node has without a plugin: a plugin may not register one of them. Sorted.
    pub taken: Vec<String>,
}
