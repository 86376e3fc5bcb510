//! The row of a StatefulSet.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Spec, age, name};
use crate::kinds::workload::table::{CONTAINERS, IMAGES, containers, number};

/// Columns of StatefulSets.
pub(super) const COLUMNS: &[Spec] =
    &[NAME, ("Ready", "string", 0, "Number of the pod with ready state"), AGE, CONTAINERS, IMAGES];

/// The cells of one StatefulSet.
pub(super) fn row(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(&set["spec"]["template"]);
    let ready = format!("{}/{}", number(&set["status"], "readyReplicas"), number(&set["spec"], "replicas"));
    vec![name(set), ready.into(), age(set, now), names, images]
}
