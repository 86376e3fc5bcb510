//! Warnings about a valid volume or claim (K8s pkg/api/persistentvolume/util.go and
//! pkg/api/persistentvolumeclaim/util.go). Pure.

use serde_json::Value;

use crate::kinds::pod::warnings::common::{fraction, node_term};
use apimachinery::json::{items, present, text};

const STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn claim(claim: &Value) -> Vec<String> {
    let mut told = Vec::new();
    if claim["metadata"]["annotations"].get(STORAGE_CLASS).is_some() {
        let why = "deprecated since v1.8; use \"storageClassName\" attribute instead";
        told.push(format!("metadata.annotations[{STORAGE_CLASS}]: {why}"));
    }
    told.extend(fractions("spec", &claim["spec"]));
    told
}

/// Warnings for sizes of a claim's spec at `path` that are not a whole number of bytes.
pub(crate) fn fractions(path: &str, spec: &Value) -> impl Iterator<Item = String> {
    let of = |list: &str| fraction(&format!("{path}.resources.{list}"), &spec["resources"][list], "storage");
    [of("requests"), of("limits")].into_iter().flatten()
}

pub(super) fn volume(volume: &Value) -> Vec<String> {
    const ANNOTATIONS: [(&str, &str); 2] = [
        (STORAGE_CLASS, "deprecated since v1.8; use \"storageClassName\" attribute instead"),
        ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ];
    const OLD: [(&str, &str, &str); 6] = [
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ];
    let (spec, given) = (&volume["spec"], &volume["metadata"]["annotations"]);
    let mut told = Vec::new();
    for (name, why) in ANNOTATIONS.into_iter().filter(|(name, _)| given.get(*name).is_some()) {
        told.push(format!("metadata.annotations[{name}]: {why}"));
    }
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        told.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    for (i, term) in items(&spec["nodeAffinity"]["required"], "nodeSelectorTerms").iter().enumerate() {
        node_term(&format!("spec.nodeAffinity.required.nodeSelectorTerms[{i}]"), term, &mut told);
    }
    let old = OLD.into_iter().filter(|(kind, ..)| present(spec, kind).is_some());
    told.extend(old.map(|(_, shown, why)| format!("spec.{shown}: {why}")));
    told
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fractional_sizes_of_claims_are_told() {
        let of = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        assert!(claim(&of("1Gi")).is_empty());
        let expected =
            "spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer";
        assert_eq!(claim(&of("1500m")), [expected]);
    }

    #[test]
    fn old_ways_of_volumes_are_told() {
        let one = json!({"metadata": {"annotations": {STORAGE_CLASS: "a"}}, "spec": {"rbd": {},
            "persistentVolumeReclaimPolicy": "Recycle", "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "beta.kubernetes.io/os"}]}]}}}});
        let told = volume(&one);
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(told[3], "spec.rbd: deprecated in v1.28, non-functional in v1.31+");
    }
}
