//! Labels and taints of a Node from its node's configuration: which are written, which are removed, and what is
//! reported about the others. Pure.

use std::collections::{BTreeMap, BTreeSet};

use edge_protocol::node_labels::{self, may_set};
use serde_json::{Map, Value, json};

/// Annotation with the labels that the node's configuration had at the last write, without the standard ones. A label
/// that is missing from the configuration later is removed from the Node.
pub(super) const CONFIGURED_LABELS: &str = "sampan.dev/configured-labels";

/// Labels that every node gives itself.
const STANDARD: [&str; 5] = [
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Splits the labels into those that are written and the problems of the others.
pub(super) fn allowed(labels: BTreeMap<String, String>) -> (BTreeMap<String, String>, Vec<String>) {
    let mut problems = Vec::new();
    let allowed = labels.into_iter().filter(|(key, value)| {
        let problem = node_labels::problem(key, value);
        problems.extend(problem.clone());
        problem.is_none()
    });
    (allowed.collect(), problems)
}

/// The value of [`CONFIGURED_LABELS`] for these labels; `None` for a node that has only the standard ones.
pub(super) fn configured(labels: &BTreeMap<String, String>) -> Option<String> {
    let own = labels.keys().map(String::as_str).filter(|key| !STANDARD.contains(key));
    Some(own.collect::<Vec<_>>().join(",")).filter(|keys| !keys.is_empty())
}

/// The patch that removes labels that the configuration no longer has, and updates the annotation; `None` if the
/// annotation is up to date.
pub(super) fn forgetting(object: &Value, configured: Option<&str>) -> Option<Value> {
    let noted = object["metadata"]["annotations"][CONFIGURED_LABELS].as_str();
    if noted == configured {
        return None;
    }
    let keys = |list: Option<&str>| list.unwrap_or_default().split(',').map(str::to_owned).collect::<BTreeSet<_>>();
    let present = |key: &String| may_set(key) && object["metadata"]["labels"].get(key).is_some();
    let gone: Map<String, Value> = keys(noted)
        .difference(&keys(configured))
        .filter(|key| present(key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    Some(json!({"metadata": {"labels": gone, "annotations": {CONFIGURED_LABELS: configured}}}))
}

/// Taints of the configuration that a registered Node does not have, as `key:effect`. They are written only when the
/// node registers; later only the administrator changes them.
pub(super) fn missing_taints(object: &Value, taints: &Value) -> Vec<String> {
    let held = object["spec"]["taints"].as_array();
    let same = |a: &Value, b: &Value| a["key"] == b["key"] && a["effect"] == b["effect"];
    let missing = taints
        .as_array()
        .into_iter()
        .flatten()
        .filter(|taint| held.is_none_or(|held| !held.iter().any(|held| same(held, taint))));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    missing.map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(keys: &[&str]) -> BTreeMap<String, String> {
        keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect()
    }

    #[test]
    fn bad_label_is_left_out_alone() {
        let mut all = labels(&["site", "node-role.kubernetes.io/worker", "a.k8s.io/x"]);
        all.insert("hall".to_owned(), "Halle 7".to_owned());
        let (written, problems) = allowed(all);
        assert_eq!(written, labels(&["site"]));
        assert_eq!(problems.len(), 3);
        assert!(problems.iter().any(|said| said.contains("node-role.kubernetes.io/worker")), "{problems:?}");
    }

    #[test]
    fn label_removed_from_configuration_goes() {
        let standard = labels(&STANDARD);
        assert_eq!(configured(&standard), None);
        let mut two = standard.clone();
        two.extend(labels(&["line", "site"]));
        assert_eq!(configured(&two).as_deref(), Some("line,site"));

        let node = |annotation: Option<&str>| {
            json!({"metadata": {"labels": {"line": "1", "site": "s", "admin": "y"},
                "annotations": {CONFIGURED_LABELS: annotation}}})
        };
        assert_eq!(forgetting(&node(None), None), None, "a node without labels costs no write");
        assert_eq!(forgetting(&node(Some("line,site")), Some("line,site")), None);
        let patch = forgetting(&node(Some("line,site")), Some("site")).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({"line": null}), "others' labels stay");
        assert_eq!(patch["metadata"]["annotations"], json!({CONFIGURED_LABELS: "site"}));
        let patch = forgetting(&node(Some("line,node-role.kubernetes.io/x,absent")), None).unwrap();
        assert_eq!(patch["metadata"]["labels"], json!({"line": null}));
        assert_eq!(patch["metadata"]["annotations"], json!({CONFIGURED_LABELS: null}));
    }

    #[test]
    fn taints_that_a_node_lacks_are_named() {
        let wanted = json!([{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "1", "effect": "NoExecute"}]);
        assert_eq!(
            missing_taints(&json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}), &wanted),
            ["b:NoExecute"]
        );
        assert!(missing_taints(&json!({}), &json!([])).is_empty());
        assert!(missing_taints(&json!({"spec": {"taints": 1}}), &json!({"x": [1]})).is_empty());
    }
}
