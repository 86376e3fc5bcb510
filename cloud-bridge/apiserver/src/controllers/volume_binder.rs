//! Binds PersistentVolumeClaims to volumes that are there already, as the volume controller of a cluster does
//! (K8s pkg/controller/volume/persistentvolume); nothing is provisioned. Called with the storage's lock held.

use edge_protocol::json::SetField;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::resource::status::ApiResult;
use crate::state::{Change, Inner};
use crate::storage::{Store, StoreError, Stored};
use apimachinery::key::ObjectKey;
use apimachinery::meta;
use apimachinery::quantity::Quantity;
use apimachinery::selector::selects;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

/// After a write of a volume or a claim.
pub(super) fn follow(_: &Inner, store: &mut Store, change: &Change<'_>) -> ApiResult<()> {
    match (change.before, change.after) {
        (_, Some(volume)) if change.of("", VOLUMES) => volume_written(store, volume)?,
        (_, Some(claim)) if change.of("", CLAIMS) => claim_written(store, claim)?,
        (Some(claim), None) if change.of("", CLAIMS) => released(store, claim.value())?,
        _ => {}
    }
    Ok(())
}

/// After a volume was written: it may be what a claim waits for.
fn volume_written(store: &mut Store, volume: &Arc<Stored>) -> Result<(), StoreError> {
    let phase = volume.value()["status"]["phase"].as_str().unwrap_or_default();
    match phase {
        "" | "Pending" => {
            let volume = set_phase(store, volume, "Available")?;
            claims_wait(store, &volume)
        }
        "Available" => claims_wait(store, volume),
        _ => Ok(()),
    }
}

/// After a claim was written: a volume may be there for it.
fn claim_written(store: &mut Store, claim: &Arc<Stored>) -> Result<(), StoreError> {
    if !waits(claim.value()) {
        return Ok(());
    }
    let volumes = store.list(VOLUMES, None, None, None)?;
    let best = volumes.iter().filter(|v| half_bound(v.value(), claim.value()) || fits(v.value(), claim.value()));
    // One that was bound when the power went, then one that waits for this claim, then the smallest.
    let best = best.min_by_key(|v| {
        let size = capacity(v.value()).map_or(0, Quantity::units);
        let reference = v.value()["spec"]["claimRef"].is_null();
        (!half_bound(v.value(), claim.value()), reference, size, v.key.name.clone())
    });
    best.map_or(Ok(()), |volume| bind(store, volume, claim))
}

/// Does what a crash amid the writes of one of these, or an error, has left undone.
pub(super) fn repair(store: &mut Store) -> Result<(), StoreError> {
    for volume in store.list(VOLUMES, None, None, None)? {
        let reference = &volume.value()["spec"]["claimRef"];
        let text = |field: &str| reference[field].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey { namespace: text("namespace"), name: text("name") };
        let bound = volume.value()["status"]["phase"] == "Bound";
        let held = store.get(CLAIMS, &key)?.is_some_and(|claim| meta::text(claim.value(), "uid") == text("uid"));
        if bound && !held {
            set_phase(store, &volume, "Released")?;
        } else {
            volume_written(store, &volume)?;
        }
    }
    for claim in store.list(CLAIMS, None, None, None)? {
        claim_written(store, &claim)?;
    }
    Ok(())
}

fn claims_wait(store: &mut Store, volume: &Arc<Stored>) -> Result<(), StoreError> {
    let claims = store.list(CLAIMS, None, None, None)?;
    match claims.iter().find(|claim| waits(claim.value()) && fits(volume.value(), claim.value())) {
        // There may be a better one for it.
        Some(claim) => claim_written(store, claim),
        None => Ok(()),
    }
}

fn waits(claim: &Value) -> bool {
    claim["status"]["phase"] != "Bound" && !meta::deleting(claim)
}

/// The volume is bound to the claim, and the claim does not know.
fn half_bound(volume: &Value, claim: &Value) -> bool {
    let uid = meta::text(claim, "uid");
    !uid.is_empty() && volume["status"]["phase"] == "Bound" && volume["spec"]["claimRef"]["uid"] == uid
}

/// After a claim was removed: its volume is kept for whoever wants its data.
fn released(store: &mut Store, claim: &Value) -> Result<(), StoreError> {
    let uid = meta::text(claim, "uid");
    for volume in store.list(VOLUMES, None, None, None)? {
        if volume.value()["spec"]["claimRef"]["uid"] == uid && !uid.is_empty() {
            set_phase(store, &volume, "Released")?;
        }
    }
    Ok(())
}

