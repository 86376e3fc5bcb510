//! PersistentVolumes of the provisioner `sampan.dev/local`: a folder on the node of the claim's first pod. Their form,
//! and the handling of a volume whose claim is gone. Pure.

use apimachinery::json::{items, text};
use apimachinery::{meta, names};
use serde_json::{Value, json};

/// Name of the provisioner in a StorageClass.
pub(crate) const PROVISIONER: &str = "sampan.dev/local";
/// Folder of the volumes. A node with another root uses it relative to that.
const FOLDER: &str = "/var/lib/edge-runtime/volumes/";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Keeps a volume that is deleted before its data is (K8s KEP-2644, `PVDeletionProtectionFinalizer`).
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Request of a claim, if such a volume can satisfy it.
pub(crate) struct Order<'a> {
    /// Namespace, name and uid of the claim.
    pub(crate) claim: (&'a str, &'a str, &'a str),
    /// The claim's spec, and its class.
    pub(crate) spec: &'a Value,
    pub(crate) class: &'a Value,
    pub(crate) node: &'a str,
}

/// The name of the volume of a claim, as with all provisioners.
pub(crate) fn name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

/// The volume, or why there can be none.
pub(crate) fn volume(order: &Order<'_>) -> Result<Value, String> {
    let &Order { claim: (namespace, claim, uid), spec, class, node } = order;
    let modes = items(spec, "accessModes");
    if let Some(mode) = modes.iter().find(|mode| !matches!(mode.as_str(), Some("ReadWriteOnce" | "ReadWriteOncePod"))) {
        return Err(format!("access mode {mode} is not supported: the volume is a folder of one node"));
    }
    if text(spec, "volumeMode") == "Block" {
        return Err("volumeMode Block is not supported".to_owned());
    }
    if spec["selector"].as_object().is_some_and(|selector| !selector.is_empty()) {
        return Err("claim.spec.selector is not supported: volumes are made, not chosen".to_owned());
    }
    if ["dataSource", "dataSourceRef"].iter().any(|source| !spec[source].is_null()) {
        return Err("a claim with a data source is not supported".to_owned());
    }
    if let Some(name) = class["parameters"].as_object().and_then(|all| all.keys().next()) {
        return Err(format!("parameter {name:?} of the class is not known: there are none"));
    }
    if !items(class, "mountOptions").is_empty() {
        return Err("mountOptions of the class are not supported: nothing is mounted".to_owned());
    }
    let policy = match text(class, "reclaimPolicy") {
        "" => "Delete",
        policy => policy,
    };
    let name = name(uid);
    let on = json!({"key": HOSTNAME, "operator": "In", "values": [node]});
    let finalizers: &[&str] = if policy == "Delete" { &[FINALIZER] } else { &[] };
    Ok(json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": finalizers},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": modes,
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class["metadata"]["name"],
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": uid,
            },
            "local": {"path": format!("{FOLDER}{name}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on]}]}},
        },
    }))
}

/// A volume without a claim, and how to handle it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) name: String,
    pub(super) uid: String,
    /// Data to delete; `None` if it must be kept.
    pub(super) data: Option<Data>,
    /// Finalizers that are not ours.
    pub(super) finalizers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) node: String,
    /// The name of its folder.
    pub(super) folder: String,
}

/// How to handle a volume; `None` while a claim uses it, and for volumes of other provisioners.
pub(super) fn released(volume: &Value) -> Option<Released> {
    if text(&volume["metadata"]["annotations"], PROVISIONED_BY) != PROVISIONER {
        return None;
    }
    let (spec, deleting) = (&volume["spec"], meta::deleting(volume));
    let unclaimed = match text(&volume["status"], "phase") {
        "Released" | "Failed" => true,
        "Bound" => false,
        _ => deleting,
    };
    let deletes = text(spec, "persistentVolumeReclaimPolicy") == "Delete";
    // Deleting a volume whose data must be kept deletes only the object.
    if !unclaimed || !(deletes || deleting) {
        return None;
    }
    let data = if deletes { Some(data(spec)?) } else { None };
    let held = meta::finalizers(volume).into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
    let of = |field: &str| meta::text(volume, field).to_owned();
    Some(Released { name: of("name"), uid: of("uid"), data, finalizers: held })
}

