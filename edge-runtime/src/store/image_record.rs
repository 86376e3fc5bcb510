//! Record of an image. Owns its shape; does not know SQL or registries.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Keys of the logins it was pulled with, by repository (`docker.io/library/busybox`). No key: all pods may use it,
/// because it was pulled without a login or with one of the node. No repository: all pods, because the image was
/// imported.
pub type Access = BTreeMap<String, BTreeSet<String>>;

/// One image whose layers are all unpacked and durable below `Paths::layers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Digest of the image configuration, `sha256:<64 hex>`: what CRI calls the image id.
    pub id: String,
    /// Normalized names that lead here: `docker.io/library/busybox:latest` and `docker.io/library/busybox@sha256:<64 hex>`.
    pub references: Vec<String>,
    pub config: ImageConfig,
    /// Diff ids (`sha256:<64 hex>` of the uncompressed layers), bottom to top. May be empty.
    pub layers: Vec<String>,
    /// Bytes of the compressed layers and the configuration, as the node's image list shows them.
    pub size: u64,
    /// Unix seconds.
    pub pulled_at: i64,
    /// Logins that may use it.
    #[serde(default, skip_serializing_if = "Access::is_empty")]
    pub access: Access,
}

impl ImageRecord {
    /// `repo@sha256:...`, what the API shows as `imageID`; the id alone when the image was imported without a digest.
    pub fn image_id(&self) -> &str {
        self.references.iter().find(|r| r.contains('@')).map_or(self.id.as_str(), String::as_str)
    }
}

/// Image configuration that a container inherits (OCI image-spec, `config` of the image configuration).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// `user`, `uid`, `user:group`, `uid:gid`; empty is root.
    pub user: String,
    /// `NAME=value`.
    pub env: Vec<String>,
    pub entrypoint: Vec<String>,
    pub cmd: Vec<String>,
    /// Empty is `/`.
    pub working_dir: String,
    /// Name or number, as the image wrote it: `SIGQUIT`, `3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Problem of the image on this machine; reported when a container of it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// Folders that its layers have without entries of their own, as a layer below describes them; parents first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<Folder>,
    /// Absolute paths at which a container has a folder of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// RFC 3339, when the image says when it was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// A folder of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Path from the root of the image, without a leading slash.
    pub path: String,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}
