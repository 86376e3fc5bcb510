//! The row of a ReplicaSet.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name};
use crate::kinds::workload::table::{CONTAINERS, IMAGES, SELECTOR, containers, number, selector};

/// Table of ReplicaSets.
pub(super) const TABLE: Table<8> = Table {
    columns: [
        NAME,
        ("Desired", "integer", 0, "How many pods there are to be."),
        ("Current", "integer", 0, "How many pods there are."),
        ("Ready", "integer", 0, "How many of them are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    row,
};

/// The cells of one ReplicaSet.
fn row(set: &Value, now: Timestamp) -> [Value; 8] {
    let (spec, status) = (&set["spec"], &set["status"]);
    let [names, images] = containers(&spec["template"]);
    [
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
