//! Cost of roles and bindings for a decision, and its bound. Kubernetes does not bound it: its servers have many
//! processors.

use serde_json::Value;

use apimachinery::json::items;

/// Maximum weight of the roles and bindings of one namespace: some two milliseconds of a decision.
const NAMESPACE_MAX: usize = 16_384;

/// Maximum weight of ClusterRoles and ClusterRoleBindings. Administrators of the site write them.
const CLUSTER_MAX: usize = 262_144;

/// The lists of a rule.
const LISTS: [&str; 5] = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];

/// Weight of a role: one, plus one for each rule and each word; of a binding: one, plus one for each subject.
pub(crate) fn weight(object: &Value) -> usize {
    let words = |rule: &Value| LISTS.iter().map(|list| items(rule, list).len()).sum::<usize>();
    let rules = items(object, "rules").iter().map(|rule| 1 + words(rule)).sum::<usize>();
    1 + rules + items(object, "subjects").len()
}

/// The reason why an object may not get the weight `new` in a namespace with the weight `has`, which includes the
/// object's weight before the write, `old`.
pub(crate) fn refusal(namespace: &str, has: usize, new: usize, old: usize) -> Option<String> {
    let (max, of) = if namespace.is_empty() {
        (CLUSTER_MAX, "ClusterRoles and ClusterRoleBindings".to_owned())
    } else {
        (NAMESPACE_MAX, format!("Roles and RoleBindings of namespace {namespace}"))
    };
    (new > old && has.saturating_sub(old).saturating_add(new) > max)
        .then(|| format!("{of} may have no more than {max} rules, words of rules and subjects together"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_that_a_decision_may_have_to_look_at_weighs() {
        let rule = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]});
        assert_eq!(weight(&json!({"rules": [rule, {"verbs": ["get"], "nonResourceURLs": ["/a"]}]})), 1 + 6 + 3);
        assert_eq!(weight(&json!({"subjects": [{}, {}], "roleRef": {}})), 3);
        assert_eq!(weight(&json!({"rules": {"a": 1}, "subjects": "x"})), 1);
    }

    #[test]
    fn what_is_too_heavy_may_become_lighter() {
        assert_eq!(refusal("n", NAMESPACE_MAX, 5, 5), None);
        assert_eq!(refusal("n", 10 * NAMESPACE_MAX, 5, 6), None);
        assert_eq!(refusal("n", NAMESPACE_MAX - 5, 5, 0), None);
        assert!(refusal("n", NAMESPACE_MAX - 5, 6, 0).is_some_and(|why| why.contains("of namespace n ")));
        assert_eq!(refusal("", NAMESPACE_MAX, 6, 0), None);
        assert!(refusal("", CLUSTER_MAX, 6, 5).is_some());
    }
}
