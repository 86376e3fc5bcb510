//! What devices change in a container: the answer of a plugin, with the CDI devices that it names resolved.

use serde::{Deserialize, Serialize};

/// Changes of a container. The daemon keeps them with the allocation, so they can be read again as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edits {
    /// Environment variables. No name comes twice.
    pub env: Vec<Pair>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<DeviceNode>,
    /// Annotations of the container for the OCI runtime. No name comes twice.
    pub annotations: Vec<Pair>,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    pub name: String,
    pub value: String,
}

/// A file or folder of the node in the container. Both paths are absolute, and without `..`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub container: String,
    pub host: String,
    pub read_only: bool,
    /// Further options of CDI, such as `nosuid`, `nodev` or `rbind`. Without `ro` and `rw`.
    pub options: Vec<String>,
}

/// A device node in the container. Both paths are absolute, and without `..`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    pub container: String,
    /// The node whose type and number it has, unless `number` gives them.
    pub host: String,
    /// Some of `r`, `w`, `m`; each at most once.
    pub permissions: String,
    pub number: Option<Number>,
    /// Of the file in the container. `None`: as on the node.
    pub mode: Option<u32>,
    /// Owner of the file in the container.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Type and number of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Number {
    /// A block device; otherwise one of characters.
    pub block: bool,
    pub major: u32,
    pub minor: u32,
}
