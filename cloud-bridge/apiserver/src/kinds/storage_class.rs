//! StorageClasses: how volumes are made for claims. Claims that name none get the default one
//! (`admission/default_storage_class.rs`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::storage::v1;
use serde_json::Value;

use super::columns::{AGE, NAME, Table, age};
use super::defaults::drop_zero;
use super::kind::{Kind, PLAIN};
use super::pod::warnings::common::deprecated;
use crate::codec::decode;
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text, one_of};
use apimachinery::json::{entries, flag, items, set_default, text, text_entries};
use apimachinery::{meta, names};

/// The storage of the classes.
pub(crate) const STORAGE: &str = "storageclasses.storage.k8s.io";
const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    check: Some(decode::check::<v1::StorageClass>),
    rules: Rules { return_deleted_object: true, ..Rules::BUILT_IN },
    default,
    create: validate,
    update,
    warnings,
    update_warnings: warnings,
    table: &Table {
        columns: [
            NAME,
            ("Provisioner", "string", 0, "Who makes volumes of this class."),
            ("ReclaimPolicy", "string", 0, "What becomes of a volume whose claim has gone."),
            ("VolumeBindingMode", "string", 0, "When a claim gets its volume."),
            ("AllowVolumeExpansion", "string", 0, "Whether a claim may grow."),
            AGE,
        ],
        row,
    },
    ..PLAIN
};

/// Whether a class is for claims that name none.
pub(crate) fn is_default(class: &Value) -> bool {
    let annotations = &class["metadata"]["annotations"];
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
        .iter()
        .any(|name| text(annotations, name) == "true")
}

fn default(class: &mut Value) {
    drop_zero(class, &["parameters", "mountOptions", "allowedTopologies"]);
    set_default(class, "reclaimPolicy", "Delete");
    set_default(class, "volumeBindingMode", "Immediate");
}

/// K8s pkg/apis/storage/validation.
fn validate(class: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    match text(class, "provisioner") {
        "" => errors.push(FieldError::required("provisioner", "")),
        provisioner => {
            let lower = provisioner.to_lowercase();
            invalid_text(&mut errors, "provisioner", &lower, names::qualified_name(&lower));
        }
    }
    parameters(&mut errors, class);
    match text(class, "reclaimPolicy") {
        "" => {}
        policy => one_of(&mut errors, "reclaimPolicy".into(), policy, &["Delete", "Retain"]),
    }
    const MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];
    if !MODES.contains(&text(class, "volumeBindingMode")) {
        errors.push(FieldError::not_supported("volumeBindingMode", &class["volumeBindingMode"], MODES));
    }
    topologies(&mut errors, items(class, "allowedTopologies"));
    errors
}

/// Validates the parameters of a class: their number, names and size.
pub(super) fn parameters(errors: &mut Errors, class: &Value) {
    if entries(class, "parameters").count() > PARAMETERS_MAX {
        errors.push(FieldError::too_long("parameters", PARAMETERS_MAX));
        return;
    }
    let mut size = 0;
    for (name, value) in text_entries(class, "parameters") {
        if name.is_empty() {
            errors.push(FieldError::invalid("parameters", &name.into(), "field can not be empty."));
        }
        size += name.len() + value.len();
    }
    if size > PARAMETERS_BYTES_MAX {
        errors.push(FieldError::too_long("parameters", PARAMETERS_BYTES_MAX));
    }
}

fn topologies(errors: &mut Errors, terms: &[Value]) {
    let mut known = BTreeSet::new();
    for (i, term) in terms.iter().enumerate() {
        let path = format!("allowedTopologies[{i}].matchLabelExpressions");
        let chosen = expressions(errors, &path, items(term, "matchLabelExpressions"));
        // Kubernetes compares with empty terms, too.
        if chosen.is_empty() || !known.insert(chosen) {
            errors.push(FieldError::duplicate(path, &"".into()));
        }
    }
}

