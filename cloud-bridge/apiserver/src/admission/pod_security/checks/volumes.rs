//! Kinds of volumes (policy/check_hostPathVolumes.go, check_restrictedVolumes.go).

use std::collections::BTreeSet;

use super::words::{Pod, Violation, plural, quoted};
use apimachinery::json::{items, present, text};

pub(super) fn host_path(pod: Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod["spec"], "volumes").iter().filter(|volume| present(volume, "hostPath").is_some());
    let volumes: Vec<&str> = volumes.map(|volume| text(volume, "name")).collect();
    if volumes.is_empty() {
        return None;
    }
    Violation::new("hostPath volumes", format!("{} {}", plural("volume", volumes.len()), quoted(&volumes)))
}

const ALLOWED: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Volume types, in the order of Kubernetes' checks.
const NAMED: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn restricted(pod: Pod<'_>) -> Option<Violation> {
    let mut volumes = Vec::new();
    let mut kinds = BTreeSet::new();
    for volume in items(&pod["spec"], "volumes") {
        let is = |kind: &&str| present(volume, kind).is_some();
        if !ALLOWED.iter().any(is) {
            volumes.push(text(volume, "name"));
            kinds.insert(NAMED.into_iter().find(is).unwrap_or("unknown"));
        }
    }
    if volumes.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", volumes.len()),
        quoted(&volumes),
        if volumes.len() == 1 { "uses" } else { "use" },
        plural("restricted volume type", kinds.len()),
        quoted(kinds)
    );
    Violation::new("restricted volume types", detail)
}
