//! From request bytes to a checked object: duplicate keys, unknown fields and values of the wrong type, in
//! the API server's words. Knows no storage and no verbs.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A body that matches the kind's type.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    /// The object with unknown fields and nulls dropped.
    pub value: Value,
    /// Paths of unknown fields, in the order of the object: `spec.containers[0].foo`.
    pub unknown: Vec<String>,
}

/// A typed check: the object through its Kubernetes type and back, or why it does not fit.
pub type Check = fn(&Value) -> Result<Decoded, String>;

/// Passes `value` through the type `T`.
pub fn check<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Decoded, String> {
    let typed: T = serde_path_to_error::deserialize(value).map_err(|e| {
        let path = e.path().to_string();
        format!("json: cannot unmarshal into field {path}: {}", e.inner())
    })?;
    let mut out = serde_json::to_value(&typed).map_err(|e| e.to_string())?;
    let mut unknown = Vec::new();
    compare(value, &mut out, &mut String::new(), &mut unknown);
    drop_empty(&mut out);
    Ok(Decoded { value: out, unknown })
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
                    None => out.push(path.clone()),
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

/// Parses JSON, naming every key that an object has twice (the last one counts, as in Go).
///
/// # Errors
/// The JSON error.
pub fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut path = String::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: &mut path, duplicates: &mut duplicates, order: None }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((value, duplicates))
}

/// Every field's path in the order of the text; empty when it is no JSON.
pub(crate) fn paths(bytes: &[u8]) -> Vec<String> {
    let (mut duplicates, mut path, mut order) = (Vec::new(), String::new(), Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let node = Node { path: &mut path, duplicates: &mut duplicates, order: Some(&mut order) };
    let _ = node.deserialize(&mut deserializer);
    order
}

/// A JSON error in Go's words where they are well known.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

struct Node<'a> {
    path: &'a mut String,
    duplicates: &'a mut Vec<String>,
    order: Option<&'a mut Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E>(self, v: f64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_string<E>(self, v: String) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let length = self.path.len();
        loop {
            self.path.push_str(&format!("[{}]", items.len()));
            let item = seq.next_element_seed(Node {
                path: self.path,
                duplicates: self.duplicates,
                order: self.order.as_deref_mut(),
            })?;
            self.path.truncate(length);
            match item {
                Some(item) => items.push(item),
                None => return Ok(items.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut told = HashSet::new();
        let length = self.path.len();
        while let Some(key) = access.next_key::<String>()? {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            if let Some(order) = self.order.as_deref_mut() {
                order.push(self.path.clone());
            }
            let value = access.next_value_seed(Node {
                path: self.path,
                duplicates: self.duplicates,
                order: self.order.as_deref_mut(),
            })?;
            if map.contains_key(&key) && told.insert(key.clone()) {
                self.duplicates.push(self.path.clone());
            }
            map.insert(key, value);
            self.path.truncate(length);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
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
    fn wrong_types_name_the_field() {
        let error = check::<Pod>(&json!({"spec": {"containers": [{"name": 1}]}})).unwrap_err();
        assert!(error.contains("spec.containers[0].name"), "{error}");
    }

    #[test]
    fn duplicates_are_named_once() {
        let (value, duplicates) = parse(br#"{"a":{"b":1,"b":2,"b":3},"c":[{"d":1,"d":1}]}"#).unwrap();
        assert_eq!(value["a"]["b"], 3);
        assert_eq!(duplicates, ["a.b", "c[0].d"]);
        assert!(parse(b"{} x").is_err());
    }
}
