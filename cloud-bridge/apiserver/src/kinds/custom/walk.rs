//! A value beside its schema. Pure.

use serde_json::Value;

use apimachinery::field::Errors;

/// What is wrong with an object. A change of one with which something of that kind was wrong before is not judged.
pub(super) fn since(new: &Value, old: Option<&Value>, judge: impl Fn(&Value) -> Errors) -> Errors {
    let errors = judge(new);
    let before = !errors.is_empty() && old.is_some_and(|old| !judge(old).is_empty());
    if before { Errors::new() } else { errors }
}

/// Shows each value that has a schema, with the schema and its path, the outer ones first.
pub(super) fn walk(value: &Value, schema: &Value, path: &mut String, see: &mut dyn FnMut(&Value, &Value, &str)) {
    if !schema.is_object() {
        return;
    }
    see(value, schema, path);
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                let of = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                walk(inner, of, path, see);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(item, &schema["items"], path, see);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
