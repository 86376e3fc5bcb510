//! CSIStorageCapacities: how much a driver can still store for a class in a part of the cluster.

use jiff::Timestamp;
use k8s_openapi::api::storage::v1;
use serde_json::Value;

use super::rules::RULES;
use crate::codec::decode;
use crate::kinds::columns::{NAME, Table, name};
use crate::kinds::defaults::drop_zero;
use crate::kinds::kind::{Kind, PLAIN};
use crate::kinds::pod::warnings::common::{deprecated, node_term};
use crate::kinds::workload::selector::selector;
use crate::patch::merge_keys::{META, Type, one};
use crate::resource::rules::Rules;
use apimachinery::field::{Errors, FieldError, immutable, invalid_text};
use apimachinery::json::{entries, present, text};
use apimachinery::names;
use apimachinery::quantity::{Quantity, canonicalize};

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    singular: "csistoragecapacity",
    namespaced: true,
    check: Some(decode::check::<v1::CSIStorageCapacity>),
    rules: Rules { structures: &[], ..RULES },
    default,
    create: validate,
    update,
    warnings,
    update_warnings: warnings,
    table: &Table {
        columns: [
            NAME,
            ("StorageClassName", "string", 0, "The class of the volumes."),
            ("Capacity", "string", 0, "How much can still be stored."),
        ],
        row,
    },
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, one("nodeTopology")] };

fn default(capacity: &mut Value) {
    for field in ["capacity", "maximumVolumeSize"] {
        if let Some(amount) = capacity.get_mut(field) {
            canonicalize(amount);
        }
    }
    if let Some(topology) = capacity.get_mut("nodeTopology") {
        drop_zero(topology, &["matchLabels", "matchExpressions"]);
    }
}

/// K8s pkg/apis/storage/validation, `ValidateCSIStorageCapacity`.
fn validate(capacity: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    selector(&mut errors, "nodeTopology", &capacity["nodeTopology"]);
    let class = text(capacity, "storageClassName");
    invalid_text(&mut errors, "storageClassName", class, names::dns_subdomain(class));
    if let Some(amount) = present(capacity, "capacity").and_then(Quantity::from_value)
        && amount.is_negative()
    {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("capacity", &amount.to_string().into(), detail));
    }
    errors
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    for field in ["nodeTopology", "storageClassName"] {
        immutable(&mut errors, field, &new[field], &old[field]);
    }
    errors
}

/// K8s pkg/api/node/util.go, `GetWarningsForNodeSelector`.
fn warnings(capacity: &Value) -> Vec<String> {
    let topology = &capacity["nodeTopology"];
    let mut told = Vec::new();
    node_term("nodeTopology", topology, &mut told);
    let labels = entries(topology, "matchLabels");
    told.extend(
        labels.filter_map(|(label, _)| Some(format!("nodeTopology.matchLabels.{label}: {}", deprecated(label)?))),
    );
    told.truncate(32);
    told
}

fn row(capacity: &Value, _now: Timestamp) -> [Value; 3] {
    let amount = present(capacity, "capacity").cloned().unwrap_or_else(|| "<unset>".into());
    [name(capacity), text(capacity, "storageClassName").into(), amount]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn capacity_names_a_class_and_an_amount() {
        let mut good = json!({"storageClassName": "fast", "capacity": "1024Mi", "nodeTopology": {"matchLabels": {}}});
        default(&mut good);
        assert_eq!((validate(&good), &good["capacity"], &good["nodeTopology"]), (vec![], &json!("1Gi"), &json!({})));
        assert_eq!(row(&good, Timestamp::UNIX_EPOCH)[1..], [json!("fast"), json!("1Gi")]);
        assert_eq!(row(&json!({}), Timestamp::UNIX_EPOCH)[2], "<unset>");
        let wrong = json!({"storageClassName": "", "capacity": "-1", "nodeTopology": {"matchExpressions": [
            {"key": "a", "operator": "Near"}]}});
        let expected = ["nodeTopology.matchExpressions[0].operator", "storageClassName", "capacity"];
        assert_eq!(fields(validate(&wrong)), expected);
    }

    #[test]
    fn class_and_place_of_a_capacity_stay() {
        let old = json!({"storageClassName": "fast", "capacity": "1Gi", "nodeTopology": {"matchLabels": {"a": "b"}}});
        let with = |field: &str, value: Value| {
            let mut new = old.clone();
            new[field] = value;
            fields(update(&new, &old))
        };
        let none: [&str; 0] = [];
        assert_eq!(with("capacity", json!("2Gi")), none);
        assert_eq!(with("storageClassName", json!("slow")), ["storageClassName"]);
        assert_eq!(with("nodeTopology", json!({})), ["nodeTopology"]);
    }

    #[test]
    fn old_labels_are_warned_of() {
        let label = "beta.kubernetes.io/os";
        let topology =
            json!({"matchLabels": {label: "linux"}, "matchExpressions": [{"key": label, "operator": "Exists"}]});
        assert_eq!(warnings(&json!({"nodeTopology": topology})).len(), 2);
    }
}