/// The values that each label may have.
fn expressions<'a>(errors: &mut Errors, path: &str, list: &'a [Value]) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut chosen = BTreeMap::new();
    for (i, expression) in list.iter().enumerate() {
        let (path, key) = (format!("{path}[{i}]"), text(expression, "key"));
        let values = items(expression, "values");
        if values.is_empty() {
            errors.push(FieldError::required(format!("{path}.values"), ""));
        }
        let mut set = BTreeSet::new();
        for (j, value) in values.iter().enumerate() {
            if !set.insert(value.as_str().unwrap_or_default()) {
                errors.push(FieldError::duplicate(format!("{path}.values[{j}]"), value));
            }
        }
        invalid_text(errors, &format!("{path}.key"), key, names::qualified_name(key));
        if chosen.insert(key, set).is_some() {
            errors.push(FieldError::duplicate(format!("{path}.key"), &key.into()));
        }
    }
    chosen
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        immutable(&mut errors, field, &new[field], &old[field]);
    }
    errors
}

/// K8s pkg/api/storage/util.go.
fn warnings(class: &Value) -> Vec<String> {
    let topologies = items(class, "allowedTopologies").iter().enumerate();
    let terms = topologies.flat_map(|(i, one)| {
        let expressions = items(one, "matchLabelExpressions").iter().enumerate();
        expressions.map(move |(j, one)| (format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key"), one))
    });
    terms.filter_map(|(path, one)| Some(format!("{path}: {}", deprecated(text(one, "key"))?))).take(32).collect()
}

fn row(class: &Value, now: Timestamp) -> [Value; 6] {
    let name = meta::text(class, "name");
    let name = if is_default(class) { format!("{name} (default)") } else { name.to_owned() };
    [
        name.into(),
        text(class, "provisioner").into(),
        text(class, "reclaimPolicy").into(),
        text(class, "volumeBindingMode").into(),
        flag(class, "allowVolumeExpansion").into(),
        age(class, now),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(class: Value) -> Vec<String> {
        let mut class = class;
        default(&mut class);
        validate(&class).into_iter().map(|e| e.field).collect()
    }

    #[test]
    fn a_class_names_who_makes_its_volumes() {
        let none: [&str; 0] = [];
        assert_eq!(fields(json!({"provisioner": "sampan.dev/local"})), none);
        assert_eq!(fields(json!({})), ["provisioner"]);
        assert_eq!(fields(json!({"provisioner": "a/b/c"})), ["provisioner"]);
        let wrong = json!({"provisioner": "a", "reclaimPolicy": "Recycle", "volumeBindingMode": "Later",
            "parameters": {"": "x"}});
        assert_eq!(fields(wrong), ["parameters", "reclaimPolicy", "volumeBindingMode"]);
        let long = "x".repeat(PARAMETERS_BYTES_MAX);
        assert_eq!(fields(json!({"provisioner": "a", "parameters": {"a": long}})), ["parameters"]);
    }

    #[test]
    fn places_are_told_apart() {
        let term = |values: Value| json!({"matchLabelExpressions": [{"key": "zone", "values": values}]});
        let of = |terms: Value| fields(json!({"provisioner": "a", "allowedTopologies": terms}));
        assert!(of(json!([term(json!(["a"])), term(json!(["b"]))])).is_empty());
        let twice = of(json!([term(json!(["a", "b"])), term(json!(["b", "a"]))]));
        assert_eq!(twice, ["allowedTopologies[1].matchLabelExpressions"]);
        let path = "allowedTopologies[0].matchLabelExpressions";
        assert_eq!(of(json!([term(json!([]))])), [format!("{path}[0].values")]);
        assert_eq!(of(json!([term(json!(["a", "a"]))])), [format!("{path}[0].values[1]")]);
        assert_eq!(of(json!([{}])), [path]);
    }

    #[test]
    fn what_volumes_were_made_by_stays() {
        let old = json!({"provisioner": "a", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"});
        let new = json!({"provisioner": "b", "reclaimPolicy": "Retain", "volumeBindingMode": "Immediate",
            "allowVolumeExpansion": true});
        let fields: Vec<String> = update(&new, &old).into_iter().map(|e| e.field).collect();
        assert_eq!(fields, ["provisioner", "reclaimPolicy"]);
    }
}
