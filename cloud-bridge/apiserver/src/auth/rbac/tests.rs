//! Rules, row by row as Kubernetes' own tests of them have them; the index; what covers what.

use serde_json::{Value, json};

use super::cover::{self, TooMany, uncovered};
use super::*;
use crate::auth::attributes::Attributes;
use crate::auth::request_info::target;
use apimachinery::user::UserInfo;

fn asks(method: &str, path: &str) -> Attributes {
    Attributes::new(method, &target(path), false, "")
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names})
}

#[test]
fn a_rule_allows_what_it_says() {
    let pods = rule(&["get"], &[""], &["pods"], &[]);
    let log = rule(&["get"], &[""], &["pods/log"], &[]);
    let any_log = rule(&["get"], &["*"], &["*/log"], &[]);
    let all = rule(&["*"], &["*"], &["*"], &[]);
    let named = rule(&["get", "update"], &[""], &["pods"], &["a", "b"]);
    let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/apis", "/apis/*", "/logs*"]});
    let every_url = json!({"verbs": ["*"], "nonResourceURLs": ["*"]});
    let (pod, its_log) = ("/api/v1/namespaces/n/pods/a", "/api/v1/namespaces/n/pods/a/log");
    for (rule, method, path, yes) in [
        (&pods, "GET", pod, true),
        (&pods, "DELETE", pod, false),
        (&pods, "GET", its_log, false),
        (&pods, "GET", "/apis/apps/v1/namespaces/n/pods/a", false),
        (&log, "GET", its_log, true),
        (&log, "GET", pod, false),
        (&any_log, "GET", its_log, true),
        (&any_log, "GET", "/api/v1/namespaces/n/pods/a/exec", false),
        (&any_log, "GET", "/api/v1/namespaces/n/log", false),
        (&all, "DELETE", "/apis/apps/v1/deployments", true),
        (&all, "GET", its_log, true),
        (&all, "GET", "/healthz", false),
        (&named, "PUT", pod, true),
        (&named, "GET", "/api/v1/namespaces/n/pods/c", false),
        (&named, "GET", "/api/v1/namespaces/n/pods", false),
        (&named, "POST", "/api/v1/namespaces/n/pods", false),
        (&urls, "GET", "/apis", true),
        (&urls, "GET", "/apis/apps/v1", true),
        (&urls, "GET", "/logs-and-more", true),
        (&urls, "GET", "/api", false),
        (&urls, "POST", "/apis", false),
        (&urls, "GET", pod, false),
        (&every_url, "PUT", "/x/y", true),
        (&every_url, "GET", pod, false),
        (&json!({"verbs": "get", "apiGroups": [1], "resources": {"pods": 1}}), "GET", pod, false),
        (&json!([]), "GET", pod, false),
    ] {
        assert_eq!(Rule::of(rule).allows(&asks(method, path)), yes, "{rule} {method} {path}");
    }
}

fn role(kind: &str, namespace: &str, name: &str, rules: Value) -> (&'static str, Value) {
    let storage = if kind == "Role" { ROLES } else { CLUSTER_ROLES };
    (storage, json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules}))
}

fn binding(namespace: &str, name: &str, role: (&str, &str), subjects: Value) -> (&'static str, Value) {
    let storage = if namespace.is_empty() { CLUSTER_ROLE_BINDINGS } else { ROLE_BINDINGS };
    let role = json!({"apiGroup": GROUP, "kind": role.0, "name": role.1});
    (storage, json!({"metadata": {"namespace": namespace, "name": name}, "roleRef": role, "subjects": subjects}))
}

fn user(name: &str) -> Value {
    json!([{"kind": "User", "apiGroup": GROUP, "name": name}])
}

fn policy(objects: &[(&'static str, Value)]) -> Policy {
    let mut policy = Policy::default();
    objects.iter().for_each(|(storage, object)| policy.change(storage, None, Some(object)));
    policy
}

fn readers() -> Value {
    json!([rule(&["get", "list"], &[""], &["pods"], &[])])
}

#[test]
fn a_binding_counts_in_its_namespace_or_everywhere() {
    let group = json!([{"kind": "Group", "name": "people"}]);
    let robot = json!([{"kind": "ServiceAccount", "name": "robot"}]);
    let policy = policy(&[
        role("Role", "n", "reader", readers()),
        role("ClusterRole", "", "reader", json!([rule(&["delete"], &[""], &["pods"], &[])])),
        binding("n", "eve", ("Role", "reader"), user("eve")),
        binding("m", "eve", ("ClusterRole", "reader"), user("eve")),
        binding("", "people", ("ClusterRole", "reader"), group),
        binding("n", "robot", ("Role", "reader"), robot.clone()),
        binding("", "robot", ("ClusterRole", "reader"), robot),
    ]);
    let may = |name: &str, groups: &[&str], method: &str, path: &str| {
        policy.authorize(&UserInfo::new(name, groups.iter().copied()), &asks(method, path))
    };
    let (here, there) = ("/api/v1/namespaces/n/pods/a", "/api/v1/namespaces/m/pods/a");
    assert_eq!(
        may("eve", &[], "GET", here),
        Ok("RBAC: allowed by RoleBinding \"eve/n\" of Role \"reader\" to User \"eve\"".into())
    );
    assert_eq!(may("eve", &[], "GET", there), Err(String::new()));
    assert!(may("eve", &[], "DELETE", there).is_ok());
    assert_eq!(may("eve", &[], "GET", "/api/v1/pods"), Err(String::new()));
    assert_eq!(
        may("bob", &["x", "people"], "DELETE", here),
        Ok("RBAC: allowed by ClusterRoleBinding \"people\" of ClusterRole \"reader\" to Group \"people\"".into())
    );
    assert_eq!(may("people", &[], "DELETE", here), Err(String::new()));
    assert_eq!(
        may("system:serviceaccount:n:robot", &[], "GET", here),
        Ok("RBAC: allowed by RoleBinding \"robot/n\" of Role \"reader\" to ServiceAccount \"robot/n\"".into())
    );
    assert_eq!(may("system:serviceaccount:n:robot", &[], "DELETE", here), Err(String::new()));
    assert_eq!(may("system:serviceaccount:m:robot", &[], "GET", here), Err(String::new()));
}

#[test]
fn a_role_that_is_not_there_is_told_and_gives_nothing() {
    let mut policy = policy(&[
        binding("n", "a", ("Role", "gone"), user("eve")),
        binding("", "b", ("ClusterRole", "gone"), user("eve")),
        binding("n", "c", ("Robe", "gone"), user("eve")),
        binding("n", "d", ("Role", "gone"), user("eve")),
    ]);
    let eve = UserInfo::new("eve", ["x"]);
    let asked = asks("GET", "/api/v1/namespaces/n/pods/a");
    assert_eq!(
        policy.authorize(&eve, &asked).unwrap_err(),
        "RBAC: [clusterrole.rbac.authorization.k8s.io \"gone\" not found, \
         role.rbac.authorization.k8s.io \"gone\" not found, unsupported role reference kind: \"Robe\"]"
    );
    assert_eq!(
        policy.rules_for(&eve, "", Some("rolebindings.rbac.authorization.k8s.io")),
        (vec![], Some("rolebindings.rbac.authorization.k8s.io \"gone\" not found".into()))
    );
    // The role may come later.
    let (storage, role) = role("Role", "n", "gone", readers());
    policy.change(storage, None, Some(&role));
    assert!(policy.authorize(&eve, &asked).is_ok());
}

#[test]
fn changes_are_taken_in_and_nothing_is_left_of_what_went() {
    let objects = [
        role("Role", "n", "reader", readers()),
        role("ClusterRole", "", "reader", readers()),
        binding("n", "eve", ("Role", "reader"), json!([user("eve")[0], {"kind": "Group", "name": "g"}, {"kind": "x"}])),
        binding("", "all", ("ClusterRole", "reader"), user("eve")),
    ];
    let mut policy = policy(&objects);
    let eve = UserInfo::new("eve", ["x"]);
    let asked = asks("GET", "/api/v1/namespaces/n/pods/a");
    let (storage, bound) = &objects[2];
    let (_, other) = binding("n", "eve", ("Role", "reader"), user("bob"));
    policy.change(objects[3].0, Some(&objects[3].1), None);
    assert!(policy.authorize(&eve, &asked).is_ok());
    policy.change(storage, Some(bound), Some(&other));
    assert_eq!(policy.authorize(&eve, &asked), Err(String::new()));
    policy.change(storage, Some(&other), Some(bound));
    let (_, less) = role("Role", "n", "reader", json!([]));
    policy.change(ROLES, Some(&objects[0].1), Some(&less));
    assert_eq!(policy.authorize(&eve, &asked), Err(String::new()));
    for (storage, object) in &objects[..3] {
        policy.change(storage, Some(object), None);
    }
    assert!(policy.is_empty());
}

#[test]
fn a_question_costs_no_more_for_bindings_of_others() {
    let mut policy = policy(&[role("Role", "n", "reader", readers())]);
    for number in 0..20_000 {
        let (storage, binding) = binding("n", &number.to_string(), ("Role", "reader"), user(&format!("user-{number}")));
        policy.change(storage, None, Some(&binding));
    }
    let asked = asks("GET", "/api/v1/namespaces/n/pods/a");
    let started = std::time::Instant::now();
    for number in 0..1000 {
        assert!(policy.authorize(&UserInfo::new(&format!("user-{number}"), ["x"]), &asked).is_ok());
    }
    // Reading all bindings once takes longer than these thousand lookups.
    assert!(started.elapsed().as_millis() < 200, "{:?}", started.elapsed());
}

#[test]
fn rules_of_somebody_are_told_once() {
    let twice = json!([user("eve")[0], {"kind": "Group", "name": "people"}]);
    let policy =
        policy(&[role("ClusterRole", "", "reader", readers()), binding("", "b", ("ClusterRole", "reader"), twice)]);
    let (rules, errors) = policy.rules_for(&UserInfo::new("eve", ["people"]), "n", None);
    assert_eq!((rules.len(), errors), (1, None));
    assert_eq!(rules[0].value(), json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}));
}

fn missing(owners: &[&Value], servants: &[&Value]) -> String {
    let rules = |values: &[&Value]| values.iter().map(|value| Rule::of(value)).collect::<Vec<Rule>>();
    let (owners, servants) = (rules(owners), rules(servants));
    cover::shown(&uncovered(&owners.iter().collect::<Vec<_>>(), &servants).unwrap())
}

#[test]
fn rights_are_covered_one_by_one() {
    let want = rule(&["get", "list"], &["", "apps"], &["pods", "pods/log"], &[]);
    assert_eq!(missing(&[&want], &[&want]), "");
    assert_eq!(missing(&[&rule(&["*"], &["*"], &["*"], &[])], &[&want]), "");
    assert_eq!(
        missing(&[&rule(&["get"], &["*"], &["*"], &[]), &rule(&["list"], &[""], &["*/log"], &[])], &[&want]),
        "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"pods\"], Verbs:[\"list\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"pods/log\"], Verbs:[\"list\"]}"
    );
    // A right to some names does not cover a right to all, and all does not cover some.
    let named = rule(&["get"], &[""], &["pods"], &["a"]);
    let every = rule(&["get"], &[""], &["pods"], &[]);
    assert_eq!(missing(&[&every], &[&named]), "");
    assert_eq!(missing(&[&named], &[&every]), "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\"]}");
    assert_eq!(
        missing(&[&rule(&["get"], &[""], &["pods"], &["a"])], &[&rule(&["get"], &[""], &["pods"], &["a", "b"])]),
        "{APIGroups:[\"\"], Resources:[\"pods\"], ResourceNames:[\"b\"], Verbs:[\"get\"]}"
    );
    let url = |path: &str| json!({"verbs": ["get"], "nonResourceURLs": [path]});
    assert_eq!(missing(&[&url("/a/*")], &[&url("/a/b"), &url("/a/*")]), "");
    assert_eq!(missing(&[&url("/a")], &[&url("/b")]), "{NonResourceURLs:[\"/b\"], Verbs:[\"get\"]}");
    assert_eq!(
        missing(&[&rule(&["*"], &["*"], &["*"], &[])], &[&url("/b")]),
        "{NonResourceURLs:[\"/b\"], Verbs:[\"get\"]}"
    );
    assert_eq!(missing(&[], &[&json!({"verbs": ["get"]})]), "");
}

