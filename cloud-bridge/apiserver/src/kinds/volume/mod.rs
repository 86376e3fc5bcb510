//! PersistentVolumes and the claims to them.

mod table;
pub(super) mod validate;
mod warnings;

use k8s_openapi::api::core::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

pub(crate) use warnings::fractions;

use super::defaults::{claim_spec, drop_zero, volume_source};
use super::kind::{Kind, PLAIN, any_status, keep_status};
use crate::codec::decode;
use crate::patch::merge_keys::{CONDITIONS, META, Type, object};
use crate::resource::rules::Rules;
use apimachinery::json::{items, object_mut, set_default, set_default_text};
use apimachinery::quantity::canonicalize_list;

/// The storage of the claims.
pub(crate) const CLAIMS: &str = "persistentvolumeclaims";

const VOLUMES: &str = "persistentvolumes";

/// Adds the finalizer that protects objects in use: the StorageObjectInUseProtection admission (K8s
/// plugin/pkg/admission/storage/storageobjectinuseprotection). The workload controllers remove it.
pub(crate) fn protect(storage: &str, object: &mut Value) {
    let finalizer = match storage {
        CLAIMS => "kubernetes.io/pvc-protection",
        VOLUMES => "kubernetes.io/pv-protection",
        _ => return,
    };
    let mut finalizers = items(&object["metadata"], "finalizers").to_vec();
    if !finalizers.iter().any(|one| one == finalizer) {
        finalizers.push(finalizer.into());
        object.set_at(&["metadata", "finalizers"], finalizers.into());
    }
}

const RULES: Rules = Rules { return_deleted_object: true, ..Rules::SPEC_AND_STATUS };

pub(crate) static PERSISTENT_VOLUME: Kind = Kind {
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    check: Some(decode::check::<v1::PersistentVolume>),
    rules: RULES,
    default: default_volume,
    prepare_create: pending,
    prepare_update: keep_status,
    create: validate::volume,
    update: validate::volume_update,
    warnings: warnings::volume,
    update_warnings: warnings::volume,
    status: Some(any_status),
    table: &table::VOLUME,
    ..PLAIN
};

pub(crate) static PERSISTENT_VOLUME_CLAIM: Kind = Kind {
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    short_names: &["pvc"],
    namespaced: true,
    check: Some(decode::check::<v1::PersistentVolumeClaim>),
    rules: RULES,
    default: default_claim,
    prepare_create: pending,
    prepare_update: keep_status,
    create: validate::claim,
    update: validate::claim_update,
    warnings: warnings::claim,
    update_warnings: warnings::claim,
    status: Some(any_status),
    table: &table::CLAIM,
    keys: &CLAIM_KEYS,
    ..PLAIN
};

static CLAIM_KEYS: Type = Type { fields: &[META, object("status", &CONDITIONS)] };

fn pending(obj: &mut Value) {
    obj.set("status", json!({"phase": "Pending"}));
}

fn default_volume(volume: &mut Value) {
    if let Some(status) = object_mut(volume, "status") {
        status.entry("phase").or_insert_with(|| "Pending".into());
    }
    let Some(spec) = volume.get_mut("spec").filter(|s| s.is_object()) else { return };
    set_default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_default_text(spec, "volumeMode", "Filesystem");
    drop_zero(spec, &["storageClassName"]);
    volume_source(spec);
    if let Some(driver) = spec.get_mut("csi") {
        drop_zero(driver, &["fsType", "readOnly"]);
    }
    if let Some(path) = spec.get_mut("hostPath").filter(|p| p.is_object()) {
        set_default(path, "type", "");
    }
    if let Some(capacity) = spec.get_mut("capacity") {
        canonicalize_list(capacity);
    }
}

pub(super) fn default_claim(claim: &mut Value) {
    if let Some(status) = object_mut(claim, "status") {
        status.entry("phase").or_insert_with(|| "Pending".into());
        if let Some(capacity) = status.get_mut("capacity") {
            canonicalize_list(capacity);
        }
    }
    if let Some(spec) = claim.get_mut("spec").filter(|s| s.is_object()) {
        claim_spec(spec);
    }
}
