//! The row of a Deployment.

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::columns::{AGE, NAME, Table, age, name};
use crate::kinds::workload::table::{CONTAINERS, IMAGES, SELECTOR, containers, number, selector};

/// Table of Deployments.
pub(super) const TABLE: Table<8> = Table {
    columns: [
        NAME,
        ("Ready", "string", 0, "Number of the pod with ready state"),
        ("Up-to-date", "string", 0, "Pods that are made of the template as it is now."),
        ("Available", "string", 0, "Pods that have been ready for long enough."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    row,
};

/// The cells of one Deployment.
fn row(deployment: &Value, now: Timestamp) -> [Value; 8] {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let [names, images] = containers(&spec["template"]);
    [
        name(deployment),
        format!("{}/{}", number(status, "readyReplicas"), number(spec, "replicas")).into(),
        number(status, "updatedReplicas"),
        number(status, "availableReplicas"),
        age(deployment, now),
        names,
        images,
        selector(&spec["selector"]),
    ]
}
