//! A pod's volumes on this node: made before its containers, refreshed while they run, gone with the pod.
//!
//! Everything of a pod lies below `Paths::pod(uid)`: `volumes/NAME` (emptyDir, on disk or its own tmpfs),
//! `objects/NAME` (configMap, secret, downwardAPI, projected; one tmpfs per pod, so that no secret and no copy of an
//! object wears the flash), `subpaths/CONTAINER/INDEX` (bind mounts). Knows nothing of stores and containers.

pub mod downward;
pub mod error;
pub mod mounts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::paths::Paths;
pub use downward::DownwardFacts;
pub use error::VolumeError;

/// Looks up a ConfigMap or Secret that the node holds: `(kind, namespace, name)` to the object's JSON.
pub type ObjectLookup<'a> = &'a dyn Fn(&str, &str, &str) -> Option<Value>;

/// All that volumes of one pod are made from.
#[derive(Clone, Copy)]
pub struct VolumeContext<'a> {
    pub paths: &'a Paths,
    pub pod: &'a Pod,
    pub objects: ObjectLookup<'a>,
    pub facts: &'a DownwardFacts,
}

/// Where a volume lies on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHostPath {
    pub path: PathBuf,
    /// The source allows no writes (configMap, secret, downwardAPI, projected).
    pub read_only: bool,
}

/// Makes every volume of the pod; converges when called again after a crash or for a retry.
pub fn setup(_ctx: &VolumeContext<'_>) -> Result<BTreeMap<String, VolumeHostPath>, VolumeError> {
    Ok(BTreeMap::new())
}

/// Brings configMap, secret, downwardAPI and projected volumes up to date; returns the names of those that changed.
/// An object that has gone leaves its files as they are.
pub fn update(_ctx: &VolumeContext<'_>) -> Result<Vec<String>, VolumeError> {
    Ok(Vec::new())
}

/// Unmounts and deletes all of `Paths::pod(uid)` that belongs to volumes. Never follows a mount or a link out of it.
pub fn teardown(_paths: &Paths, _uid: &str) -> Result<(), VolumeError> {
    Ok(())
}
