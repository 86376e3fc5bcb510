//! A value beside its schema. Pure.

use serde_json::Value;

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
