//! VolumeAttributesClasses: attributes of volumes that can change while they are used. The driver's external-resizer
//! applies them. Kubernetes keeps a class that is in use from deletion; here nothing does.

use jiff::Timestamp;
use k8s_openapi::api::storage::v1;
use serde_json::Value;

use crate::codec::decode;
use crate::kinds::columns::{AGE, NAME, Table, age, name};
use crate::kinds::defaults::drop_zero;
use crate::kinds::kind::{Kind, PLAIN};
use crate::kinds::storage_class::parameters;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, invalid_text};
use apimachinery::json::{entries, text};
use apimachinery::names;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    check: Some(decode::check::<v1::VolumeAttributesClass>),
    rules: Rules { return_deleted_object: true, ..Rules::BUILT_IN },
    default: |class| drop_zero(class, &["parameters"]),
    create: validate,
    update,
    table: &Table { columns: [NAME, ("DriverName", "string", 0, "The driver of the volumes."), AGE], row },
    ..PLAIN
};

/// K8s pkg/apis/storage/validation, `ValidateVolumeAttributesClass`.
fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    match text(class, "driverName") {
        "" => errors.push(FieldError::required("driverName", "")),
        driver => {
            let lower = driver.to_lowercase();
            invalid_text(&mut errors, "driverName", &lower, names::qualified_name(&lower));
        }
    }
    parameters(&mut errors, class);
    if entries(class, "parameters").next().is_none() {
        errors.push(FieldError::required("parameters", "must contain at least one key/value pair"));
    }
    errors
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    for field in ["driverName", "parameters"] {
        if new[field] != old[field] {
            errors.push(FieldError::forbidden(field, &format!("updates to {field} are forbidden.")));
        }
    }
    errors.extend(validate(new));
    errors
}

fn row(class: &Value, now: Timestamp) -> [Value; 3] {
    [name(class), text(class, "driverName").into(), age(class, now)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn class_has_a_driver_and_parameters_that_stay() {
        let fields = |errors: Vec<FieldError>| errors.into_iter().map(|error| error.field).collect::<Vec<_>>();
        let class = json!({"driverName": "d.csi", "parameters": {"iops": "3000"}});
        assert_eq!(validate(&class), []);
        assert_eq!(fields(validate(&json!({}))), ["driverName", "parameters"]);
        assert_eq!(update(&class, &class), []);
        let other = json!({"driverName": "e.csi", "parameters": {"iops": "4000"}});
        assert_eq!(fields(update(&other, &class)), ["driverName", "parameters"]);
    }
}
