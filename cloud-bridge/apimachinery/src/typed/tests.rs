use std::collections::BTreeMap;
use std::fmt::Debug;

use serde_json::json;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thing {
    name: String,
    #[serde(default)]
    count: Option<i32>,
    #[serde(default)]
    on: bool,
    #[serde(default)]
    share: f64,
    #[serde(default)]
    size: u8,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    parts: Vec<Thing>,
    #[serde(default)]
    raw: Value,
    #[serde(default)]
    wrapped: Wrapped,
    #[serde(default)]
    kind: Option<Kind>,
    #[serde(default)]
    pair: Option<(u8, String)>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Wrapped(String);

#[derive(Debug, PartialEq, Deserialize)]
enum Kind {
    Plain,
    With { text: String },
}

/// Reads the value like serde_json, if serde_json reads it.
fn as_before<T: DeserializeOwned + PartialEq + Debug>(value: &Value) -> Result<T, String> {
    let read = read::<T>(value);
    let known = serde_json::from_value::<T>(value.clone());
    match (read, known) {
        (Ok(read), Ok(known)) => {
            assert_eq!(read, known, "{value}");
            Ok(read)
        }
        (Err(misfit), Err(known)) => {
            assert_eq!(misfit.why(), known.to_string(), "{value}");
            Err(misfit.path())
        }
        (read, known) => panic!("{value}: {read:?}, {known:?}"),
    }
}

#[test]
fn what_fits_is_read_as_it_always_was() {
    let whole = json!({
        "name": "a", "count": -3, "on": true, "share": 2, "size": 255, "labels": {"a": "b", "c": ""}, "unknown": [1, {}],
        "parts": [{"name": "b", "share": 1.5, "count": null}, {"name": ""}], "raw": {"x": [1, -1, 1.5, null, "y", false]},
        "wrapped": "w", "kind": {"With": {"text": "t"}}, "pair": [1, "p"],
    });
    as_before::<Thing>(&whole).unwrap();
    as_before::<Thing>(&json!({"name": "a", "kind": "Plain", "raw": null})).unwrap();
    as_before::<Value>(&whole).unwrap();
    for number in [json!(u64::MAX), json!(i64::MIN), json!(1e300), json!(0)] {
        as_before::<Value>(&number).unwrap();
    }
}

#[test]
fn what_does_not_fit_has_a_path_and_a_reason() {
    let path = |value: Value| as_before::<Thing>(&value).unwrap_err();
    assert_eq!(path(json!({})), ".", "a name is missing");
    assert_eq!(path(json!({"name": 1})), "name");
    assert_eq!(path(json!({"name": "a", "count": 3_000_000_000_u32})), "count");
    assert_eq!(path(json!({"name": "a", "count": 1.0})), "count");
    assert_eq!(path(json!({"name": "a", "size": 256})), "size");
    assert_eq!(path(json!({"name": "a", "size": -1})), "size");
    assert_eq!(path(json!({"name": "a", "on": null})), "on");
    assert_eq!(path(json!({"name": "a", "on": "true"})), "on");
    assert_eq!(path(json!({"name": "a", "parts": {}})), "parts");
    assert_eq!(path(json!({"name": "a", "labels": ["a"]})), "labels");
    assert_eq!(path(json!({"name": "a", "labels": {"x": 1}})), "labels.x");
    assert_eq!(path(json!({"name": "a", "wrapped": {}})), "wrapped");
    assert_eq!(path(json!({"name": "a", "kind": "Other"})), "kind");
    assert_eq!(path(json!({"name": "a", "pair": [1, "p", 2]})), "pair");
    assert_eq!(path(json!({"name": "a", "pair": [1]})), "pair");
    assert_eq!(path(json!({"name": "a", "parts": [{"name": "b"}, {"name": "c", "share": "1"}]})), "parts[1].share");
    assert_eq!(path(json!({"name": "a", "parts": [{"name": "b", "parts": [1]}]})), "parts[0].parts[0]");
}

#[test]
fn an_object_is_no_list() {
    let misfit = read::<Thing>(&json!({"name": "a", "parts": [["b"]]})).unwrap_err();
    assert_eq!(misfit.to_string(), "parts[0]: invalid type: sequence, expected struct Thing");
}

#[test]
fn null_is_an_empty_list() {
    #[derive(Debug, Deserialize)]
    struct Numbers {
        #[serde(deserialize_with = "list")]
        all: Vec<u8>,
    }
    for (all, wanted) in [(json!(null), Vec::<u8>::new()), (json!([]), Vec::new()), (json!([1, 2]), vec![1, 2])] {
        assert_eq!(read::<Numbers>(&json!({ "all": all })).unwrap().all, wanted, "{all}");
    }
    assert_eq!(read::<Numbers>(&json!({"all": ["a"]})).unwrap_err().path(), "all[0]");
}
