//! The row of a StatefulSet.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name};
use crate::kinds::workload::table::{CONTAINERS, IMAGES, containers, number};

/// Table of StatefulSets.
pub(super) const TABLE: Table<5> = Table {
    columns: [NAME, ("Ready", "string", 0, "Number of the pod with ready state"), AGE, CONTAINERS, IMAGES],
    row,
};

/// The cells of one StatefulSet.
fn row(set: &Value, now: Timestamp) -> [Value; 5] {
    let [names, images] = containers(&set["spec"]["template"]);
    let ready = format!("{}/{}", number(&set["status"], "readyReplicas"), number(&set["spec"], "replicas"));
    [name(set), ready.into(), age(set, now), names, images]
}
