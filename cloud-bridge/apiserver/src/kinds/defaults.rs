//! What defaults of several kinds have in common. The kinds follow pkg/apis/*/v1/defaults.go of Kubernetes 1.36. Pure
//! and idempotent.

use serde_json::Value;

use apimachinery::json::set_default_text;
use apimachinery::quantity::canonicalize_list;

/// Removes fields whose zero value the API server's encoding leaves out.
pub(crate) fn drop_zero(value: &mut Value, fields: &[&str]) {
    if let Some(map) = value.as_object_mut() {
        for field in fields {
            let zero = match map.get(*field) {
                Some(Value::Bool(b)) => !b,
                Some(Value::String(s)) => s.is_empty(),
                Some(Value::Array(a)) => a.is_empty(),
                Some(Value::Object(o)) => o.is_empty(),
                Some(Value::Number(n)) => n.as_i64() == Some(0),
                _ => false,
            };
            if zero {
                map.remove(*field);
            }
        }
    }
}

/// `limits` and `requests` in canonical form; empty lists go.
pub(crate) fn resource_lists(resources: &mut Value) {
    for list in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(list) {
            canonicalize_list(list);
        }
    }
    drop_zero(resources, &["limits", "requests", "claims"]);
}

/// The spec of a claim, also of one in a pod.
pub(crate) fn claim_spec(spec: &mut Value) {
    set_default_text(spec, "volumeMode", "Filesystem");
    if let Some(resources) = spec.get_mut("resources").filter(|r| r.is_object()) {
        resource_lists(resources);
    }
}
