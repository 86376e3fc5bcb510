//! VolumeAttachments: requests to attach a volume to a node. The driver's external-attacher writes the status.

use jiff::Timestamp;
use k8s_openapi::api::storage::v1;
use sampan_json::SetField;
use serde_json::{Value, json};

use super::rules::RULES;
use crate::codec::decode;
use crate::kinds::columns::{AGE, NAME, Table, age, name};
use crate::kinds::defaults::{drop_zero, volume_source};
use crate::kinds::kind::{Kind, PLAIN, keep_status};
use crate::kinds::volume::validate::{csi_driver_name, inline_volume};
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{flag, integer, present, set_default, text, text_entries};
use apimachinery::names;

/// Maximum length of names and values that the driver gives, in bytes.
const METADATA_MAX: usize = 256 * 1024;
/// Maximum length of the message of an error, in bytes.
const MESSAGE_MAX: usize = 1024;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    singular: "volumeattachment",
    check: Some(decode::check::<v1::VolumeAttachment>),
    rules: Rules { structures: &["spec", "status"], ..RULES },
    default,
    prepare_create: |attachment| attachment.set("status", json!({"attached": false})),
    prepare_update: keep_status,
    create: validate,
    update,
    status: Some(|new, _| validate(new)),
    prepare_status: keep_metadata,
    table: &Table {
        columns: [
            NAME,
            ("Attacher", "string", 0, "The driver that attaches the volume."),
            ("PV", "string", 0, "Name of the volume."),
            ("Node", "string", 0, "The node to which it is attached."),
            ("Attached", "boolean", 0, "Whether it is attached."),
            AGE,
        ],
        row,
    },
    ..PLAIN
};

fn default(attachment: &mut Value) {
    if let Some(status) = attachment.get_mut("status").filter(|status| status.is_object()) {
        set_default(status, "attached", false);
        drop_zero(status, &["attachmentMetadata"]);
    }
    if let Some(inline) = attachment.pointer_mut("/spec/source/inlineVolumeSpec") {
        volume_source(inline);
        if let Some(driver) = inline.get_mut("csi") {
            drop_zero(driver, &["fsType", "readOnly"]);
        }
    }
}

/// A write of the status does not change these (K8s apimachinery, `ResetObjectMetaForStatus`).
fn keep_metadata(new: &mut Value, old: &Value) {
    for field in ["annotations", "finalizers", "labels", "ownerReferences"] {
        apimachinery::meta::set(new, field, old["metadata"][field].clone());
    }
}

/// K8s pkg/apis/storage/validation, `ValidateVolumeAttachment`.
fn validate(attachment: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let (spec, status) = (&attachment["spec"], &attachment["status"]);
    csi_driver_name(&mut errors, "spec.attacher", text(spec, "attacher"));
    source(&mut errors, &spec["source"]);
    let node = text(spec, "nodeName");
    invalid_text(&mut errors, "spec.nodeName", node, names::dns_subdomain(node));
    let size: usize = text_entries(status, "attachmentMetadata").map(|(name, value)| name.len() + value.len()).sum();
    if size > METADATA_MAX {
        errors.push(FieldError::too_long("status.attachmentMetadata", METADATA_MAX));
    }
    for field in ["attachError", "detachError"] {
        let error = &status[field];
        if text(error, "message").len() > MESSAGE_MAX {
            // The limit that Kubernetes names is another one, too.
            errors.push(FieldError::too_long(format!("status.{field}.message"), METADATA_MAX));
        }
        if integer(error, "errorCode").is_some_and(|code| code < 0) {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(format!("status.{field}.errorCode"), &error["errorCode"], detail));
        }
    }
    if let Some(volume) = source_name(spec) {
        let path = "spec.source.persistentVolumeName";
        invalid_text(&mut errors, path, volume, names::dns_subdomain(volume));
    }
    errors
}

fn source_name(spec: &Value) -> Option<&str> {
    present(&spec["source"], "persistentVolumeName").and_then(Value::as_str)
}

