//! Disk usage of pods: the limits of a manifest, and whether usage exceeds them. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::message;
use crate::pod::quantity;
use crate::pod::requests::pod_limit;
use crate::pod::spec::containers_of;
use crate::sys::walk::Bound;

/// Files and folders of one pod that are counted; a pod with more is over its limit.
pub const MOST_ENTRIES: u64 = 1 << 20;
/// Time for one pod; a pod that takes longer is over its limit.
pub const LONGEST: Duration = Duration::from_secs(300);
const STORAGE: &str = "ephemeral-storage";

/// Bytes on disk, as `du` counts blocks, and the number of files, folders and links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub bytes: u64,
    pub inodes: u64,
}

impl Used {
    pub fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// Disk usage of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Use by name of the emptyDir.
    pub volumes: BTreeMap<String, Used>,
    /// Writable layers and termination messages, by container.
    pub layers: BTreeMap<String, Used>,
    /// Use by container.
    pub logs: BTreeMap<String, Used>,
    /// The pod's `hosts`, `hostname` and `resolv.conf`.
    #[serde(default)]
    pub files: Used,
    /// Volumes in memory or made of objects, if requested. No limit applies to them.
    #[serde(default)]
    pub elsewhere: BTreeMap<String, Used>,
    /// The count stopped at this bound: the pod holds more than these numbers.
    #[serde(default)]
    pub beyond: Option<Bound>,
}

impl DiskUsage {
    pub fn total(&self) -> Used {
        let mut sum = self.files;
        [&self.volumes, &self.layers, &self.logs]
            .into_iter()
            .flat_map(|map| map.values())
            .for_each(|one| sum.add(*one));
        sum
    }

    /// Bytes of the writable layer and logs of each container.
    pub fn containers(&self) -> Vec<(String, u64)> {
        let mut sums = self.layers.clone();
        for (name, used) in &self.logs {
            sums.entry(name.clone()).or_default().add(*used);
        }
        sums.into_iter().map(|(name, used)| (name, used.bytes)).collect()
    }
}

/// Whether anything in the manifest limits disk, so that the pod is worth a walk.
pub fn has_limits(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let sized = |volume: &k8s_openapi::api::core::v1::Volume| {
        volume.empty_dir.as_ref().is_some_and(|dir| {
            dir.medium.as_deref().unwrap_or_default().is_empty() && bytes(dir.size_limit.as_ref()) > 0
        })
    };
    spec.volumes.iter().flatten().any(sized) || containers_of(pod).any(|one| bytes(limit(one)) > 0)
}

/// Why the pod must go, in the kubelet's order (K8s pkg/kubelet/eviction `localStorageEviction`); none while it keeps
/// to its limits. `separate_images`: writable layers lie on the images' own file system and do not count for a
/// single container.
pub fn exceeded(pod: &Pod, used: &DiskUsage, separate_images: bool) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    // What cannot be counted is not within any limit.
    if let Some(bound) = used.beyond
        && has_limits(pod)
    {
        return Some(message::beyond(bound, MOST_ENTRIES, LONGEST));
    }
    let of = |map: &BTreeMap<String, Used>, name: &str| map.get(name).map_or(0, |used| used.bytes);
    let over = |held: u64, given: &Quantity| (1..held).contains(&bytes(Some(given)));
    for volume in spec.volumes.iter().flatten() {
        let Some(given) = volume.empty_dir.as_ref().and_then(|dir| dir.size_limit.as_ref()) else { continue };
        if over(of(&used.volumes, &volume.name), given) {
            return Some(message::empty_dir(&volume.name, &given.0));
        }
    }
    if let Some(limit) = pod_limit(pod, STORAGE).and_then(|limit| u64::try_from(limit).ok())
        && used.total().bytes > limit
    {
        return Some(message::pod_storage(limit));
    }
    spec.containers.iter().find_map(|container| {
        let (given, name) = (limit(container)?, &container.name);
        let held = of(&used.logs, name) + if separate_images { 0 } else { of(&used.layers, name) };
        over(held, given).then(|| message::container_storage(name, &given.0))
    })
}

fn limit(container: &Container) -> Option<&Quantity> {
    container.resources.as_ref()?.limits.as_ref()?.get(STORAGE)
}

fn bytes(given: Option<&Quantity>) -> u64 {
    given.and_then(|one| quantity::value(&one.0)).and_then(|one| u64::try_from(one).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(limit: Value, size: Value) -> Pod {
        let limits = |value: &Value| json!({"limits": {"ephemeral-storage": value}});
        serde_json::from_value(json!({"spec": {
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": size}}],
            "containers": [
                {"name": "a", "image": "i", "resources": limits(&limit)},
                {"name": "b", "image": "i", "resources": limits(&json!("1Mi"))}]}}))
        .unwrap()
    }

    fn used(volume: u64, layer: u64, log: u64) -> DiskUsage {
        let map = |name: &str, bytes| BTreeMap::from([(name.to_owned(), Used { bytes, inodes: 1 })]);
        DiskUsage { volumes: map("v", volume), layers: map("a", layer), logs: map("a", log), ..DiskUsage::default() }
    }

    #[test]
    fn each_limit_has_its_words() {
        let pod = pod(json!("2Mi"), json!("1Mi"));
        let why = |usage: DiskUsage| exceeded(&pod, &usage, false).unwrap_or_default();
        assert_eq!(why(used(1 << 20, 1 << 20, 1 << 20)), "");
        assert!(why(used((1 << 20) + 1, 0, 0)).starts_with("Usage of EmptyDir volume \"v\" exceeds"));
        let total = "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ";
        assert_eq!(why(used(1 << 20, 2 << 20, 1)), total);
        let one = "Container a exceeded its local ephemeral storage limit \"2Mi\". ";
        assert_eq!(why(used(0, 2 << 20, 1)), one);
        assert_eq!(exceeded(&pod, &used(0, 2 << 20, 1), true), None);
        // Its writes to /etc/hosts count for the pod as a whole.
        assert_eq!(why(DiskUsage { files: Used { bytes: 1, inodes: 1 }, ..used(1 << 20, 1 << 20, 1 << 20) }), total);
    }

    #[test]
    fn uncountable_usage_exceeds_any_limit() {
        let used = DiskUsage { beyond: Some(Bound::Depth), ..DiskUsage::default() };
        let why = exceeded(&pod(json!("0"), json!("1Gi")), &used, false).unwrap();
        assert!(why.contains("more than 500 folders deep"), "{why}");
        let plain: Pod = serde_json::from_value(json!({"spec": {"containers": [{"name": "a"}]}})).unwrap();
        assert_eq!(exceeded(&plain, &used, false), None);
    }

    #[test]
    fn sidecars_count_beside_an_init_container() {
        let limits = |bytes: &str| json!({"limits": {"ephemeral-storage": bytes}});
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [
                {"name": "s", "image": "i", "restartPolicy": "Always", "resources": limits("5")},
                {"name": "i", "image": "i", "resources": limits("10")}],
            "containers": [{"name": "a", "image": "i", "resources": limits("1")}]}}))
        .unwrap();
        assert_eq!(pod_limit(&pod, STORAGE), Some(15));
    }

    #[test]
    fn pods_without_limits_are_not_walked() {
        let plain: Pod = serde_json::from_value(json!({"spec": {
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
            "containers": [{"name": "a", "image": "i"}]}}))
        .unwrap();
        assert!(!has_limits(&plain));
        assert!(has_limits(&pod(json!("0"), json!("1Mi"))));
        assert_eq!(exceeded(&plain, &used(u64::MAX / 4, 1, 1), false), None);
    }
}
