//! From JSON to a checked object: unknown fields and values of the wrong type, in the API server's words. Knows no
//! storage and no verbs.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::parse::{COMPLAINTS_MAX, shown_path};
use apimachinery::quantity::Quantity;
use apimachinery::typed;

/// How many elements a list may have, but for a command's arguments. Validation compares elements with each other,
/// and the typed form of a small text may be large.
const LIST_MAX: usize = 4096;
/// Lists of plain words that are compared with nothing.
const ARGUMENTS: &[&str] = &["args", "command"];

/// A body that matches the kind's type.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    /// The object with unknown fields and nulls dropped.
    pub value: Value,
    /// Paths of unknown fields, in the order of the object: `spec.containers[0].foo`.
    pub unknown: Vec<String>,
}

/// A typed check: the object through its Kubernetes type and back, or why it does not fit.
pub(crate) type Check = fn(&Value) -> Result<Decoded, String>;

/// Passes `value` through the type `T`.
pub(crate) fn check<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Decoded, String> {
    short_lists(value, "")?;
    let typed: T = typed::read(value)
        .map_err(|misfit| format!("json: cannot unmarshal into field {}: {}", misfit.path(), misfit.why()))?;
    // The text takes a tenth of the memory of parsed values, which are created after the typed form was dropped.
    let text = serde_json::to_vec(&typed).map_err(|e| e.to_string())?;
    drop(typed);
    let mut out: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    drop(text);
    let mut unknown = Vec::new();
    compare(value, &mut out, &mut String::new(), &mut unknown);
    drop_empty(&mut out);
    Ok(Decoded { value: out, unknown })
}

/// Refuses long lists before they are converted to types.
fn short_lists(value: &Value, name: &str) -> Result<(), String> {
    match value {
        Value::Array(list) if list.len() > LIST_MAX && !ARGUMENTS.contains(&name) => {
            Err(format!("the list {} has {} elements, more than {LIST_MAX}", shown_path(name), list.len()))
        }
        Value::Array(list) => list.iter().try_for_each(|item| short_lists(item, name)),
        Value::Object(map) => map.iter().try_for_each(|(name, inner)| short_lists(inner, name)),
        _ => Ok(()),
    }
}

/// Collects the paths that are in `given` with a value but not in `kept`, and keeps numbers as they were written
/// (a type may have made a float of `10`).
fn compare(given: &Value, kept: &mut Value, path: &mut String, out: &mut Vec<String>) {
    let length = path.len();
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (key, value) in given {
                if value.is_null() {
                    continue;
                }
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
                match kept.get_mut(key) {
                    Some(inner) => compare(value, inner, path, out),
                    None if out.len() < COMPLAINTS_MAX => out.push(shown_path(path)),
                    None => {}
                }
                path.truncate(length);
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (index, (value, inner)) in given.iter().zip(kept).enumerate() {
                path.push_str(&format!("[{index}]"));
                compare(value, inner, path, out);
                path.truncate(length);
            }
        }
        (Value::Number(given), Value::Number(kept)) => *kept = given.clone(),
        _ => {}
    }
}

/// Drops empty lists, and empty maps where the API has maps rather than structures: Go's `omitempty` leaves
/// both out, so an object with `labels: {}` is the same as one without.
pub(crate) fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, inner| {
                drop_empty(inner);
                match inner {
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(fields) if fields.is_empty() => !matches!(
                        key.as_str(),
                        "labels"
                            | "annotations"
                            | "nodeSelector"
                            | "data"
                            | "binaryData"
                            | "stringData"
                            | "limits"
                            | "requests"
                    ),
                    Value::Null => false,
                    _ => true,
                }
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// Turns the amounts of a list into text, which the typed form requires, and refuses other values.
pub(crate) fn amounts(list: &mut Value) -> Result<(), String> {
    for amount in list.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if amount.is_number() {
            *amount = Value::String(amount.to_string());
        }
        if let Value::String(text) = amount {
            Quantity::parse(text).map_err(|wrong| wrong.to_string())?;
        }
    }
    Ok(())
}

