//! Small readers and writers for objects held as `serde_json::Value`. Absent, null and of the wrong type all
//! read as empty: types are checked when a body is decoded.

use std::collections::HashMap;

use sampan_json::SetField;
use serde_json::{Map, Value};

/// The elements of an array field, none when it is absent.
pub fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A string field, empty when it is absent.
pub fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of a list by the text in one of their fields, the first of each.
pub fn by_text<'a>(list: &'a [Value], key: &str) -> HashMap<&'a str, &'a Value> {
    // A later one replaces an earlier one, so the order is reversed.
    list.iter().rev().map(|one| (text(one, key), one)).collect()
}

/// An integer field.
pub fn integer(value: &Value, key: &str) -> Option<i64> {
    value.get(key).and_then(Value::as_i64)
}

/// A boolean field, false when it is absent.
pub fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// The entries of an object field.
pub fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// The string entries of an object field.
pub fn text_entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    entries(value, key).map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()))
}

/// A field that exists and is not null.
pub fn present<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|v| !v.is_null())
}

/// The elements of an array field, for change.
pub fn items_mut<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets a field of an object that lacks it or has null; ignores values that are not objects.
pub fn set_default(value: &mut Value, key: &str, default: impl Into<Value>) {
    if let Some(map) = value.as_object_mut()
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), default.into());
    }
}

/// Sets a string field that is absent or empty.
pub fn set_default_text(value: &mut Value, key: &str, default: &str) {
    if value.is_object() && text(value, key).is_empty() {
        value.set(key, default.into());
    }
}

/// The object field `key`, created if absent; `None` when `value` is not an object.
pub fn object_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let entry = value.as_object_mut()?.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if entry.is_null() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut()
}

/// Removes a field.
pub fn remove(value: &mut Value, key: &str) -> Option<Value> {
    value.as_object_mut().and_then(|map| map.remove(key))
}
