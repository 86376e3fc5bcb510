//! The two views of one storage that events have (`v1` as stored, `events.k8s.io/v1`), their lifetime, and
//! quantities given as numbers. Pure.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::resource::Resource;

/// How long an event is kept, as `--event-ttl` of the API server has it.
const TTL: Duration = Duration::from_secs(3600);

fn view(resource: &Resource) -> bool {
    resource.group == "events.k8s.io"
}

/// Fields of the view (left) and of the stored form (right).
const NAMES: &[(&str, &str)] = &[
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn rename(value: &mut Value, forward: bool) {
    let Some(map) = value.as_object_mut() else { return };
    let renamed: Vec<(String, Value)> = NAMES
        .iter()
        .filter_map(|(view, stored)| {
            let (from, to) = if forward { (view, stored) } else { (stored, view) };
            map.remove(*from).map(|v| ((*to).to_owned(), v))
        })
        .collect();
    map.extend(renamed);
}

/// From the served form to the stored one.
pub(crate) fn to_stored(resource: &Resource, value: &mut Value) {
    if view(resource) {
        rename(value, true);
    }
}

/// From the stored form to the served one.
pub(crate) fn from_stored(resource: &Resource, value: &mut Value) {
    if view(resource) {
        rename(value, false);
    }
}

/// True when the stored form is not the served one.
pub(crate) fn converts(resource: &Resource) -> bool {
    view(resource)
}

/// When an object of this resource expires.
pub(crate) fn expiry(resource: &Resource, now: Timestamp) -> Option<SystemTime> {
    (resource.storage == "events").then(|| SystemTime::from(now) + TTL)
}

/// Quantities may be JSON numbers; the typed form takes strings only.
pub(crate) fn quantities(value: &mut Value) {
    let number = |v: &mut Value| {
        if v.is_number() {
            *v = Value::String(v.to_string());
        }
    };
    let map = |v: &mut Value| v.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(number);
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields.iter_mut() {
                match key.as_str() {
                    "limits" | "requests" | "capacity" | "allocatable" | "overhead" | "allocatedResources" => {
                        map(inner)
                    }
                    "sizeLimit" | "divisor" => number(inner),
                    _ => quantities(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quantities),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::builtin;

    #[test]
    fn the_views_are_inverse() {
        let resource = builtin::resources().into_iter().find(|r| r.group == "events.k8s.io").unwrap();
        let served =
            json!({"metadata": {}, "note": "n", "regarding": {"kind": "Pod"}, "reason": "r", "deprecatedCount": 1});
        let mut value = served.clone();
        to_stored(&resource, &mut value);
        assert_eq!(
            value,
            json!({"metadata": {}, "message": "n", "involvedObject": {"kind": "Pod"}, "reason": "r", "count": 1})
        );
        from_stored(&resource, &mut value);
        assert_eq!(value, served);
    }

    #[test]
    fn numbers_become_quantities() {
        let mut value = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}});
        quantities(&mut value);
        assert_eq!(value["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "1", "memory": "1Gi"}));
    }
}