fn source(errors: &mut Errors, source: &Value) {
    let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (present(source, "inlineVolumeSpec"), present(source, "persistentVolumeName")) {
        (None, None) => errors.push(FieldError::required("spec.source", detail)),
        (Some(_), Some(_)) => errors.push(FieldError::forbidden("spec.source", detail)),
        (None, Some(name)) if name == "" => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required("spec.source.persistentVolumeName", detail));
        }
        (None, Some(_)) => {}
        (Some(inline), None) => inline_volume(errors, "spec.source.inlineVolumeSpec", inline),
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    immutable(&mut errors, "spec", &new["spec"], &old["spec"]);
    errors
}

fn row(attachment: &Value, now: Timestamp) -> [Value; 6] {
    let spec = &attachment["spec"];
    [
        name(attachment),
        text(spec, "attacher").into(),
        source_name(spec).unwrap_or_default().into(),
        text(spec, "nodeName").into(),
        flag(&attachment["status"], "attached").into(),
        age(attachment, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(source: Value) -> Value {
        json!({"metadata": {"name": "csi-1"}, "spec": {"attacher": "d.csi", "nodeName": "n", "source": source},
            "status": {"attached": false}})
    }

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn attachment_has_one_source() {
        let none: [&str; 0] = [];
        let of = |source: Value| fields(validate(&with(source)));
        assert_eq!(of(json!({"persistentVolumeName": "pv"})), none);
        let inline = json!({"csi": {"driver": "d.csi", "volumeHandle": "h"}, "accessModes": ["ReadWriteOnce"]});
        assert_eq!(of(json!({ "inlineVolumeSpec": inline })), none);
        assert_eq!(of(json!({})), ["spec.source"]);
        assert_eq!(of(json!({"inlineVolumeSpec": inline, "persistentVolumeName": "pv"})), ["spec.source"]);
        let path = "spec.source.persistentVolumeName";
        assert_eq!(of(json!({"persistentVolumeName": ""})), [path, path]);
        assert_eq!(of(json!({"persistentVolumeName": "A"})), [path]);
        let path = "spec.source.inlineVolumeSpec";
        assert_eq!(of(json!({"inlineVolumeSpec": {}})), [&format!("{path}.csi"), &format!("{path}.accessModes"), path]);
        let wrong = json!({"spec": {"attacher": "", "nodeName": "", "source": {"persistentVolumeName": "pv"}}});
        assert_eq!(fields(validate(&wrong)), ["spec.attacher", "spec.nodeName"]);
    }

    #[test]
    fn status_has_limits() {
        let of = |status: Value| {
            let mut attachment = with(json!({"persistentVolumeName": "pv"}));
            attachment["status"] = status;
            fields(validate(&attachment))
        };
        let none: [&str; 0] = [];
        let error = |length: usize, code: i64| json!({"message": "x".repeat(length), "errorCode": code});
        assert_eq!(of(json!({"attachmentMetadata": {"a": "b"}, "attachError": error(MESSAGE_MAX, 0)})), none);
        assert_eq!(of(json!({"attachmentMetadata": {"a": "x".repeat(METADATA_MAX)}})), ["status.attachmentMetadata"]);
        let expected = ["status.detachError.message", "status.detachError.errorCode"];
        assert_eq!(of(json!({"detachError": error(MESSAGE_MAX + 1, -1)})), expected);
    }

    #[test]
    fn spec_of_an_attachment_stays() {
        let old = with(json!({"persistentVolumeName": "pv"}));
        assert_eq!(update(&old, &old), []);
        assert_eq!(fields(update(&with(json!({"persistentVolumeName": "other"})), &old)), ["spec"]);
        let mut new = with(json!({"persistentVolumeName": "pv"}));
        new["metadata"]["finalizers"] = json!(["mine"]);
        keep_metadata(&mut new, &json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(new["metadata"], json!({"name": "csi-1", "labels": {"a": "b"}}));
    }
}