/// Quantities may be JSON numbers; the typed form accepts only strings.
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
                    // `allocatable` of a driver in a CSINode is a count.
                    "drivers" => {}
                    // One amount in a CSIStorageCapacity.
                    "capacity" if inner.is_number() => number(inner),
                    "limits" | "requests" | "capacity" | "allocatable" | "overhead" | "allocatedResources" => {
                        map(inner)
                    }
                    "sizeLimit" | "divisor" | "maximumVolumeSize" => number(inner),
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
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_have_paths() {
        let pod = json!({"metadata": {"name": "a", "labels": {}}, "spec": {"containers": [{"name": "c", "imagee": "x", "args": null}]}});
        let decoded = check::<Pod>(&pod).unwrap();
        assert_eq!(decoded.unknown, ["spec.containers[0].imagee"]);
        assert!(decoded.value["metadata"].get("labels").is_none());
    }

    #[test]
    fn numbers_stay_as_they_were_written() {
        let float = 0.1 + 0.2;
        let schema =
            json!({"type": "number", "minimum": 10, "maximum": float, "default": {"any": [1e300, u64::MAX, -1]}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names = json!({"kind": "K", "plural": "ks"});
        let spec = json!({"group": "g", "scope": "Cluster", "names": names, "versions": [version]});
        let definition = json!({"metadata": {"name": "a"}, "spec": spec});
        assert_eq!(check::<CustomResourceDefinition>(&definition).unwrap().value["spec"], definition["spec"]);
    }

    #[test]
    fn wrong_types_name_the_field() {
        let error = check::<Pod>(&json!({"spec": {"containers": [{"name": 1}]}})).unwrap_err();
        assert!(error.contains("spec.containers[0].name"), "{error}");
    }

    /// Any value at any position of an object is accepted or refused as by serde_json.
    fn fits_as_ever<T: DeserializeOwned + Serialize>(whole: &Value) {
        let strange = [
            json!(null),
            json!(true),
            json!(1),
            json!(-1),
            json!(1.5),
            json!(u64::MAX),
            json!("x"),
            json!([]),
            json!({}),
            json!([null]),
            json!([1]),
            json!({"x": null}),
            json!({"x": "y"}),
        ];
        let mut places = vec![String::new()];
        let mut at = 0;
        while let Some(place) = places.get(at).cloned() {
            match whole.pointer(&place) {
                Some(Value::Object(map)) => {
                    places.extend(map.keys().map(|key| format!("{place}/{}", key.replace('/', "~1"))))
                }
                Some(Value::Array(list)) => places.extend((0..list.len()).map(|index| format!("{place}/{index}"))),
                _ => {}
            }
            at += 1;
            for other in &strange {
                let mut changed = whole.clone();
                *changed.pointer_mut(&place).unwrap() = other.clone();
                let known = serde_path_to_error::deserialize::<_, T>(&changed);
                let known = known.map_err(|error| (error.path().to_string(), error.inner().to_string()));
                let read = typed::read::<T>(&changed).map_err(|misfit| (misfit.path(), misfit.why().to_owned()));
                let plain = |typed: T| serde_json::to_value(typed).unwrap();
                assert_eq!(read.map(plain), known.map(plain), "{place}: {other}");
            }
        }
        assert!(places.len() > 20, "{places:?}");
    }

    #[test]
    fn objects_are_read_as_ever() {
        fits_as_ever::<Pod>(&json!({
            "metadata": {"name": "a", "labels": {"a/b": "c"}, "creationTimestamp": "2024-01-01T00:00:00Z",
                "managedFields": [{"fieldsV1": {"f:a": {}}}], "ownerReferences": [{"uid": "u", "controller": true}]},
            "spec": {"hostNetwork": true, "tolerations": [{"tolerationSeconds": 5}], "overhead": {"cpu": "1"}, "containers": [{
                "name": "c", "args": ["x"], "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 1},
                "resources": {"limits": {"cpu": "1"}}}]},
            "status": {"conditions": [{"type": "Ready", "lastTransitionTime": null}], "startTime": "2024-01-01T00:00:00Z"},
        }));
        fits_as_ever::<Secret>(&json!({"metadata": {"name": "a", "finalizers": ["f"], "generation": 1,
            "managedFields": [{"manager": "m", "time": "2024-01-01T00:00:00Z", "fieldsV1": {"f:a": {"f:b": {}}}}],
            "annotations": {"a": "b", "c": "d"}, "ownerReferences": [{"name": "n"}]},
            "data": {"x": "eA=="}, "stringData": {"y": "z"}, "immutable": false, "type": "Opaque"}));
        fits_as_ever::<CustomResourceDefinition>(&json!({"metadata": {"name": "a"}, "spec": {
            "group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks", "shortNames": ["k"]},
            "versions": [{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"type": "object", "minimum": 1.5,
                "default": {"any": [1]}, "enum": ["a", null], "additionalProperties": true, "items": {"type": "string"},
                "properties": {"p": {"additionalProperties": {"type": "string"}, "not": {"maxLength": 4}}},
                "x-kubernetes-validations": [{"rule": "true"}]}}}]}}));
    }

    #[test]
    fn long_lists_and_many_complaints_are_cut() {
        let containers = |n: usize| json!({"spec": {"containers": vec![json!({}); n]}});
        assert!(check::<Pod>(&containers(LIST_MAX)).is_ok());
        assert!(check::<Pod>(&containers(LIST_MAX + 1)).unwrap_err().contains("the list containers has 4097"));
        let long = vec![json!("a"); LIST_MAX + 1];
        assert!(check::<Pod>(&json!({"spec": {"containers": [{"name": "c", "args": long}]}})).is_ok());
        let strange: Map<_, _> = (0..10_000).map(|n| (format!("x{n}"), json!(1))).collect();
        assert_eq!(check::<Pod>(&json!({ "spec": strange })).unwrap().unknown.len(), COMPLAINTS_MAX);
    }

    #[test]
    fn numbers_become_quantities() {
        let mut value = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}});
        quantities(&mut value);
        assert_eq!(value["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "1", "memory": "1Gi"}));
        let mut single = json!({"capacity": 5, "maximumVolumeSize": 4});
        quantities(&mut single);
        assert_eq!(single, json!({"capacity": "5", "maximumVolumeSize": "4"}));
    }
}
