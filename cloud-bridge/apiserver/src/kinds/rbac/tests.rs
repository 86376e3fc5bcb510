use serde_json::{Value, json};

use super::*;
use crate::kinds::kind::Kind;
use crate::resource::strategy::Strategy;

fn told(errors: Vec<apimachinery::field::FieldError>) -> Vec<String> {
    errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

fn created(kind: &Kind, mut object: Value) -> Vec<String> {
    kind.default(&mut object);
    told(kind.validate_create(&object))
}

#[test]
fn rules_name_resources_or_paths() {
    let good = json!({"rules": [
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"], "resourceNames": ["a"]},
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    ]});
    assert_eq!(created(&ROLE, good.clone()), [""; 0]);
    assert_eq!(created(&CLUSTER_ROLE, good), [""; 0]);
    let paths = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x", "/y/*"]}]});
    assert_eq!(created(&CLUSTER_ROLE, paths.clone()), [""; 0]);
    assert_eq!(
        created(&ROLE, paths),
        [
            r#"rules[0].nonResourceURLs: Invalid value: ["/x","/y/*"]: namespaced rules cannot apply to non-resource URLs"#
        ]
    );
    let bad = json!({"rules": [{"verbs": []}, {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}]});
    assert_eq!(
        created(&CLUSTER_ROLE, bad),
        [
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
            r#"rules[1].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs"#,
        ]
    );
}

#[test]
fn an_aggregation_has_selectors_that_can_be_read() {
    let role = |selectors: Value| json!({"aggregationRule": {"clusterRoleSelectors": selectors}});
    assert_eq!(created(&CLUSTER_ROLE, role(json!([{"matchLabels": {"a": "b"}}]))), [""; 0]);
    assert_eq!(
        created(&CLUSTER_ROLE, role(json!([]))),
        [
            "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
        ]
    );
    let wrong = role(json!([{"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}]));
    assert_eq!(
        created(&CLUSTER_ROLE, wrong),
        [
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator",
            "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.",
        ]
    );
}

#[test]
fn bindings_say_who_and_what() {
    let mut binding = json!({"roleRef": {"apiGroup": "", "kind": "Role", "name": "r"}, "subjects": [
        {"kind": "User", "name": "eve"}, {"kind": "Group", "name": "people", "apiGroup": ""},
        {"kind": "ServiceAccount", "name": "robot"}]});
    ROLE_BINDING.default(&mut binding);
    assert_eq!(told(ROLE_BINDING.validate_create(&binding)), [""; 0]);
    assert_eq!(binding["roleRef"]["apiGroup"], GROUP);
    assert_eq!(
        (&binding["subjects"][0]["apiGroup"], &binding["subjects"][1]["apiGroup"]),
        (&json!(GROUP), &json!(GROUP))
    );
    assert!(binding["subjects"][2].get("apiGroup").is_none());
    assert_eq!(
        told(CLUSTER_ROLE_BINDING.validate_create(&binding)),
        [
            "roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
            "subjects[2].namespace: Required value",
        ]
    );
    let wrong = json!({"roleRef": {"apiGroup": "x", "kind": "Robe", "name": ""}, "subjects": [
        {"kind": "", "name": ""}, {"kind": "ServiceAccount", "name": "A", "apiGroup": "x"},
        {"kind": "User", "name": "eve", "apiGroup": "x"}]});
    assert_eq!(
        told(ROLE_BINDING.validate_create(&wrong))
            .iter()
            .map(|error| error.split(": ").next().unwrap())
            .collect::<Vec<_>>(),
        [
            "roleRef.apiGroup",
            "roleRef.kind",
            "roleRef.name",
            "subjects[0].name",
            "subjects[0].kind",
            "subjects[1].name",
            "subjects[1].apiGroup",
            "subjects[2].apiGroup"
        ]
    );
}

#[test]
fn a_binding_stays_with_its_role() {
    let binding = |name: &str| json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": name}});
    assert_eq!(told(ROLE_BINDING.validate_update(&binding("a"), &binding("a"))), [""; 0]);
    assert_eq!(
        told(ROLE_BINDING.validate_update(&binding("b"), &binding("a"))),
        [
            r#"roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}: cannot change roleRef"#
        ]
    );
}

#[test]
fn cells_of_a_binding() {
    let now = "2026-01-01T00:01:00Z".parse().unwrap();
    let binding = json!({"metadata": {"name": "b", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "eve"}, {"kind": "User", "name": "bob"},
            {"kind": "ServiceAccount", "namespace": "n", "name": "robot"}]});
    let row = ROLE_BINDING.row(&binding, now);
    assert_eq!(json!(row), json!(["b", "Role/r", "60s", "eve, bob", "", "n/robot"]));
    assert_eq!(json!(ROLE.row(&binding, now)), json!(["b", "2026-01-01T00:00:00Z"]));
}
