//! Leases.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1;
use serde_json::Value;

use super::columns::{AGE, NAME, Table, age, name};
use super::kind::{Kind, PLAIN};
use crate::codec::decode;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError};
use apimachinery::json::{integer, text};

pub(crate) static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    namespaced: true,
    check: Some(decode::check::<v1::Lease>),
    rules: Rules {
        structures: &["spec"],
        allow_create_on_update: true,
        allow_unconditional_update: false,
        ..Rules::BUILT_IN
    },
    create: validate,
    update: |new, _| validate(new),
    table: &Table { columns: [NAME, ("Holder", "string", 0, "Identity of the current holder."), AGE], row },
    ..PLAIN
};

fn validate(lease: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let spec = &lease["spec"];
    if integer(spec, "leaseDurationSeconds").is_some_and(|s| s <= 0) {
        let path = "spec.leaseDurationSeconds";
        errors.push(FieldError::invalid(path, &spec["leaseDurationSeconds"], "must be greater than 0"));
    }
    if integer(spec, "leaseTransitions").is_some_and(|n| n < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.leaseTransitions", &spec["leaseTransitions"], detail));
    }
    errors
}

fn row(obj: &Value, now: Timestamp) -> [Value; 3] {
    [name(obj), text(&obj["spec"], "holderIdentity").into(), age(obj, now)]
}