fn set_phase(store: &mut Store, volume: &Arc<Stored>, phase: &str) -> Result<Arc<Stored>, StoreError> {
    let mut new = volume.value().clone();
    new.set_at(&["status", "phase"], phase.into());
    store.write(VOLUMES, new, Some(volume), None)
}

fn bind(store: &mut Store, volume: &Arc<Stored>, claim: &Arc<Stored>) -> Result<(), StoreError> {
    let (mut pv, mut pvc) = (volume.value().clone(), claim.value().clone());
    pv.set_at(
        &["spec", "claimRef"],
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": claim.key.namespace, "name": claim.key.name, "uid": meta::text(&pvc, "uid"),
        }),
    );
    pv.set_at(&["status", "phase"], "Bound".into());
    pvc.set_at(&["spec", "volumeName"], volume.key.name.as_str().into());
    pvc.set(
        "status",
        json!({
            "phase": "Bound", "accessModes": pv["spec"]["accessModes"], "capacity": pv["spec"]["capacity"],
        }),
    );
    pvc.set_at(&["metadata", "annotations", "pv.kubernetes.io/bind-completed"], "yes".into());
    store.write(VOLUMES, pv, Some(volume), None)?;
    store.write(CLAIMS, pvc, Some(claim), None).map(drop)
}

fn fits(volume: &Value, claim: &Value) -> bool {
    let (pv, pvc) = (&volume["spec"], &claim["spec"]);
    let wanted = pvc["volumeName"].as_str().unwrap_or_default();
    if meta::deleting(volume) || volume["status"]["phase"] != "Available" {
        return false;
    }
    if !wanted.is_empty() && wanted != meta::text(volume, "name") {
        return false;
    }
    let reference = &pv["claimRef"];
    if !reference.is_null() {
        let uid = reference["uid"].as_str().unwrap_or_default();
        let same =
            reference["name"] == claim["metadata"]["name"] && reference["namespace"] == claim["metadata"]["namespace"];
        if !same || !(uid.is_empty() || uid == meta::text(claim, "uid")) {
            return false;
        }
    }
    let class = |spec: &Value| spec["storageClassName"].as_str().unwrap_or_default().to_owned();
    let mode = |spec: &Value| spec["volumeMode"].as_str().unwrap_or("Filesystem").to_owned();
    let has_mode = |wanted: &Value| pv["accessModes"].as_array().is_some_and(|modes| modes.contains(wanted));
    let asked = pvc["resources"]["requests"]["storage"].as_str().and_then(|text| Quantity::parse(text).ok());
    class(pv) == class(pvc)
        && mode(pv) == mode(pvc)
        && pvc["accessModes"].as_array().into_iter().flatten().all(has_mode)
        && asked.is_none_or(|asked| capacity(volume).is_some_and(|has| !has.minus(asked).is_negative()))
        && selects(&pvc["selector"], &volume["metadata"]["labels"])
}

fn capacity(volume: &Value) -> Option<Quantity> {
    Quantity::parse(volume["spec"]["capacity"]["storage"].as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(spec: Value) -> Value {
        let mut all = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"metadata": {"name": "pv", "labels": {"disk": "ssd"}}, "spec": all, "status": {"phase": "Available"}})
    }

    fn claim(spec: Value) -> Value {
        let mut all = json!({"resources": {"requests": {"storage": "500Mi"}}, "accessModes": ["ReadWriteOnce"]});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        json!({"metadata": {"name": "data", "namespace": "ns", "uid": "u1"}, "spec": all})
    }

    #[test]
    fn a_volume_fits_by_class_size_modes_labels_and_name() {
        let plain = volume(json!({}));
        for (spec, expected) in [
            (json!({}), true),
            (json!({"volumeName": "pv"}), true),
            (json!({"volumeName": "other"}), false),
            (json!({"storageClassName": "fast"}), false),
            (json!({"volumeMode": "Block"}), false),
            (json!({"accessModes": ["ReadWriteMany"]}), false),
            (json!({"resources": {"requests": {"storage": "2Gi"}}}), false),
            (json!({"selector": {"matchLabels": {"disk": "ssd"}}}), true),
            (
                json!({"selector": {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["ssd"]}]}}),
                false,
            ),
        ] {
            assert_eq!(fits(&plain, &claim(spec.clone())), expected, "{spec}");
        }
        let held = |reference: Value| fits(&volume(json!({"claimRef": reference})), &claim(json!({})));
        assert!(held(json!({"name": "data", "namespace": "ns"})));
        assert!(!held(json!({"name": "data", "namespace": "ns", "uid": "u0"})));
        assert!(!held(json!({"name": "other", "namespace": "ns"})));
    }
}
