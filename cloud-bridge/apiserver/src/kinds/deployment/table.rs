//! The row of a Deployment.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::columns::{AGE, NAME, Spec, age, name};
use apimachinery::json::{integer, items, text};
use apimachinery::selector::format_label_selector;

/// Columns of Deployments.
pub(super) const COLUMNS: &[Spec] = &[
    NAME,
    ("Ready", "string", 0, "Number of the pod with ready state"),
    ("Up-to-date", "string", 0, "Pods that are made of the template as it is now."),
    ("Available", "string", 0, "Pods that have been ready for long enough."),
    AGE,
    ("Containers", "string", 1, "Names of each container in the template."),
    ("Images", "string", 1, "Images referenced by each container in the template."),
    ("Selector", "string", 1, "Labels of the pods that belong to it."),
];

/// The cells of one Deployment.
pub(super) fn row(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&deployment["spec"], &deployment["status"]);
    let number = |holder: &Value, field: &str| integer(holder, field).unwrap_or_default();
    let of_containers = |field: &str| {
        let containers = items(&spec["template"]["spec"], "containers");
        containers.iter().map(|container| text(container, field)).collect::<Vec<_>>().join(",")
    };
    vec![
        name(deployment),
        format!("{}/{}", number(status, "readyReplicas"), number(spec, "replicas")).into(),
        json!(number(status, "updatedReplicas")),
        json!(number(status, "availableReplicas")),
        age(deployment, now),
        of_containers("name").into(),
        of_containers("image").into(),
        format_label_selector(&spec["selector"]).into(),
    ]
}
