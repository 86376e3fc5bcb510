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

/// The node that the required node affinity of the spec names, if no other can meet it: as that of a DaemonSet's pod does
/// (K8s pkg/scheduler/framework/plugins/nodeaffinity, `PreFilter`).
pub(crate) fn only_node(spec: &Value) -> Option<&str> {
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let [term] = items(required, "nodeSelectorTerms") else { return None };
    let names = |one: &&Value| text(one, "key") == "metadata.name" && text(one, "operator") == "In";
    match items(items(term, "matchFields").iter().find(names)?, "values") {
        [name] => name.as_str(),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_node_is_the_one_named_by_a_single_term() {
        let named =
            |values: Value| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": values}]});
        let spec = |terms: Value| {
            let required = json!({"nodeSelectorTerms": terms});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
        };
        assert_eq!(only_node(&spec(json!([named(json!(["a"]))]))), Some("a"));
        let others = [json!([]), json!([named(json!(["a"])), named(json!(["b"]))]), json!([named(json!(["a", "b"]))])];
        for terms in others {
            assert_eq!(only_node(&spec(terms.clone())), None, "{terms}");
        }
        let not = json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}]);
        assert_eq!(only_node(&spec(not)), None);
        assert_eq!(only_node(&Value::Null), None);
    }
}
