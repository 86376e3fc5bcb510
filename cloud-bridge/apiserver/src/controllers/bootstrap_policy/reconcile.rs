//! Reconciles default roles and bindings: adds missing parts and keeps a user's additions (K8s
//! component-helpers/auth/rbac/reconciliation). Pure.

use sampan_json::SetField;
use serde_json::{Map, Value};

use crate::auth::rbac::{Rule, cover};
use apimachinery::json::{items, object_mut, remove, text, text_entries};

/// Set to `false` on objects that must not be reconciled.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Required change of a binding.
#[derive(Debug, PartialEq)]
pub(super) enum Binding {
    Stays,
    Becomes(Value),
    /// It binds another role. The role of a binding cannot change, so the binding is replaced.
    AnotherRole,
}

fn protected(existing: &Value) -> bool {
    text(&existing["metadata"]["annotations"], AUTOUPDATE) == "false"
}

/// The role with all that it should have; `None` when it has that or is not to be touched.
pub(super) fn role(existing: &Value, expected: &Value) -> Option<Value> {
    if protected(existing) {
        return None;
    }
    let mut role = metadata(existing, expected);
    let (own, wanted) = (Rule::all(existing), Rule::all(expected));
    let missing = match cover::uncovered(&own.iter().collect::<Vec<_>>(), &wanted) {
        Ok(missing) => cover::as_rules(&missing),
        Err(cover::TooMany) => {
            log::warn!("role {}: too many rules to be completed", text(&existing["metadata"], "name"));
            Vec::new()
        }
    };
    add(&mut role, "rules", missing.iter().map(Rule::value).collect());
    if expected["aggregationRule"].is_null() {
        remove(&mut role, "aggregationRule");
    } else {
        let list = |role: &Value| items(&role["aggregationRule"], "clusterRoleSelectors").to_vec();
        let own = list(existing);
        let missing: Vec<Value> = list(expected).into_iter().filter(|selector| !own.contains(selector)).collect();
        if !missing.is_empty() {
            let all = own.into_iter().chain(missing).collect::<Value>();
            object_mut(&mut role, "aggregationRule").map(|rule| rule.insert("clusterRoleSelectors".into(), all));
        }
    }
    (role != *existing).then_some(role)
}

/// The required change of the binding, so that it names all expected subjects.
pub(super) fn binding(existing: &Value, expected: &Value) -> Binding {
    if protected(existing) {
        return Binding::Stays;
    }
    if existing["roleRef"] != expected["roleRef"] {
        return Binding::AnotherRole;
    }
    let mut binding = metadata(existing, expected);
    let own = items(existing, "subjects");
    add(
        &mut binding,
        "subjects",
        items(expected, "subjects").iter().filter(|one| !own.contains(one)).cloned().collect(),
    );
    if binding == *existing { Binding::Stays } else { Binding::Becomes(binding) }
}

/// The object with the labels and annotations that it should have. Those that it has count more.
fn metadata(existing: &Value, expected: &Value) -> Value {
    let mut object = existing.clone();
    for field in ["labels", "annotations"] {
        let pairs = |object: &Value| -> Map<String, Value> {
            text_entries(&object["metadata"], field).map(|(key, value)| (key.to_owned(), value.into())).collect()
        };
        let mut merged = pairs(expected);
        merged.extend(pairs(existing));
        object.set_at(&["metadata", field], merged.into());
    }
    object
}

fn add(object: &mut Value, field: &str, more: Vec<Value>) {
    if !more.is_empty() {
        let all = items(object, field).iter().cloned().chain(more).collect();
        object.set(field, all);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(annotation: &str) -> Value {
        json!({"name": "r", "uid": "u", "labels": {"l": "1"}, "annotations": {AUTOUPDATE: annotation}})
    }

    #[test]
    fn what_is_missing_in_a_role_comes_back_and_what_was_added_stays() {
        let rule = |verbs: Value| json!({"verbs": verbs, "apiGroups": [""], "resources": ["pods"]});
        let expected = json!({"metadata": meta("true"), "rules": [rule(json!(["get", "list"]))]});
        assert_eq!(role(&expected, &expected), None);
        let less = json!({"metadata": {"name": "r", "uid": "u", "labels": {"l": "2", "own": "x"}},
            "rules": [rule(json!(["get", "delete"]))], "aggregationRule": {"clusterRoleSelectors": [{}]}});
        assert_eq!(
            role(&less, &expected),
            Some(json!({"metadata": {"name": "r", "uid": "u", "labels": {"l": "2", "own": "x"},
                "annotations": {AUTOUPDATE: "true"}},
                "rules": [rule(json!(["get", "delete"])), rule(json!(["list"]))]}))
        );
        let mut left_alone = less.clone();
        left_alone["metadata"]["annotations"] = json!({AUTOUPDATE: "false"});
        assert_eq!(role(&left_alone, &expected), None);
        let wider = json!({"metadata": meta("true"), "rules": [rule(json!(["*"]))]});
        assert_eq!(role(&wider, &expected), None);
    }

    #[test]
    fn what_a_role_gathers_comes_back() {
        let of = |labels: &[&str]| {
            let selectors: Vec<Value> = labels.iter().map(|label| json!({"matchLabels": {*label: "true"}})).collect();
            json!({"metadata": meta("true"), "aggregationRule": {"clusterRoleSelectors": selectors}})
        };
        assert_eq!(role(&of(&["b"]), &of(&["a"])), Some(of(&["b", "a"])));
        assert_eq!(role(&of(&["b", "a"]), &of(&["a"])), None);
        assert_eq!(role(&json!({"metadata": meta("true")}), &of(&["a"])), Some(of(&["a"])));
    }

    #[test]
    fn a_binding_gets_its_subjects_back_or_is_made_anew() {
        let of = |role: &str, subjects: &[&str], annotation: &str| {
            let subjects: Vec<Value> = subjects.iter().map(|name| json!({"kind": "Group", "name": name})).collect();
            json!({"metadata": meta(annotation), "roleRef": {"name": role}, "subjects": subjects})
        };
        let expected = of("r", &["a", "b"], "true");
        assert_eq!(binding(&of("r", &["b", "c", "a"], "true"), &expected), Binding::Stays);
        assert_eq!(
            binding(&of("r", &["b", "c"], "true"), &expected),
            Binding::Becomes(of("r", &["b", "c", "a"], "true"))
        );
        assert_eq!(binding(&of("x", &["b"], "true"), &expected), Binding::AnotherRole);
        assert_eq!(binding(&of("x", &["b"], "false"), &expected), Binding::Stays);
        let none = json!({"metadata": meta("true"), "roleRef": {"name": "r"}});
        assert_eq!(binding(&none, &expected), Binding::Becomes(expected.clone()));
        assert_eq!(binding(&none, &none), Binding::Stays);
    }
}
