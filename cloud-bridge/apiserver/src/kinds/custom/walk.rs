//! A value beside its schema. Pure.

use serde_json::Value;

use apimachinery::field::Errors;

/// Errors of an object. A change of an object that had such errors before is not checked.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use apimachinery::field::FieldError;

    #[test]
    fn error_of_a_kind_that_was_there_before_is_let_be() {
        let judge = |value: &Value| {
            let wrong = value.as_array().into_iter().flatten().filter(|item| **item == "bad");
            wrong.map(|item| FieldError::invalid("list", item, "bad")).collect::<Errors>()
        };
        let told = |new: Value, old: Option<Value>| since(&new, old.as_ref(), judge).len();
        assert_eq!(told(json!(["bad", "bad"]), None), 2);
        assert_eq!(told(json!(["bad"]), Some(json!(["good"]))), 1);
        assert_eq!(told(json!(["bad", "bad"]), Some(json!(["bad"]))), 0);
        assert_eq!(told(json!(["good"]), Some(json!(["bad"]))), 0);
    }

    #[test]
    fn old_object_is_judged_where_the_new_one_is_wrong() {
        let judged = std::cell::Cell::new(0);
        let judge = |_: &Value| {
            judged.set(judged.get() + 1);
            Errors::new()
        };
        assert!(since(&json!(1), Some(&json!(2)), judge).is_empty());
        assert_eq!(judged.get(), 1);
    }

    #[test]
    fn each_value_with_a_schema_is_shown_with_its_path() {
        let text = json!({"type": "string"});
        let schema = json!({"properties": {
            "spec": {"properties": {"list": {"items": text}}, "additionalProperties": {"type": "integer"}},
            "free": true,
        }});
        let value = json!({"free": {"x": 1}, "spec": {"list": ["a", "b"], "other": 1}, "unknown": 1});
        let shown = |path: &str| {
            let (mut seen, mut path) = (Vec::new(), path.to_owned());
            walk(&value, &schema, &mut path, &mut |_, schema, path| {
                seen.push(format!("{path}:{}", schema["type"].as_str().unwrap_or_default()));
            });
            seen
        };
        assert_eq!(
            shown(""),
            [":", "spec:", "spec.list:", "spec.list[0]:string", "spec.list[1]:string", "spec.other:integer"]
        );
        assert_eq!(shown("at")[..2], ["at:", "at.spec:"]);
    }
}
