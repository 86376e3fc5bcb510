//! The row of a DaemonSet.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name};
use crate::kinds::workload::table::{CONTAINERS, IMAGES, SELECTOR, containers, labels, number, selector};

/// Table of DaemonSets.
pub(super) const TABLE: Table<11> = Table {
    columns: [
        NAME,
        ("Desired", "integer", 0, "How many nodes are to run a pod of it."),
        ("Current", "integer", 0, "How many of them have one."),
        ("Ready", "integer", 0, "How many of them have one that is ready."),
        ("Up-to-date", "integer", 0, "How many of them have one of the template as it is now."),
        ("Available", "integer", 0, "How many of them have one that has been ready for long enough."),
        ("Node Selector", "string", 0, "Labels of the nodes that run it."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    row,
};

/// The cells of one DaemonSet.
fn row(set: &Value, now: Timestamp) -> [Value; 11] {
    let (spec, status) = (&set["spec"], &set["status"]);
    let [names, images] = containers(&spec["template"]);
    [
        name(set),
        number(status, "desiredNumberScheduled"),
        number(status, "currentNumberScheduled"),
        number(status, "numberReady"),
        number(status, "updatedNumberScheduled"),
        number(status, "numberAvailable"),
        labels(&spec["template"]["spec"], "nodeSelector"),
        age(set, now),
        names,
        images,
        selector(&spec["selector"]),
    ]
}
