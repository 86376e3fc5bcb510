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
/// Maximum length of a CSI driver's name, in bytes.
const DRIVER_NAME_MAX: usize = 63;
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
    access_modes(&mut errors, "spec", spec);
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
    if let Some(driver) = present(spec, "csi") {
        csi(&mut errors, "spec.csi", driver);
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

/// Validates the spec of a volume within a VolumeAttachment (K8s pkg/apis/core/validation,
/// `ValidatePersistentVolumeSpec`).
pub(crate) fn inline_volume(errors: &mut Errors, path: &str, spec: &Value) {
    let at = |field: &str| format!("{path}.{field}");
    let elsewhere = "may not be specified in the context of inline volumes";
    if present(spec, "claimRef").is_some() {
        errors.push(FieldError::forbidden(at("claimRef"), elsewhere));
    }
    if entries(spec, "capacity").next().is_some() {
        errors.push(FieldError::forbidden(at("capacity"), elsewhere));
    }
    if present(spec, "csi").is_none() {
        errors.push(FieldError::required(at("csi"), "has to be specified in the context of inline volumes"));
    }
    if items(spec, "accessModes").is_empty() {
        errors.push(FieldError::required(at("accessModes"), ""));
    }
    access_modes(errors, path, spec);
    if !["", "Retain"].contains(&text(spec, "persistentVolumeReclaimPolicy")) {
        let detail = "may only be Retain in the context of inline volumes";
        errors.push(FieldError::forbidden(at("persistentVolumeReclaimPolicy"), detail));
    }
    if present(spec, "nodeAffinity").is_some() {
        errors.push(FieldError::forbidden(at("nodeAffinity"), elsewhere));
    }
    match (sources(spec).next(), sources(spec).nth(1)) {
        (None, _) => errors.push(FieldError::required(path, "must specify a volume type")),
        (Some(_), Some((second, _))) => {
            errors.push(FieldError::forbidden(at(second), "may not specify more than 1 volume type"));
        }
        _ => {}
    }
    if let Some(driver) = present(spec, "csi") {
        csi(errors, &at("csi"), driver);
    }
    if !text(spec, "storageClassName").is_empty() {
        errors.push(FieldError::forbidden(at("storageClassName"), elsewhere));
    }
    if !["", "Filesystem"].contains(&text(spec, "volumeMode")) {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.push(FieldError::forbidden(at("volumeMode"), detail));
    }
}

/// Validates the name of a CSI driver.
pub(crate) fn csi_driver_name(errors: &mut Errors, path: &str, name: &str) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > DRIVER_NAME_MAX {
        errors.push(FieldError::too_long(path, DRIVER_NAME_MAX));
    }
    invalid_text(errors, path, name, names::dns_subdomain(&name.to_lowercase()));
}

/// Validates the source of a CSI volume. As in Kubernetes, not the secret for staging.
fn csi(errors: &mut Errors, path: &str, source: &Value) {
    csi_driver_name(errors, &format!("{path}.driver"), text(source, "driver"));
    if text(source, "volumeHandle").is_empty() {
        errors.push(FieldError::required(format!("{path}.volumeHandle"), ""));
    }
    const SECRETS: [&str; 4] =
        ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"];
    for (field, secret) in SECRETS.into_iter().filter_map(|field| Some((field, present(source, field)?))) {
        let path = format!("{path}.{field}");
        secret_part(errors, format!("{path}.name"), text(secret, "name"), names::dns_subdomain);
        secret_part(errors, format!("{path}.namespace"), text(secret, "namespace"), names::dns_label);
    }
}

fn secret_part(errors: &mut Errors, path: String, given: &str, rule: fn(&str) -> Vec<String>) {
    if given.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        invalid_text(errors, &path, given, rule(given));
    }
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
    const EXPANDS: &str = "controllerExpandSecretRef";
    let mut errors = volume(new);
    let mut spec = new["spec"].clone();
    // This secret may be added later.
    if present(&old["spec"]["csi"], EXPANDS).is_none()
        && let Some(source) = spec.get_mut("csi").and_then(Value::as_object_mut)
    {
        source.remove(EXPANDS);
    }
    if !sources(&spec).eq(sources(&old["spec"])) {
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
    access_modes(&mut errors, "spec", spec);
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

fn access_modes(errors: &mut Errors, path: &str, spec: &Value) {
    let path = format!("{path}.accessModes");
    let modes: Vec<&str> = items(spec, "accessModes").iter().filter_map(Value::as_str).collect();
    for mode in modes.iter().filter(|m| !ACCESS_MODES.contains(m)) {
        errors.push(FieldError::not_supported(path.as_str(), &(*mode).into(), ACCESS_MODES));
    }
    let single = modes.contains(&"ReadWriteOncePod");
    if single && modes.iter().any(|m| *m != "ReadWriteOncePod" && ACCESS_MODES.contains(m)) {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(path, detail));
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

    #[test]
    fn csi_volume_names_driver_handle_and_secrets() {
        let fields = |source: Value| {
            let mut errors = Errors::new();
            csi(&mut errors, "spec.csi", &source);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert!(fields(json!({"driver": "Disks.example.com", "volumeHandle": "h"})).is_empty());
        assert_eq!(fields(json!({})), ["spec.csi.driver", "spec.csi.volumeHandle"]);
        let secrets = json!({"driver": "d".repeat(64), "volumeHandle": "h", "nodeStageSecretRef": {},
            "nodePublishSecretRef": {"name": "a"}, "controllerExpandSecretRef": {"name": "B", "namespace": "n"}});
        let expected =
            ["spec.csi.driver", "spec.csi.controllerExpandSecretRef.name", "spec.csi.nodePublishSecretRef.namespace"];
        assert_eq!(fields(secrets), expected);
    }

    #[test]
    fn secret_for_expansion_may_be_added_to_a_csi_volume() {
        let with = |source: Value| json!({"spec": {"csi": source, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
        let secret = json!({"name": "a", "namespace": "n"});
        let (plain, expands) = (
            json!({"driver": "d", "volumeHandle": "h"}),
            json!({"driver": "d", "volumeHandle": "h", "controllerExpandSecretRef": secret}),
        );
        assert_eq!(volume_update(&with(expands.clone()), &with(plain.clone())), []);
        assert_eq!(volume_update(&with(plain.clone()), &with(expands)).len(), 1);
        let other = json!({"driver": "d", "volumeHandle": "other"});
        assert_eq!(volume_update(&with(other), &with(plain)).len(), 1);
    }

    #[test]
    fn inline_volume_is_a_csi_source_and_nothing_else() {
        let fields = |spec: Value| {
            let mut errors = Errors::new();
            inline_volume(&mut errors, "s", &spec);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        let csi = json!({"driver": "d", "volumeHandle": "h"});
        assert!(fields(json!({"csi": csi, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"})).is_empty());
        let wrong = json!({"csi": csi, "nfs": {}, "accessModes": ["Some"], "capacity": {"storage": "1"}, "claimRef": {},
            "nodeAffinity": {}, "storageClassName": "a", "volumeMode": "Block", "persistentVolumeReclaimPolicy": "Delete"});
        let expected = [
            "s.claimRef",
            "s.capacity",
            "s.accessModes",
            "s.persistentVolumeReclaimPolicy",
            "s.nodeAffinity",
            "s.nfs",
            "s.storageClassName",
            "s.volumeMode",
        ];
        assert_eq!(fields(wrong), expected);
    }
}
