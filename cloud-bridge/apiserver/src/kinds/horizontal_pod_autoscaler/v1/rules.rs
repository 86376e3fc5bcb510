//! A behavior in its annotation: Kubernetes writes its internal type there, whose fields are called as Go calls them, and
//! reads names without looking at their case.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use sampan_json::SetField;
use serde_json::{Map, Value};

use super::checked::{amount, typed};

/// The fields of a behavior, of its rules and of their policies, at any depth: no two differ only in case.
const FIELDS: [(&str, &str); 9] = [
    ("scaleUp", "ScaleUp"),
    ("scaleDown", "ScaleDown"),
    ("stabilizationWindowSeconds", "StabilizationWindowSeconds"),
    ("selectPolicy", "SelectPolicy"),
    ("policies", "Policies"),
    ("type", "Type"),
    ("value", "Value"),
    ("periodSeconds", "PeriodSeconds"),
    ("tolerance", "Tolerance"),
];

/// Converts the behavior of an annotation; `None` if it is malformed or empty.
pub(super) fn to_stored(given: &Value) -> Option<Value> {
    let mut behavior = renamed(given, |name| {
        FIELDS.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(field, _)| *field)
    });
    for direction in ["scaleUp", "scaleDown"] {
        let tolerance = behavior.at_mut(&[direction, "tolerance"]);
        if tolerance.is_some_and(|tolerance| !amount(tolerance)) {
            return None;
        }
    }
    let says = behavior.as_object().is_some_and(|rules| !rules.is_empty());
    (says && typed::<HorizontalPodAutoscalerBehavior>(&behavior)).then_some(behavior)
}

/// The annotation of a behavior, with null for missing fields.
pub(super) fn to_served(behavior: &Value) -> Value {
    let go = |name: &str| FIELDS.iter().find(|(field, _)| *field == name).map(|(_, go)| *go);
    let mut out = renamed(behavior, go);
    for direction in ["ScaleUp", "ScaleDown"] {
        let Some(rules) = out.as_object_mut() else { continue };
        let rules = rules.entry(direction).or_insert(Value::Null);
        if let Some(rules) = rules.as_object_mut() {
            for field in ["StabilizationWindowSeconds", "SelectPolicy", "Policies", "Tolerance"] {
                rules.entry(field).or_insert(Value::Null);
            }
        }
    }
    out
}

/// The known fields with other names; the rest and nulls are left out.
fn renamed(value: &Value, name: impl Fn(&str) -> Option<&'static str> + Copy) -> Value {
    match value {
        Value::Object(fields) => {
            let known = fields.iter().filter(|(_, value)| !value.is_null());
            let known = known.filter_map(|(field, value)| Some((name(field)?.to_owned(), renamed(value, name))));
            Value::Object(known.collect::<Map<_, _>>())
        }
        Value::Array(all) => all.iter().map(|one| renamed(one, name)).collect(),
        other => other.clone(),
    }
}