fn data(spec: &Value) -> Option<Data> {
    let folder = text(&spec["local"], "path").strip_prefix(FOLDER)?;
    let terms = items(&spec["nodeAffinity"]["required"], "nodeSelectorTerms");
    let mut expressions = terms.iter().flat_map(|term| items(term, "matchExpressions"));
    let node = expressions.find(|one| text(one, "key") == HOSTNAME)?["values"][0].as_str()?;
    // A name is part of a path of the API's.
    names::dns_subdomain(node).is_empty().then(|| Data { node: node.to_owned(), folder: folder.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(spec: &Value, class: &Value) -> Result<Value, String> {
        let mut whole = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let mut of = json!({"metadata": {"name": "sampan-local"}, "provisioner": PROVISIONER});
        of.as_object_mut().unwrap().extend(class.as_object().unwrap().clone());
        volume(&Order { claim: ("ns", "data", "u1"), spec: &whole, class: &of, node: "edge-1" })
    }

    #[test]
    fn a_volume_is_a_folder_of_the_node_for_the_claim_alone() {
        let volume = made(&json!({}), &json!({})).unwrap();
        assert_eq!(volume["metadata"]["name"], "pvc-u1");
        let spec = &volume["spec"];
        assert_eq!(spec["local"]["path"], "/var/lib/edge-runtime/volumes/pvc-u1");
        assert_eq!((&spec["claimRef"]["uid"], &spec["capacity"]["storage"]), (&json!("u1"), &json!("1Gi")));
        assert_eq!(spec["persistentVolumeReclaimPolicy"], "Delete");
        let retained = made(&json!({}), &json!({"reclaimPolicy": "Retain"})).unwrap();
        assert_eq!(retained["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        assert_eq!(retained["metadata"]["finalizers"], json!([]));
    }

    #[test]
    fn what_such_a_volume_cannot_be_is_refused_by_name() {
        for (spec, class, why) in [
            (json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}), json!({}), "access mode \"ReadWriteMany\""),
            (json!({"volumeMode": "Block"}), json!({}), "volumeMode Block"),
            (json!({"selector": {"matchLabels": {"a": "b"}}}), json!({}), "claim.spec.selector"),
            (json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}), json!({}), "data source"),
            (json!({}), json!({"parameters": {"type": "ssd"}}), "parameter \"type\""),
            (json!({}), json!({"mountOptions": ["ro"]}), "mountOptions"),
        ] {
            let refusal = made(&spec, &class).unwrap_err();
            assert!(refusal.contains(why), "{refusal}");
        }
    }

    #[test]
    fn only_our_unclaimed_volume_is_deleted_by_its_policy() {
        let of = |phase: &str, change: Value| {
            let mut volume = made(&json!({}), &json!({})).unwrap();
            json_patch::merge(&mut volume, &json!({"metadata": {"uid": "v1"}, "status": {"phase": phase}}));
            json_patch::merge(&mut volume, &change);
            released(&volume)
        };
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let data = Some(Data { node: "edge-1".into(), folder: "pvc-u1".into() });
        let whole = Released { name: "pvc-u1".into(), uid: "v1".into(), data, finalizers: Vec::new() };
        for phase in ["Bound", "Available", "Pending", ""] {
            assert_eq!(of(phase, json!({})), None, "{phase}");
        }
        assert_eq!(of("Bound", deleting.clone()), None);
        for (phase, change) in [("Released", json!({})), ("Failed", json!({})), ("Available", deleting.clone())] {
            assert_eq!(of(phase, change), Some(whole.clone()), "{phase}");
        }
        let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        assert_eq!(of("Released", retain.clone()), None);
        let mut both = retain;
        json_patch::merge(&mut both, &deleting);
        let object = Released { data: None, ..whole };
        assert_eq!(of("Released", both), Some(object), "the object goes, the data stays");
        for foreign in [
            json!({"metadata": {"annotations": {PROVISIONED_BY: "rancher.io/local-path"}}}),
            json!({"spec": {"local": {"path": "/etc"}}}),
            json!({"spec": {"nodeAffinity": null}}),
            json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": HOSTNAME, "operator": "In", "values": ["../pods"]}]}]}}}}),
        ] {
            assert_eq!(of("Released", foreign.clone()), None, "{foreign}");
        }
    }
}
