//! The row of a Deployment.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::columns::{AGE, NAME, Spec, age, name};
use apimachinery::json::{integer, items, text, text_entries};

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
        selector(&spec["selector"]).into(),
    ]
}

/// A selector as one writes it: `app=web,tier in (a,b),!old`, by key.
fn selector(selector: &Value) -> String {
    let labels = text_entries(selector, "matchLabels").map(|(key, value)| (key, format!("{key}={value}")));
    let expressions = items(selector, "matchExpressions").iter().map(|requirement| {
        let key = text(requirement, "key");
        let mut values: Vec<&str> = items(requirement, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(requirement, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key, shown)
    });
    let mut all: Vec<(&str, String)> = labels.chain(expressions).collect();
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(",")
}
