//! Rules of PersistentVolumes and claims.

use sampan_json::SetField;
use serde_json::Value;

use crate::kinds::pod::validate::{affinity, resources};
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{entries, items, present, text};
use apimachinery::names;
use apimachinery::quantity::Quantity;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
/// Fields of a PersistentVolume's spec that are not its source.
const VOLUME_FIELDS: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// Validates a PersistentVolume.
pub(crate) fn volume(volume: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &volume["spec"];
    if items(spec, "accessModes").is_empty() {
        errors.push(FieldError::required("spec.accessModes", ""));
    }
    access_modes(&mut errors, spec);
    let capacity = &spec["capacity"];
    if entries(spec, "capacity").next().is_none() {
        errors.push(FieldError::required("spec.capacity", ""));
    }
    if capacity.get("storage").is_none() || entries(spec, "capacity").count() > 1 {
        errors.push(FieldError::not_supported("spec.capacity", capacity, &["storage"]));
    }
    for (name, value) in entries(spec, "capacity") {
        let path = format!("spec.capacity[{name}]");
        positive(&mut errors, &path, name, Quantity::from_value(value));
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !["Delete", "Recycle", "Retain"].contains(&policy) {
        let path = "spec.persistentVolumeReclaimPolicy";
        errors.push(FieldError::not_supported(path, &policy.into(), &["Delete", "Recycle", "Retain"]));
    }
    if let Some(required) = present(&spec["nodeAffinity"], "required") {
        affinity::node_selector(&mut errors, "spec.nodeAffinity.required", required);
    }
    let mut sources = sources(spec);
    match (sources.next(), sources.next()) {
        (None, _) => errors.push(FieldError::required("spec", "must specify a volume type")),
        (Some(("local", _)), None) if spec["nodeAffinity"]["required"].is_null() => {
            errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
        }
        (Some(_), Some((second, _))) => {
            errors.push(FieldError::forbidden(format!("spec.{second}"), "may not specify more than 1 volume type"));
        }
        _ => {}
    }
    class_and_mode(&mut errors, spec);
    mount_options(&mut errors, volume);
    errors
}

/// The annotation with mount options is only for sources that support them (K8s
/// pkg/volume/validation/pv_validation.go).
fn mount_options(errors: &mut Errors, volume: &Value) {
    const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";
    const TAKE: &[&str] = &[
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "gcePersistentDisk",
        "glusterfs",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "quobyte",
        "rbd",
        "vsphereVolume",
    ];
    let takes = sources(&volume["spec"]).any(|(kind, _)| TAKE.contains(&kind));
    if volume["metadata"]["annotations"].get(ANNOTATION).is_some() && !takes {
        let why = "may not specify mount options for this volume type";
        errors.push(FieldError::forbidden(format!("metadata.annotations.{ANNOTATION}"), why));
    }
}

/// Validates a change of a PersistentVolume: its source stays.
pub(crate) fn volume_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = volume(new);
    if !sources(&new["spec"]).eq(sources(&old["spec"])) {
        let detail = "spec.persistentvolumesource is immutable after creation\n";
        errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
    immutable(&mut errors, "volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
    errors
}

fn sources(spec: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = spec.as_object().into_iter().flatten().map(|(kind, value)| (kind.as_str(), value));
    all.filter(|(kind, value)| !VOLUME_FIELDS.contains(kind) && !value.is_null())
}

/// Validates a PersistentVolumeClaim.
pub(crate) fn claim(claim: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &claim["spec"];
    if items(spec, "accessModes").is_empty() {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    access_modes(&mut errors, spec);
    match present(&spec["resources"]["requests"], "storage") {
        None => errors.push(FieldError::required("spec.resources[storage]", "")),
        Some(size) => positive(&mut errors, "spec.resources[storage]", "storage", Quantity::from_value(size)),
    }
    class_and_mode(&mut errors, spec);
    errors
}

/// Validates a change of a claim: bound once, grown when bound, else unchanged.
pub(crate) fn claim_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = claim(new);
    let (mut changed, mut before) = (new["spec"].clone(), old["spec"].clone());
    if text(&before, "volumeName").is_empty() {
        before.set("volumeName", changed["volumeName"].clone());
    }
    if text(&new["status"], "phase") == "Bound" {
        let size = before["resources"]["requests"]["storage"].clone();
        if let Some(requests) = changed.pointer_mut("/resources/requests") {
            requests.set("storage", size);
        }
        changed.set("volumeAttributesClassName", before["volumeAttributesClassName"].clone());
    }
    let drop_nulls = |spec: &mut Value| {
        if let Some(map) = spec.as_object_mut() {
            map.retain(|_, value| !value.is_null());
        }
    };
    drop_nulls(&mut changed);
    drop_nulls(&mut before);
    if changed != before {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims\n";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let size =
        |claim: &Value, holder: &str| claim.pointer(holder).and_then(Quantity::from_value).unwrap_or(Quantity::ZERO);
    let (new_size, old_size) =
        (size(new, "/spec/resources/requests/storage"), size(old, "/spec/resources/requests/storage"));
    if new_size < old_size && new_size <= size(old, "/status/capacity/storage") {
        let detail = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden("spec.resources.requests.storage", detail));
    }
    errors
}

fn access_modes(errors: &mut Errors, spec: &Value) {
    let modes: Vec<&str> = items(spec, "accessModes").iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|m| !ACCESS_MODES.contains(m)) {
        errors.push(FieldError::not_supported("spec.accessModes", &(*mode).into(), ACCESS_MODES));
    }
    let single = modes.contains(&"ReadWriteOncePod");
    if single && modes.iter().any(|m| *m != "ReadWriteOncePod" && ACCESS_MODES.contains(m)) {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden("spec.accessModes", detail));
    }
}

fn class_and_mode(errors: &mut Errors, spec: &Value) {
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        invalid_text(errors, "spec.storageClassName", class, names::dns_subdomain(class));
    }
    if let Some(mode) = present(spec, "volumeMode").and_then(Value::as_str)
        && !VOLUME_MODES.contains(&mode)
    {
        errors.push(FieldError::not_supported("spec.volumeMode", &mode.into(), VOLUME_MODES));
    }
}

fn positive(errors: &mut Errors, path: &str, name: &str, amount: Option<Quantity>) {
    let Some(amount) = amount else { return };
    if amount <= Quantity::ZERO {
        errors.push(FieldError::invalid(path, &amount.to_string().into(), "must be greater than zero"));
    } else {
        resources::quantity(errors, path, name, amount);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_path_takes_no_mount_options() {
        let of = |source: &str, name: &str| {
            let mut errors = Errors::new();
            let volume = json!({"metadata": {"annotations": {name: "ro"}}, "spec": {source: {}}});
            mount_options(&mut errors, &volume);
            errors.len()
        };
        const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";
        assert_eq!((of("hostPath", ANNOTATION), of("csi", ANNOTATION), of("local", ANNOTATION)), (1, 1, 1));
        assert_eq!((of("hostPath", "x"), of("nfs", ANNOTATION)), (0, 0));
    }
}
