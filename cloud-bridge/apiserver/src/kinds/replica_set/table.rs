//! The row of a ReplicaSet.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Spec, age, name};
use crate::kinds::workload::table::{CONTAINERS, IMAGES, SELECTOR, containers, number, selector};

/// Columns of ReplicaSets.
pub(super) const COLUMNS: &[Spec] = &[
    NAME,
    ("Desired", "integer", 0, "How many pods there are to be."),
    ("Current", "integer", 0, "How many pods there are."),
    ("Ready", "integer", 0, "How many of them are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

/// The cells of one ReplicaSet.
pub(super) fn row(set: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&set["spec"], &set["status"]);
    let [names, images] = containers(&spec["template"]);
    vec![
        name(set),
        number(spec, "replicas"),
        number(status, "replicas"),
        number(status, "readyReplicas"),
        age(set, now),
        names,
        images,
        selector(&spec["selector"]),
    ]
}
