//! Whether a node's labels and name are those that a pod asks for: `nodeSelector` and required node affinity. Pure.
//!
//! A scheduler has asked the same before; this holds for pods that name their node themselves (K8s
//! pkg/kubelet/lifecycle/predicate.go, component-helpers/scheduling/corev1/nodeaffinity).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod};

use super::refusal::Refusal;

/// Kind of the object in which the bridge tells a node its labels, for one pod that asks for some.
pub const KIND: &str = "NodeLabels";

pub type Labels = BTreeMap<String, String>;

/// Refuses a pod that is not for this node. Without `labels` (a bridge that does not tell them) only what concerns
/// the name is looked at.
pub fn admit(pod: &Pod, node: &str, labels: Option<&Labels>) -> Option<Refusal> {
    let spec = pod.spec.as_ref()?;
    let selector = spec.node_selector.as_ref().filter(|selector| !selector.is_empty());
    if selector.and_then(|selector| selector.get("kubernetes.io/os")).is_some_and(|os| os != "linux") {
        return Some(Refusal {
            reason: "PodOSSelectorNodeLabelDoesNotMatch".to_owned(),
            message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label".to_owned(),
        });
    }
    let has = |(key, value): (&String, &String)| labels.is_none_or(|labels| labels.get(key) == Some(value));
    let selected = selector.is_none_or(|selector| selector.iter().all(has));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let wanted = required.is_none_or(|all| all.node_selector_terms.iter().any(|term| matches(term, node, labels)));
    (!selected || !wanted).then(|| Refusal {
        reason: "NodeAffinity".to_owned(),
        message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned(),
    })
}

/// A term without requirements is met by no node.
fn matches(term: &NodeSelectorTerm, node: &str, labels: Option<&Labels>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let field = |one: &NodeSelectorRequirement| meets_field(one, node);
    let label = |one: &NodeSelectorRequirement| labels.is_none_or(|labels| meets(one, labels.get(&one.key)));
    (!expressions.is_empty() || !fields.is_empty()) && fields.iter().all(field) && expressions.iter().all(label)
}

fn meets(one: &NodeSelectorRequirement, label: Option<&String>) -> bool {
    let values = one.values.as_deref().unwrap_or_default();
    let number = |text: &String| text.parse::<i64>().ok();
    let bound = || values.first().filter(|_| values.len() == 1).and_then(number);
    match one.operator.as_str() {
        "In" => label.is_some_and(|label| values.contains(label)),
        "NotIn" => !values.is_empty() && label.is_none_or(|label| !values.contains(label)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => label.and_then(number).zip(bound()).is_some_and(|(label, bound)| label > bound),
        "Lt" => label.and_then(number).zip(bound()).is_some_and(|(label, bound)| label < bound),
        _ => false,
    }
}

/// `metadata.name` is the only field that a node has here; one value, `In` or `NotIn`.
fn meets_field(one: &NodeSelectorRequirement, node: &str) -> bool {
    let field = if one.key == "metadata.name" { node } else { "" };
    match (one.operator.as_str(), one.values.as_deref()) {
        ("In", Some([value])) => value == field,
        ("NotIn", Some([value])) => value != field,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn admits(spec: Value) -> Result<(), String> {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": with_container(spec)})).unwrap();
        let labels = Labels::from([("site".into(), "roof".into()), ("cores".into(), "4".into())]);
        admit(&pod, "edge-1", Some(&labels)).map_or(Ok(()), |refusal| Err(refusal.reason))
    }

    fn with_container(mut spec: Value) -> Value {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        spec
    }

    fn term(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    fn affinity(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn a_selector_asks_for_all_its_labels() {
        assert_eq!(admits(json!({})), Ok(()));
        assert_eq!(admits(json!({"nodeSelector": {}})), Ok(()));
        assert_eq!(admits(json!({"nodeSelector": {"site": "roof", "cores": "4"}})), Ok(()));
        assert_eq!(admits(json!({"nodeSelector": {"site": "roof", "cores": "8"}})), Err("NodeAffinity".into()));
        assert_eq!(admits(json!({"nodeSelector": {"gone": ""}})), Err("NodeAffinity".into()));
        let windows = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
        assert_eq!(admits(windows), Err("PodOSSelectorNodeLabelDoesNotMatch".into()));
    }

    #[test]
    fn one_term_with_all_requirements_suffices() {
        let refused = Err("NodeAffinity".to_owned());
        let cases = [
            (term("site", "In", &["cellar", "roof"]), true),
            (term("site", "In", &["cellar"]), false),
            (term("gone", "In", &["x"]), false),
            (term("site", "NotIn", &["cellar"]), true),
            (term("site", "NotIn", &["roof"]), false),
            (term("gone", "NotIn", &["x"]), true),
            (term("site", "NotIn", &[]), false),
            (term("site", "Exists", &[]), true),
            (term("gone", "Exists", &[]), false),
            (term("gone", "DoesNotExist", &[]), true),
            (term("site", "DoesNotExist", &[]), false),
            (term("cores", "Gt", &["3"]), true),
            (term("cores", "Gt", &["4"]), false),
            (term("cores", "Lt", &["5"]), true),
            (term("site", "Lt", &["5"]), false),
            (term("cores", "Gt", &["three"]), false),
            (term("site", "Like", &["roof"]), false),
            (json!({}), false),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["edge-1"]}]}), true),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["edge-2"]}]}), false),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["edge-2"]}]}), true),
            (json!({"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}), false),
        ];
        for (term, met) in cases {
            let outcome = if met { Ok(()) } else { refused.clone() };
            assert_eq!(admits(affinity(json!([term]))), outcome, "{term}");
            let beside = json!([{"matchExpressions": [{"key": "gone", "operator": "Exists"}]}, term]);
            assert_eq!(admits(affinity(beside)), outcome, "{term}, as the second one");
        }
        assert_eq!(admits(affinity(json!([]))), refused);
    }

    #[test]
    fn without_labels_only_the_name_counts() {
        let asks = |spec: Value| {
            let pod = json!({"metadata": {"name": "p"}, "spec": with_container(spec)});
            admit(&serde_json::from_value(pod).unwrap(), "edge-1", None).is_some()
        };
        assert!(!asks(json!({"nodeSelector": {"gone": ""}})));
        assert!(!asks(affinity(json!([term("gone", "Exists", &[])]))));
        let other = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["edge-2"]}]}]);
        assert!(asks(affinity(other)));
    }
}
