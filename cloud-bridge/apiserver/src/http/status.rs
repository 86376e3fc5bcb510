//! The text of a `v1.Status`, with its fields in the order of the Go types (K8s apimachinery pkg/apis/meta/v1 types.go): clients
//! compare it as text.

use apimachinery::json::items;
use serde_json::Value;

const STATUS: [&str; 8] = ["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"];
const DETAILS: [&str; 6] = ["name", "group", "kind", "uid", "causes", "retryAfterSeconds"];
const CAUSE: [&str; 3] = ["reason", "message", "field"];

/// A Status as one line.
pub(super) fn line(status: &Value) -> String {
    ordered(status, &STATUS) + "\n"
}

/// An object with these fields, as far as it has them.
fn ordered(object: &Value, names: &[&str]) -> String {
    let mut fields = Vec::new();
    for name in names {
        let Some(value) = object.get(*name) else { continue };
        let text = match *name {
            "details" => ordered(value, &DETAILS),
            "causes" => {
                let causes: Vec<String> = items(object, "causes").iter().map(|cause| ordered(cause, &CAUSE)).collect();
                format!("[{}]", causes.join(","))
            }
            _ => value.to_string(),
        };
        fields.push(format!("\"{name}\":{text}"));
    }
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_has_the_order_and_newline_of_go() {
        let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 409,
            "reason": "AlreadyExists", "message": "deployments.apps \"a\" already exists",
            "details": {"kind": "deployments", "group": "apps", "name": "a"}});
        let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","group":"apps","kind":"deployments"},"code":409}"#;
        assert_eq!(line(&status), format!("{expected}\n"));
    }

    #[test]
    fn every_field_of_a_status_is_written() {
        let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {"continue": "c"}, "status": "Failure",
            "message": "m", "reason": "r", "code": 500, "details": {"name": "n", "group": "g", "kind": "k", "uid": "u",
                "causes": [{"reason": "r", "message": "m", "field": "f"}, {"message": "m"}], "retryAfterSeconds": 1}});
        assert_eq!(serde_json::from_str::<Value>(&line(&status)).unwrap(), status);
    }
}
