//! Columns that tables of workloads share.

use serde_json::{Value, json};

use crate::kinds::columns::{Spec, or_none};
use apimachinery::json::{integer, items, text, text_entries};
use apimachinery::selector::format_label_selector;

pub(crate) const CONTAINERS: Spec = ("Containers", "string", 1, "Names of each container in the template.");
pub(crate) const IMAGES: Spec = ("Images", "string", 1, "Images referenced by each container in the template.");
pub(crate) const SELECTOR: Spec = ("Selector", "string", 1, "Labels of the pods that belong to it.");

/// A number that is 0 where it is missing.
pub(crate) fn number(holder: &Value, field: &str) -> Value {
    json!(integer(holder, field).unwrap_or_default())
}

/// Names and images of the containers of a template.
pub(crate) fn containers(template: &Value) -> [Value; 2] {
    ["name", "image"].map(|field| {
        let containers = items(&template["spec"], "containers").iter();
        containers.map(|container| text(container, field)).collect::<Vec<_>>().join(",").into()
    })
}

/// A LabelSelector.
pub(crate) fn selector(selector: &Value) -> Value {
    or_none(&format_label_selector(selector))
}

/// A map of labels: `app=web,tier=a`.
pub(crate) fn labels(holder: &Value, field: &str) -> Value {
    or_none(&text_entries(holder, field).map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","))
}
