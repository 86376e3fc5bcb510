//! CSINodes: the drivers that are registered on a node, its name for each of them, and how many volumes it may have.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::api::storage::v1;
use sampan_json::SetField;
use serde_json::Value;

use super::rules::RULES;
use crate::codec::decode;
use crate::kinds::columns::{AGE, NAME, Table, age, name};
use crate::kinds::kind::{Kind, PLAIN};
use crate::kinds::volume::validate::csi_driver_name;
use crate::patch::merge_keys::{META, Type, by, object};
use apimachinery::field::{Errors, FieldError, immutable, invalid_text, not_negative};
use apimachinery::json::{by_text, integer, items, text};
use apimachinery::names;

/// Maximum length of a driver's name for the node, in bytes.
const NODE_ID_MAX: usize = 256;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    check: Some(decode::check::<v1::CSINode>),
    rules: RULES,
    create: validate,
    update,
    table: &Table {
        columns: [
            NAME,
            ("Drivers", "integer", 0, "Drivers indicates the number of CSI drivers registered on the node"),
            AGE,
        ],
        row,
    },
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &SPEC)] };
static SPEC: Type = Type { fields: &[by("drivers", &["name"])] };

/// K8s pkg/apis/storage/validation, `validateCSINodeDrivers`.
fn validate(node: &Value) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let mut known = HashSet::new();
    for (i, driver) in items(&node["spec"], "drivers").iter().enumerate() {
        let path = format!("spec.drivers[{i}]");
        let driver_name = text(driver, "name");
        csi_driver_name(&mut errors, &format!("{path}.name"), driver_name);
        let (id, at) = (text(driver, "nodeID"), format!("{path}.nodeID"));
        if id.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if id.len() > NODE_ID_MAX {
            errors.push(FieldError::invalid(at, &id.into(), "must be 256 characters or less"));
        }
        if let Some(count) = integer(&driver["allocatable"], "count") {
            not_negative(&mut errors, format!("{path}.allocatable.count"), count);
        }
        if !known.insert(driver_name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &driver_name.into()));
        }
        topology_keys(&mut errors, &path, items(driver, "topologyKeys"));
    }
    errors
}

fn topology_keys(errors: &mut Errors, path: &str, keys: &[Value]) {
    let mut known = HashSet::new();
    for key in keys.iter().filter_map(Value::as_str) {
        if key.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        if !known.insert(key) {
            errors.push(FieldError::duplicate(path, &key.into()));
        }
        invalid_text(errors, path, key, names::qualified_name(key));
    }
}

/// A driver that stays keeps everything but its limit.
fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    let before: HashMap<&str, &Value> = by_text(items(&old["spec"], "drivers"), "name");
    for driver in items(&new["spec"], "drivers") {
        if let Some(before) = before.get(text(driver, "name")) {
            let without_limit = |driver: &Value| {
                let mut driver = driver.clone();
                driver.set("allocatable", Value::Null);
                driver
            };
            immutable(&mut errors, "spec.drivers", &without_limit(driver), &without_limit(before));
        }
    }
    errors
}

fn row(node: &Value, now: Timestamp) -> [Value; 3] {
    [name(node), items(&node["spec"], "drivers").len().into(), age(node, now)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(drivers: Value) -> Value {
        json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})
    }

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn driver_of_a_node_has_a_name_and_an_id() {
        let none: [&str; 0] = [];
        assert_eq!(fields(validate(&json!({"spec": {}}))), none);
        let good = json!([{"name": "hostpath.csi.k8s.io", "nodeID": "n", "topologyKeys": ["topology.hostpath.csi/node"],
            "allocatable": {"count": 0}}]);
        assert_eq!(fields(validate(&with(good))), none);
        let wrong = json!([{"name": "", "nodeID": ""}, {"name": "a", "nodeID": "x".repeat(257)},
            {"name": "a", "nodeID": "n", "allocatable": {"count": -1}, "topologyKeys": ["z", "z", "a/b/c"]}]);
        let expected = [
            "spec.drivers[0].name",
            "spec.drivers[0].nodeID",
            "spec.drivers[1].nodeID",
            "spec.drivers[2].allocatable.count",
            "spec.drivers[2].name",
            "spec.drivers[2]",
            "spec.drivers[2]",
        ];
        assert_eq!(fields(validate(&with(wrong))), expected);
    }

    #[test]
    fn registered_driver_changes_its_limit_only() {
        let old = with(json!([{"name": "a", "nodeID": "1"}, {"name": "b", "nodeID": "2"}]));
        let limit =
            with(json!([{"name": "a", "nodeID": "1", "allocatable": {"count": 3}}, {"name": "c", "nodeID": "4"}]));
        assert_eq!(update(&limit, &old), []);
        let other = with(json!([{"name": "a", "nodeID": "5"}, {"name": "b", "nodeID": "2", "topologyKeys": ["z"]}]));
        assert_eq!(fields(update(&other, &old)), ["spec.drivers", "spec.drivers"]);
    }
}
