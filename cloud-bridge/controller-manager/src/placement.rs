//! Which nodes the spec of a pod allows: node selector, required node affinity, tolerations. Pure.

use apimachinery::json::{items, text};
use apimachinery::selector::meets;
use serde_json::Value;

/// Whether the node selector and the required node affinity of the spec select the node of this name and these labels.
pub(crate) fn selected(spec: &Value, name: &str, labels: &Value) -> bool {
    let equal = |(key, value): (&String, &Value)| labels.get(key) == Some(value);
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = items(required, "nodeSelectorTerms");
    spec["nodeSelector"].as_object().is_none_or(|wanted| wanted.iter().all(equal))
        && (required.is_null() || terms.iter().any(|term| matches_term(term, name, labels)))
}

/// Whether a term selects the node. One without any requirement selects nothing.
pub(crate) fn matches_term(term: &Value, name: &str, labels: &Value) -> bool {
    let (expressions, fields) = (items(term, "matchExpressions"), items(term, "matchFields"));
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |r: &Value| meets(r, labels.get(text(r, "key")).and_then(Value::as_str));
    let field = |r: &Value| meets(r, (text(r, "key") == "metadata.name").then_some(name));
    expressions.iter().all(label) && fields.iter().all(field)
}

/// Whether the spec tolerates the taint.
pub(crate) fn tolerated(spec: &Value, taint: &Value) -> bool {
    items(spec, "tolerations").iter().any(|toleration| tolerates(toleration, taint))
}

/// Whether a toleration is about the taint.
pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let effect = text(toleration, "effect");
    let key = text(toleration, "key");
    (effect.is_empty() || effect == text(taint, "effect"))
        && (key.is_empty() || key == text(taint, "key"))
        && match text(toleration, "operator") {
            "Exists" => true,
            _ => !key.is_empty() && text(toleration, "value") == text(taint, "value"),
        }
}
