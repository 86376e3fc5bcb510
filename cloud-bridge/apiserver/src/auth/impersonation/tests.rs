use serde_json::{Value, json};

use super::*;
use crate::auth::rbac::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP as RBAC};
use crate::auth::request_info::target;

/// Where eve has these rules everywhere.
fn with(rules: Value) -> Authorizer {
    let authorizer = Authorizer::default();
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    let binding = json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "eve"}, {"kind": "ServiceAccount", "namespace": "n", "name": "agent"}]});
    authorizer.rbac.change(CLUSTER_ROLES, None, Some(&role));
    authorizer.rbac.change(CLUSTER_ROLE_BINDINGS, None, Some(&binding));
    authorizer
}

fn rule(verb: &str, group: &str, resource: &str, names: &[&str]) -> Value {
    json!({"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": names})
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn try_as(authorizer: &Authorizer, user: &UserInfo, pairs: &[(&'static str, &str)]) -> Result<UserInfo, String> {
    let list = Attributes::new("GET", &target("/api/v1/namespaces/n/pods"), false, "");
    let answer = impersonate(authorizer, user, &list, &headers(pairs));
    answer.map(|acting| acting.expect("somebody is asked for")).map_err(|error| error.message)
}

fn eve() -> UserInfo {
    UserInfo::new("eve", ["x"])
}

#[test]
fn each_part_of_somebody_is_asked_for() {
    let users = rule("impersonate", "", "users", &["bob"]);
    let groups = rule("impersonate", "", "groups", &["people"]);
    let uids = rule("impersonate", "authentication.k8s.io", "uids", &["7"]);
    let extra = rule("impersonate", "authentication.k8s.io", "userextras/scopes", &["view"]);
    let authorizer = with(json!([users, groups, uids, extra]));
    let ask = |pairs: &[(&'static str, &str)]| try_as(&authorizer, &eve(), pairs);
    let whole = [(USER, "bob"), (GROUP, "people"), (UID, "7"), ("impersonate-extra-scopes", "view")];
    let bob = ask(&whole).unwrap();
    assert_eq!((bob.name.as_str(), bob.uid.as_str()), ("bob", "7"));
    assert_eq!(bob.groups, ["people", "system:authenticated"]);
    assert_eq!(bob.extra["scopes"], ["view"]);
    let first = "pods is forbidden: User \"eve\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"n\"";
    for wrong in [
        vec![(USER, "alice")],
        vec![(USER, "bob"), (GROUP, "people"), (GROUP, "system:masters")],
        vec![(USER, "bob"), (UID, "8")],
        vec![(USER, "bob"), ("impersonate-extra-scopes", "view"), ("impersonate-extra-scopes", "all")],
        vec![(USER, "bob"), ("impersonate-extra-other", "view")],
    ] {
        assert_eq!(ask(&wrong).unwrap_err(), first, "{wrong:?}");
    }
    assert_eq!(
        ask(&[(GROUP, "people"), ("impersonate-extra-a%2fb", "v")]).unwrap_err(),
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"people\"}, \
         Extra:map[string][]string{\"a/b\":[]string{\"v\"}}} without impersonating a user name"
    );
    assert_eq!(wanted(&HeaderMap::new()), Ok(None));
}

#[test]
fn a_name_that_is_no_text_asks_for_somebody_all_the_same() {
    let mut headers = HeaderMap::new();
    headers.insert(USER, HeaderValue::from_bytes(b"b\xffb").unwrap());
    assert_eq!(wanted(&headers).unwrap().unwrap().name, "b\u{fffd}b");
}

#[test]
fn accounts_and_the_anonymous_bring_their_groups() {
    let authorizer = Authorizer::default();
    let admin = UserInfo::master("admin");
    let groups = |pairs: &[(&'static str, &str)]| try_as(&authorizer, &admin, pairs).unwrap().groups;
    let account = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
    assert_eq!(groups(&[(USER, "system:serviceaccount:n:robot")]), account);
    let given = [(USER, "system:serviceaccount:n:robot"), (GROUP, "g")];
    assert_eq!(groups(&given), ["g", "system:authenticated"]);
    assert_eq!(groups(&[(USER, "system:anonymous")]), ["system:unauthenticated"]);
    assert_eq!(groups(&[(USER, "bob"), (GROUP, "system:unauthenticated")]), ["system:unauthenticated"]);
    assert_eq!(groups(&[(USER, "system:node:n1")]), ["system:nodes", "system:authenticated"]);
    assert_eq!(groups(&[(USER, "system:node:n1"), (GROUP, "g")]), ["g", "system:authenticated"]);
    assert_eq!(groups(&[(USER, "bob"), (GROUP, "system:masters")]), ["system:masters", "system:authenticated"]);
    // The right for an account applies to its namespace.
    let account = rule("impersonate", "", "serviceaccounts", &["robot"]);
    let eve = try_as(&with(json!([account])), &eve(), &[(USER, "system:serviceaccount:n:robot")]);
    assert_eq!(eve.unwrap().name, "system:serviceaccount:n:robot");
}

#[test]
fn some_act_as_others_for_some_requests_only() {
    let on = |mode: &str| rule(&format!("impersonate-on:{mode}:list"), "", "pods", &[]);
    let to = |mode: &str, resource: &str, names: &[&str]| {
        rule(&format!("impersonate:{mode}"), "authentication.k8s.io", resource, names)
    };
    let authorizer = with(json!([
        on("user-info"),
        to("user-info", "users", &["bob"]),
        to("user-info", "groups", &["*", "system:masters"]),
        to("user-info", "userextras/a.b/c", &[]),
        on("associated-node"),
        to("associated-node", "nodes", &["*"]),
        to("serviceaccount", "serviceaccounts", &[]),
    ]));
    let ask = |user: &UserInfo, pairs: &[(&'static str, &str)]| try_as(&authorizer, user, pairs);
    assert_eq!(ask(&eve(), &[(USER, "bob")]).unwrap().name, "bob");
    let four = [(USER, "bob"), (GROUP, "a"), (GROUP, "b"), (GROUP, "c"), (GROUP, "d")];
    assert_eq!(ask(&eve(), &four).unwrap().groups, ["a", "b", "c", "d", "system:authenticated"]);
    let cannot = |what: &str, rest: &str| format!("{what} is forbidden: User \"eve\" cannot {rest}");
    assert_eq!(
        ask(&eve(), &[(USER, "bob"), (GROUP, "system:masters")]).unwrap_err(),
        cannot(
            "groups.authentication.k8s.io \"system:masters\"",
            "impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: \
             impersonating the system:masters group is not allowed"
        )
    );
    assert!(ask(&eve(), &[(USER, "bob"), ("impersonate-extra-a", "b")]).unwrap_err().ends_with(
        "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")"
    ));
    assert_eq!(ask(&eve(), &[(USER, "bob"), ("impersonate-extra-a.b%2fc", "d")]).unwrap().extra["a.b/c"], ["d"]);
    // The right to impersonate an account applies to all requests.
    assert_eq!(
        ask(&eve(), &[(USER, "system:serviceaccount:n:robot")]).unwrap_err(),
        cannot("pods", "impersonate-on:serviceaccount:list resource \"pods\" in API group \"\" in the namespace \"n\"")
    );
    // An account's pod is on one node.
    let mut agent = UserInfo::new("system:serviceaccount:n:agent", ["system:serviceaccounts"]);
    agent.extra.insert("authentication.kubernetes.io/node-name".into(), vec!["n1".into()]);
    assert_eq!(ask(&agent, &[(USER, "system:node:n1")]).unwrap().groups, ["system:nodes", "system:authenticated"]);
    assert!(ask(&agent, &[(USER, "system:node:n2")]).unwrap_err().contains("impersonate-on:arbitrary-node:list"));
    assert!(ask(&eve(), &[(USER, "system:node:n1")]).unwrap_err().contains("impersonate-on:arbitrary-node:list"));
}
