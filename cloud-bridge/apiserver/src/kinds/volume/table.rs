//! The rows of PersistentVolumes and claims.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name};
use apimachinery::json::{items, present, text};
use apimachinery::quantity::Quantity;

/// Table of PersistentVolumes.
pub(crate) const VOLUME: Table<11> = Table {
    columns: [
        NAME,
        ("Capacity", "string", 0, "Size of the volume."),
        ("Access Modes", "string", 0, "All ways in which the volume can be mounted."),
        ("Reclaim Policy", "string", 0, "What happens to the volume when its claim is gone."),
        ("Status", "string", 0, "Whether the volume is available, bound or released."),
        ("Claim", "string", 0, "The claim to which the volume is bound."),
        ("StorageClass", "string", 0, "StorageClass of the pv"),
        ("VolumeAttributesClass", "string", 0, "VolumeAttributesClass of the pv"),
        ("Reason", "string", 0, "Why the volume is in this state, in one word."),
        AGE,
        ("VolumeMode", "string", 1, "Filesystem or Block."),
    ],
    row: volume,
};
/// Table of PersistentVolumeClaims.
pub(crate) const CLAIM: Table<9> = Table {
    columns: [
        NAME,
        ("Status", "string", 0, "Whether the claim is pending, bound or lost."),
        ("Volume", "string", 0, "The volume behind the claim."),
        ("Capacity", "string", 0, "Size of the volume."),
        ("Access Modes", "string", 0, "Access modes of the volume."),
        ("StorageClass", "string", 0, "StorageClass of the pvc"),
        ("VolumeAttributesClass", "string", 0, "VolumeAttributesClass of the pvc"),
        AGE,
        ("VolumeMode", "string", 1, "Filesystem or Block."),
    ],
    row: claim,
};
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The cells of one PersistentVolume.
fn volume(volume: &Value, now: Timestamp) -> [Value; 11] {
    let (spec, status) = (&volume["spec"], &volume["status"]);
    let claim = present(spec, "claimRef")
        .map(|claim| format!("{}/{}", text(claim, "namespace"), text(claim, "name")))
        .unwrap_or_default();
    [
        name(volume),
        size(&spec["capacity"]).into(),
        access_modes(spec).into(),
        text(spec, "persistentVolumeReclaimPolicy").into(),
        phase(volume).into(),
        claim.into(),
        class(volume).into(),
        or_unset(spec, "volumeAttributesClassName"),
        text(status, "reason").into(),
        age(volume, now),
        or_unset(spec, "volumeMode"),
    ]
}

/// The cells of one PersistentVolumeClaim.
fn claim(claim: &Value, now: Timestamp) -> [Value; 9] {
    let (spec, status) = (&claim["spec"], &claim["status"]);
    let bound = !text(spec, "volumeName").is_empty();
    [
        name(claim),
        phase(claim).into(),
        text(spec, "volumeName").into(),
        if bound { size(&status["capacity"]) } else { String::new() }.into(),
        if bound { access_modes(status) } else { String::new() }.into(),
        class(claim).into(),
        or_unset(spec, "volumeAttributesClassName"),
        age(claim, now),
        or_unset(spec, "volumeMode"),
    ]
}

fn phase(obj: &Value) -> &str {
    match text(&obj["metadata"], "deletionTimestamp") {
        "" => text(&obj["status"], "phase"),
        _ => "Terminating",
    }
}

fn class(obj: &Value) -> &str {
    match text(&obj["metadata"]["annotations"], CLASS_ANNOTATION) {
        "" => text(&obj["spec"], "storageClassName"),
        class => class,
    }
}

fn size(list: &Value) -> String {
    Quantity::from_value(&list["storage"]).unwrap_or(Quantity::ZERO).to_string()
}

fn or_unset(holder: &Value, field: &str) -> Value {
    present(holder, field).cloned().unwrap_or_else(|| "<unset>".into())
}

/// `RWO,ROX,RWX,RWOP`, in this order.
fn access_modes(holder: &Value) -> String {
    let has = |mode: &str| items(holder, "accessModes").iter().any(|m| m == mode);
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    short.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}