#[test]
fn rules_of_millions_of_rights_are_compared_for_a_moment_only() {
    let many: Vec<String> = (0..4096).map(|number| format!("w{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let huge = Rule::of(&rule(&many, &many, &many, &many));
    let everything = Rule::of(&rule(&["*"], &["*"], &["*"], &[]));
    assert_eq!(uncovered(&[&everything], std::slice::from_ref(&huge)), Ok(vec![]));
    let started = std::time::Instant::now();
    assert_eq!(uncovered(&[], std::slice::from_ref(&huge)), Err(TooMany));
    assert_eq!(uncovered(&[&huge], std::slice::from_ref(&huge)), Err(TooMany));
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    // A long answer is cut.
    let long = Rule::of(&rule(&many, &[""], &["a", "b"], &[]));
    let shown = cover::shown(&uncovered(&[], std::slice::from_ref(&long)).unwrap());
    assert!(shown.len() < 64 * 1024 && shown.ends_with("..."), "{}", shown.len());
}

#[test]
fn the_first_subject_that_is_the_user_is_named() {
    let eve = UserInfo::new("system:serviceaccount:n:eve", ["people"]);
    let asked = asks("GET", "/api/v1/namespaces/n/pods/a");
    let (person, account) = (user(&eve.name)[0].clone(), json!({"kind": "ServiceAccount", "name": "eve"}));
    let group = json!({"kind": "Group", "name": "people"});
    for (subjects, shown) in [
        (json!([group, person, account]), "Group \"people\""),
        (json!([{"kind": "x"}, person, account, group]), "User \"system:serviceaccount:n:eve\""),
        (json!([account, person, group]), "ServiceAccount \"eve/n\""),
    ] {
        let policy = policy(&[role("Role", "n", "reader", readers()), binding("n", "b", ("Role", "reader"), subjects)]);
        let reason = format!("RBAC: allowed by RoleBinding \"b/n\" of Role \"reader\" to {shown}");
        assert_eq!(policy.authorize(&eve, &asked), Ok(reason));
    }
}

#[test]
fn a_decision_does_not_look_through_subjects_and_waits_for_no_reader() {
    let followed = Followed::default();
    let (storage, reader) = role("Role", "n", "reader", readers());
    followed.change(storage, None, Some(&reader));
    let many: Vec<Value> = (0..20_000).map(|number| user(&format!("user-{number}"))[0].clone()).collect();
    let (storage, bound) = binding("n", "many", ("Role", "reader"), many.into());
    followed.change(storage, None, Some(&bound));
    // A decision that is under way.
    let held = followed.policy();
    let asked = asks("GET", "/api/v1/namespaces/n/pods/a");
    let last = UserInfo::new("user-19999", ["x"]);
    let started = std::time::Instant::now();
    for _ in 0..1000 {
        assert!(followed.policy().authorize(&last, &asked).is_ok());
    }
    assert!(started.elapsed().as_millis() < 100, "{:?}", started.elapsed());
    followed.change(storage, Some(&bound), None);
    assert!(followed.policy().authorize(&last, &asked).is_err(), "a change is in force at once");
    assert!(held.authorize(&last, &asked).is_ok(), "who decides goes on with what there was");
}

#[test]
fn what_a_namespace_weighs_is_known() {
    let objects = [
        role("Role", "n", "reader", readers()),
        binding("n", "eve", ("Role", "reader"), user("eve")),
        role("Role", "n", "reader", json!([])),
    ];
    let mut policy = policy(&objects[..2]);
    assert_eq!((policy.weight("n"), policy.weight(""), policy.weight("m")), (6 + 2, 0, 0));
    policy.change(ROLES, Some(&objects[0].1), Some(&objects[2].1));
    assert_eq!(policy.weight("n"), 1 + 2);
    policy.change(ROLE_BINDINGS, Some(&objects[1].1), None);
    policy.change(ROLES, Some(&objects[2].1), None);
    assert!(policy.is_empty());
}
