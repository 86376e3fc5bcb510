//! Rights by roles and bindings: what they grant, to whom, from when on, and who may write them.

use std::sync::Arc;

use apimachinery::user::UserInfo;
use apiserver::{Accounts, Server};
use http::HeaderMap;
use kube::Client;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, JSON, MERGE, TABLE, config};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Sends a request as a user, by impersonation.
async fn ask(api: &Api, user: &str, method: &str, path: &str, body: Value) -> Answer {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into() };
    let kind = if method == "PATCH" { MERGE } else { JSON };
    api.send(method, path, &[("impersonate-user", user), ("content-type", kind)], body).await
}

fn role(name: &str, verbs: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    let rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
    json!({"metadata": {"name": name}, "rules": [rule]})
}

fn to_role(name: &str, kind: &str, role: &str, subject: Value) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": [subject]})
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

/// A name that no other test on a real cluster has.
fn own(api: &Api, name: &str) -> String {
    format!("{name}-{}", api.ns)
}

/// The path of a namespaced kind of the group.
fn there(api: &Api, rest: &str) -> String {
    api.group_path("rbac.authorization.k8s.io/v1", rest)
}

/// Repeats a request until the answer has this code: a real API server gets roles from a watch.
async fn becomes(api: &Api, user: &str, path: &str, code: u16) -> Answer {
    for _ in 0..200 {
        let answer = ask(api, user, "GET", path, Value::Null).await;
        if answer.code == code || !api.real {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{path} never gave {code}");
}

/// The API for the bearer of this token.
fn by_token(api: &Api, token: &str) -> Api {
    let server: &Server = api.server.as_ref().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    let user = server.bearer(&headers).unwrap();
    let client = Client::new(server.service(user), "default");
    Api { client, ns: api.ns.clone(), real: false, server: Some(server.clone()), dir: None }
}

#[tokio::test]
async fn an_operator_does_what_its_role_says_by_its_token_and_nothing_else() {
    let api = Api::embedded(|settings| {
        let key = Accounts::new_key().unwrap();
        settings.accounts = Some(Arc::new(Accounts::new(&key, "the authority\n".into()).unwrap()));
    });
    api.post(&api.path("serviceaccounts"), json!({"metadata": {"name": "operator"}})).await.ok();
    let issued = api.post(&api.path("serviceaccounts/operator/token"), json!({"spec": {}})).await.ok();
    let operator = by_token(&api, issued["status"]["token"].as_str().unwrap());
    let refusal = |what: &str, verb: &str, resource: &str, place: &str| {
        format!(
            "{what} is forbidden: User \"system:serviceaccount:default:operator\" cannot {verb} resource \"{resource}\" in API group \"\" {place}"
        )
    };
    let here = "in the namespace \"default\"";
    operator.get(&api.path("configmaps")).await.fails(403, &refusal("configmaps", "list", "configmaps", here));
    operator.get("/apis").await.ok();

    let mut rights = role("operator", &["get", "list", "watch", "create", "update"], &[""], &["configmaps"]);
    let named = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["its-own"]});
    rights["rules"].as_array_mut().unwrap().push(named);
    api.post(&there(&api, "roles"), rights).await.ok();
    let account = json!({"kind": "ServiceAccount", "name": "operator", "namespace": "default"});
    api.post(&there(&api, "rolebindings"), to_role("operator", "Role", "operator", account)).await.ok();

    operator.post(&api.path("configmaps"), config("a", json!({}))).await.ok();
    operator.get(&api.path("configmaps/a")).await.ok();
    operator.put(&api.path("configmaps/a"), config("a", json!({"l": "1"}))).await.ok();
    operator.get(&api.path("secrets/its-own")).await.fails_with(404, "not found");
    for (method, path, what, verb, resource, place) in [
        ("DELETE", api.path("configmaps/a"), "configmaps \"a\"", "delete", "configmaps", here),
        ("PATCH", api.path("configmaps/a"), "configmaps \"a\"", "patch", "configmaps", here),
        ("GET", api.path("secrets"), "secrets", "list", "secrets", here),
        ("GET", api.path("secrets/other"), "secrets \"other\"", "get", "secrets", here),
        ("GET", api.path("pods/p/log"), "pods \"p\"", "get", "pods/log", here),
        ("GET", "/api/v1/configmaps".into(), "configmaps", "list", "configmaps", "at the cluster scope"),
        (
            "GET",
            "/api/v1/namespaces/kube-system/configmaps".into(),
            "configmaps",
            "list",
            "configmaps",
            "in the namespace \"kube-system\"",
        ),
        ("GET", "/api/v1/nodes".into(), "nodes", "list", "nodes", "at the cluster scope"),
    ] {
        let headers = [("content-type", MERGE)];
        operator.send(method, &path, &headers, b"{}".to_vec()).await.fails(403, &refusal(what, verb, resource, place));
    }

    // A running watch continues after the binding is deleted, as in Kubernetes: the next request is refused.
    let mut watch = operator.watch(&format!("{}?watch=1&resourceVersion=0", api.path("configmaps"))).await;
    while watch.line().await.1 != "a" {}
    api.delete(&there(&api, "rolebindings/operator"), Value::Null).await.ok();
    operator.get(&api.path("configmaps")).await.fails(403, &refusal("configmaps", "list", "configmaps", here));
    api.post(&api.path("configmaps"), config("b", json!({}))).await.ok();
    while watch.line().await.1 != "b" {}
}

#[tokio::test]
async fn a_role_counts_where_it_is_bound() {
    let api = Api::open().await;
    let (eve, name) = (own(&api, "eve"), own(&api, "reader"));
    let roles = format!("{RBAC}/clusterroles");
    api.post(&roles, role(&name, &["list"], &[""], &["configmaps", "nodes"])).await.ok();
    api.post(&there(&api, "rolebindings"), to_role("b", "ClusterRole", &name, user(&eve))).await.ok();
    assert_eq!(becomes(&api, &eve, &api.path("configmaps"), 200).await.code, 200);
    assert_eq!(ask(&api, &eve, "GET", "/api/v1/nodes", Value::Null).await.code, 403);
    api.post(&format!("{RBAC}/clusterrolebindings"), to_role(&name, "ClusterRole", &name, user(&eve))).await.ok();
    assert_eq!(becomes(&api, &eve, "/api/v1/nodes", 200).await.code, 200);
    // The role changes, and with it the granted rights.
    api.put(&format!("{roles}/{name}"), role(&name, &["get"], &[""], &["pods"])).await.ok();
    becomes(&api, &eve, "/api/v1/nodes", 403).await.fails(
        403,
        &format!(
            "nodes is forbidden: User \"{eve}\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
        ),
    );
    // Without the role, the message has another word.
    api.delete(&format!("{roles}/{name}"), Value::Null).await.ok();
    let why = format!(
        "nodes is forbidden: User \"{eve}\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io \"{name}\" not found"
    );
    let mut answer = ask(&api, &eve, "GET", "/api/v1/nodes", Value::Null).await;
    for _ in 0..200 {
        if !api.real || answer.body["message"] == why.as_str() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        answer = ask(&api, &eve, "GET", "/api/v1/nodes", Value::Null).await;
    }
    answer.fails(403, &why);
    api.delete(&format!("{RBAC}/clusterrolebindings/{name}"), Value::Null).await.ok();
}

#[tokio::test]
async fn bindings_are_stored_as_kubernetes_stores_them() {
    let api = Api::open().await;
    let path = there(&api, "rolebindings/b:c");
    let made = api.put(&path, to_role("b:c", "Role", "r", user("eve"))).await;
    assert_eq!(made.code, 201);
    let made = made.ok();
    assert_eq!(made["roleRef"], json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}));
    assert_eq!(made["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    api.patch(&path, MERGE, json!({"roleRef": {"name": "other"}})).await.fails(
        422,
        "RoleBinding.rbac.authorization.k8s.io \"b:c\" is invalid: roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"other\"}: cannot change roleRef",
    );
    // Typed Go clients send protobuf; the subject is User:eve, the role ClusterRole:view.
    let body = b"k8s\0\x0a+\x0a\x1crbac.authorization.k8s.io/v1\x12\x0bRoleBinding\x12\
        &\x0a\x03\x0a\x01p\x12\x0b\x0a\x04User\x1a\x03eve\x1a\x12\x12\x0bClusterRole\x1a\x03vie";
    let typed = [("content-type", "application/vnd.kubernetes.protobuf"), ("accept", JSON)];
    let made = api.send("POST", &there(&api, "rolebindings"), &typed, body.to_vec()).await.ok();
    assert_eq!(made["subjects"][0]["name"], "eve");
    let full = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "vie"});
    assert_eq!(made["roleRef"], full);
    api.patch(&path, MERGE, json!({"subjects": null})).await.ok();
    let table = api.send("GET", &path, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[0], &cells[1], &cells[3]), (&json!("b:c"), &json!("Role/r"), &json!("")));
    let bad = json!({"metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": "eve"});
    api.post(&there(&api, "rolebindings"), bad)
        .await
        .fails_with(400, "RoleBinding in version \"v1\" cannot be handled");
    let bad = json!({"metadata": {"name": "x"}, "rules": [{"verbs": "get"}]});
    api.post(&there(&api, "roles"), bad).await.fails_with(400, "Role in version \"v1\" cannot be handled");
    let bad = json!({"metadata": {"name": "x"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
    api.post(&there(&api, "roles"), bad).await.fails_with(422, "namespaced rules cannot apply to non-resource URLs");
}

#[tokio::test]
async fn nobody_gives_what_they_do_not_have() {
    let api = Api::open().await;
    let (eve, robe) = (own(&api, "eve"), own(&api, "robe"));
    let roles = there(&api, "roles");
    let bindings = there(&api, "rolebindings");
    let group = ["rbac.authorization.k8s.io"];
    api.post(&roles, role("writer", &["*"], &group, &["roles", "rolebindings"])).await.ok();
    // `*` includes `escalate` and `bind`, so this one names verbs.
    let verbs = ["get", "list", "create", "update", "patch", "delete"];
    api.put(&there(&api, "roles/writer"), role("writer", &verbs, &group, &["roles", "rolebindings"])).await.ok();
    api.post(&roles, role("reader", &["get", "list"], &[""], &["configmaps"])).await.ok();
    for name in ["writer", "reader"] {
        api.post(&bindings, to_role(name, "Role", name, user(&eve))).await.ok();
    }
    becomes(&api, &eve, &bindings, 200).await.ok();
    becomes(&api, &eve, &api.path("configmaps"), 200).await.ok();

    ask(&api, &eve, "POST", &roles, role("same", &["get"], &[""], &["configmaps"])).await.ok();
    let more = role("more", &["get", "delete", "watch"], &[""], &["configmaps", "secrets"]);
    let missing = "is attempting to grant RBAC permissions not currently held:\n\
        {APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\" \"watch\"]}\n\
        {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"delete\" \"watch\"]}";
    let who = format!("user {eve:?} (groups=[\"system:authenticated\"])");
    let text =
        |what: &str, name: &str| format!("{what}.rbac.authorization.k8s.io {name:?} is forbidden: {who} {missing}");
    ask(&api, &eve, "POST", &roles, more.clone()).await.fails(403, &text("roles", "more"));
    ask(&api, &eve, "PUT", &there(&api, "roles/more"), more.clone()).await.fails(403, &text("roles", "more"));
    let patch = json!({"rules": more["rules"]});
    ask(&api, &eve, "PATCH", &there(&api, "roles/same"), patch).await.fails(403, &text("roles", "same"));
    // Other fields of a role with too many rights may not be changed by them either, except by the garbage collector.
    api.post(&roles, more.clone()).await.ok();
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    ask(&api, &eve, "PATCH", &there(&api, "roles/more"), label).await.fails(403, &text("roles", "more"));
    let finalizers = json!({"metadata": {"finalizers": ["a.b/c"]}});
    ask(&api, &eve, "PATCH", &there(&api, "roles/more"), finalizers).await.ok();
    ask(&api, &eve, "PATCH", &there(&api, "roles/more"), json!({"metadata": {"finalizers": null}})).await.ok();

    let bound = to_role("b", "Role", "more", user(&eve));
    ask(&api, &eve, "POST", &bindings, bound.clone()).await.fails(403, &text("rolebindings", "b"));
    ask(&api, &eve, "PUT", &there(&api, "rolebindings/b"), bound.clone()).await.fails(403, &text("rolebindings", "b"));
    ask(&api, &eve, "POST", &bindings, to_role("c", "Role", "same", user("bob"))).await.ok();
    ask(&api, &eve, "POST", &bindings, to_role("d", "ClusterRole", "cluster-admin", user(&eve))).await.fails_with(
        403,
        "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}",
    );
    ask(&api, &eve, "POST", &bindings, to_role("d", "Role", "gone", user(&eve)))
        .await
        .fails(404, "rolebindings.rbac.authorization.k8s.io \"gone\" not found");
    // Not even through a role of the cluster, which they may not write.
    ask(&api, &eve, "POST", &format!("{RBAC}/clusterroles"), role(&robe, &["get"], &[""], &["configmaps"]))
        .await
        .fails_with(403, "cannot create resource \"clusterroles\"");

    let mut special = role("special", &["escalate"], &group, &["roles"]);
    let bind = json!({"verbs": ["bind"], "apiGroups": group, "resources": ["roles"], "resourceNames": ["more"]});
    special["rules"].as_array_mut().unwrap().push(bind);
    api.post(&roles, special).await.ok();
    api.post(&bindings, to_role("special", "Role", "special", user(&eve))).await.ok();
    if api.real {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    ask(&api, &eve, "POST", &roles, role("most", &["*"], &["*"], &["*"])).await.ok();
    ask(&api, &eve, "POST", &bindings, bound).await.ok();
    ask(&api, &eve, "POST", &bindings, to_role("e", "Role", "writer", user("bob"))).await.ok();
    ask(&api, &eve, "POST", &bindings, to_role("f", "Role", "most", user(&eve)))
        .await
        .fails_with(403, "not currently held");
}

#[tokio::test]
async fn roles_gather_the_rules_of_others() {
    let api = Api::open().await;
    let (all, part, label) = (own(&api, "all"), own(&api, "part"), own(&api, "is"));
    let roles = format!("{RBAC}/clusterroles");
    let selector = json!({"matchLabels": {&label: "true"}});
    // It selects itself too, but does not aggregate its own rules.
    let gathering = json!({"metadata": {"name": all, "labels": {&label: "true"}},
        "aggregationRule": {"clusterRoleSelectors": [selector]}, "rules": []});
    api.post(&roles, gathering).await.ok();
    let mut one = role(&part, &["get"], &["example.com"], &["things"]);
    one["metadata"]["labels"] = json!({&label: "true"});
    api.post(&roles, one.clone()).await.ok();
    let gathered = |answer: &Answer| answer.body["rules"] == one["rules"];
    api.until(&format!("{roles}/{all}"), gathered).await;
    // Rules that are written manually are removed again.
    api.patch(&format!("{roles}/{all}"), MERGE, json!({"rules": role("", &["*"], &["*"], &["*"])["rules"]})).await.ok();
    api.until(&format!("{roles}/{all}"), gathered).await;
    api.delete(&format!("{roles}/{part}"), Value::Null).await.ok();
    api.until(&format!("{roles}/{all}"), |a| a.body["rules"].as_array().is_none_or(Vec::is_empty)).await;

    // Aggregation can grant any right, so only an administrator may configure it.
    let eve = own(&api, "eve");
    let mut writer =
        role(&own(&api, "writer"), &["create", "update", "get"], &["rbac.authorization.k8s.io"], &["clusterroles"]);
    writer["metadata"]["name"] = json!(own(&api, "writer"));
    api.post(&roles, writer).await.ok();
    let bindings = format!("{RBAC}/clusterrolebindings");
    api.post(&bindings, to_role(&own(&api, "writer"), "ClusterRole", &own(&api, "writer"), user(&eve))).await.ok();
    becomes(&api, &eve, &format!("{roles}/{all}"), 200).await.ok();
    let gathering =
        json!({"metadata": {"name": own(&api, "new")}, "aggregationRule": {"clusterRoleSelectors": [selector]}});
    ask(&api, &eve, "POST", &roles, gathering).await.fails(
        403,
        &format!("clusterroles.rbac.authorization.k8s.io {:?} is forbidden: must have cluster-admin privileges to use the aggregationRule", own(&api, "new")),
    );
    // They may not remove it from a role either.
    ask(&api, &eve, "PUT", &format!("{roles}/{all}"), json!({"metadata": {"name": all}, "rules": []}))
        .await
        .fails_with(403, "must have cluster-admin privileges to use the aggregationRule");
    for path in [
        format!("{roles}/{all}"),
        format!("{roles}/{}", own(&api, "writer")),
        format!("{bindings}/{}", own(&api, "writer")),
    ] {
        api.delete(&path, Value::Null).await.ok();
    }
}

#[tokio::test]
async fn default_roles_are_there_and_complete_at_each_start() {
    let api = Api::open().await;
    let roles = format!("{RBAC}/clusterroles");
    let admin =
        api.until(&format!("{roles}/admin"), |a| a.body["rules"].as_array().is_some_and(|r| r.len() > 20)).await.ok();
    assert_eq!(admin["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
    let view =
        api.until(&format!("{roles}/view"), |a| a.body["rules"].as_array().is_some_and(|r| r.len() > 5)).await.ok();
    assert!(!view["rules"].to_string().contains("secrets"), "{view}");
    let nodes = api.get(&format!("{RBAC}/clusterrolebindings/system:node")).await.ok();
    assert!(nodes["subjects"].as_array().is_none_or(Vec::is_empty), "{nodes}");
    // The role `edit` is for a user in a namespace.
    let eve = own(&api, "eve");
    api.post(&there(&api, "rolebindings"), to_role("edit", "ClusterRole", "edit", user(&eve))).await.ok();
    becomes(&api, &eve, &api.path("configmaps"), 200).await.ok();
    ask(&api, &eve, "POST", &api.path("configmaps"), config("a", json!({}))).await.ok();
    assert_eq!(ask(&api, &eve, "GET", &there(&api, "roles"), Value::Null).await.code, 403);
    if api.real {
        return;
    }
    let path = |name: &str| format!("{RBAC}/clusterrolebindings/{name}");
    let everyone = api.get(&path("system:discovery")).await.ok();
    api.patch(&path("system:discovery"), MERGE, json!({"subjects": [user("bob")]})).await.ok();
    ask(&api, "eve", "GET", "/apis", Value::Null).await.fails(403, "forbidden: User \"eve\" cannot get path \"/apis\"");
    api.delete(&format!("{roles}/system:basic-user"), Value::Null).await.ok();
    api.delete(&path("system:basic-user"), Value::Null).await.ok();
    let left =
        json!({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}, "rules": []});
    api.patch(&format!("{roles}/system:kube-dns"), MERGE, left).await.ok();
    let api = api.reopen().await;
    let again = api.get(&path("system:discovery")).await.ok();
    assert_eq!(again["subjects"].as_array().unwrap().len(), 2, "{again}");
    assert_eq!(again["subjects"][1], everyone["subjects"][0]);
    ask(&api, "eve", "GET", "/apis", Value::Null).await.ok();
    api.get(&format!("{roles}/system:basic-user")).await.ok();
    api.get(&path("system:basic-user")).await.ok();
    assert_eq!(api.get(&format!("{roles}/system:kube-dns")).await.ok()["rules"], Value::Null);
    // Bindings survive the restart, and a start that finds everything up to date writes nothing.
    ask(&api, &eve, "GET", &api.path("configmaps/a"), Value::Null).await.ok();
    let before = api.get(&format!("{roles}/admin")).await.ok();
    let api = api.reopen().await;
    assert_eq!(api.get(&format!("{roles}/admin")).await.ok(), before);
}

#[tokio::test]
async fn reviews_answer_as_requests_are_decided() {
    let api = Api::open().await;
    let eve = own(&api, "eve");
    api.post(&there(&api, "roles"), role("reader", &["get", "list"], &[""], &["pods", "pods/log"])).await.ok();
    api.post(&there(&api, "rolebindings"), to_role("reader", "Role", "reader", user(&eve))).await.ok();
    becomes(&api, &eve, &api.path("pods"), 200).await.ok();
    let access = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let about = |verb: &str, subresource: &str| {
        json!({"spec": {"user": eve, "resourceAttributes": {
            "verb": verb, "resource": "pods", "subresource": subresource, "namespace": api.ns}}})
    };
    let status = api.post(access, about("get", "log")).await.ok()["status"].clone();
    let reason = format!("RBAC: allowed by RoleBinding \"reader/{}\" of Role \"reader\" to User {eve:?}", api.ns);
    assert_eq!(status, json!({"allowed": true, "reason": reason}));
    let status = api.post(access, about("get", "exec")).await.ok()["status"].clone();
    assert_eq!(status, json!({"allowed": false}));
    // A user without rights may not ask about others, but about themselves.
    ask(&api, &eve, "POST", access, about("get", ""))
        .await
        .fails_with(403, "cannot create resource \"subjectaccessreviews\"");
    let own_access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let mut mine = about("list", "");
    mine["spec"].as_object_mut().unwrap().remove("user");
    assert_eq!(ask(&api, &eve, "POST", own_access, mine).await.ok()["status"]["allowed"], true);
    let local = api.group_path("authorization.k8s.io/v1", "localsubjectaccessreviews");
    assert_eq!(api.post(&local, about("list", "")).await.ok()["status"]["allowed"], true);

    let rules = json!({"spec": {"namespace": api.ns}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let status = ask(&api, &eve, "POST", path, rules.clone()).await.ok()["status"].clone();
    assert_eq!(status["incomplete"], false);
    let mine = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]});
    assert!(status["resourceRules"].as_array().unwrap().contains(&mine), "{status}");
    assert!(status["nonResourceRules"].to_string().contains("/openapi/*"), "{status}");
    let status = api.post(path, rules).await.ok()["status"].clone();
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    assert!(status["resourceRules"].as_array().unwrap().contains(&all), "{status}");
    api.post(path, json!({"spec": {}})).await.fails(400, "no namespace on request");

    let invalid = |fields: &str| format!(".authorization.k8s.io \"\" is invalid: {fields}");
    api.post(access, json!({"spec": {}})).await.fails(422, &invalid(
        "[spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, \
         spec.user: Invalid value: \"\": at least one of user or group must be specified]",
    ));
    let both = json!({"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}, "resourceAttributes": {"verb": "get"}}});
    api.post(own_access, both).await.fails(422, &invalid(
        "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"get\"}: cannot be specified in combination with resourceAttributes",
    ));
    let mut elsewhere = about("list", "");
    elsewhere["spec"]["resourceAttributes"]["namespace"] = json!("x");
    api.post(&local, elsewhere)
        .await
        .fails(422, &invalid("spec.resourceAttributes.namespace: Invalid value: \"x\": must match metadata.namespace"));
    api.post("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {}}))
        .await
        .fails(400, "token is required for TokenReview in authentication");
}

#[tokio::test]
async fn thousands_of_bindings_hold_nobody_up() {
    let api = Api::embedded(|_| {});
    for number in 0..2000 {
        let name = format!("b{number}");
        let missing = to_role(&name, "Role", &format!("gone-{number}"), user("eve"));
        api.post(&there(&api, "rolebindings"), missing).await.ok();
    }
    let started = std::time::Instant::now();
    for _ in 0..50 {
        assert_eq!(ask(&api, "bob", "GET", &api.path("pods"), Value::Null).await.code, 403);
    }
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    // An answer names some of the missing roles.
    let body = ask(&api, "eve", "GET", &api.path("pods"), Value::Null).await.fails_with(403, ": RBAC: [role.rbac.");
    assert!(body.to_string().len() < 16 * 1024, "{}", body.to_string().len());
}

#[tokio::test]
async fn selectors_in_reviews_are_checked_and_what_cannot_be_read_is_told() {
    let api = Api::open().await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let about = |field: Value, label: Value| {
        json!({"spec": {"user": "system:node:n1", "groups": ["system:nodes"], "resourceAttributes": {
            "verb": "list", "resource": "pods", "fieldSelector": field, "labelSelector": label}}})
    };
    let node = |name: &str| json!({"key": "spec.nodeName", "operator": "In", "values": [name]});
    let newer = json!({"key": "a", "operator": "Newer"});
    for (field, allowed, told) in [
        (json!({"requirements": [node("n1")]}), true, ""),
        (json!({"requirements": [node("n2")]}), false, ""),
        (json!({"rawSelector": "spec.nodeName=n1"}), true, ""),
        (json!({"requirements": [newer, node("n1")]}), true, "partially ignored due to parse error"),
        (json!({"requirements": [newer]}), false, "fieldSelector ignored due to parse error"),
    ] {
        let status = api.post(path, about(field.clone(), Value::Null)).await.ok()["status"].clone();
        assert_eq!(status["allowed"], allowed, "{field} {status}");
        assert_eq!(status["evaluationError"].is_string(), !told.is_empty(), "{field} {status}");
        assert!(status["evaluationError"].as_str().unwrap_or_default().ends_with(told), "{field} {status}");
    }
    let wrong = json!({"requirements": [{"key": "a b", "operator": "In"}]});
    let told = api.post(path, about(Value::Null, wrong)).await.fails_with(422, "labelSelector.requirements[0].values");
    assert!(told.to_string().contains("labelSelector.requirements[0].key: Invalid value"), "{told}");
}

/// Kubernetes does not have this limit.
#[tokio::test]
async fn what_decisions_look_at_is_bounded_in_each_namespace() {
    let api = Api::embedded(|_| {});
    let admin = to_role("eve", "ClusterRole", "cluster-admin", user("eve"));
    api.post(&there(&api, "rolebindings"), admin).await.ok();
    let heavy = |name: &str| {
        let names: Vec<String> = (0..4096).map(|number| format!("n{number}")).collect();
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": names});
        json!({"metadata": {"name": name}, "rules": [rule]})
    };
    let write = async |method: &str, rest: &str, body: Value| ask(&api, "eve", method, &there(&api, rest), body).await;
    for number in 0..3 {
        write("POST", "roles", heavy(&format!("r{number}"))).await.ok();
    }
    let why = format!(
        "roles.rbac.authorization.k8s.io \"r3\" is forbidden: Roles and RoleBindings of namespace {} may have no more than \
         16384 rules, words of rules and subjects together",
        api.ns
    );
    write("POST", "roles", heavy("r3")).await.fails(403, &why);
    let users: Vec<Value> = (0..4096).map(|number| user(&format!("u{number}"))).collect();
    let mut binding = to_role("many", "Role", "r0", Value::Null);
    binding["subjects"] = users.into();
    write("POST", "rolebindings", binding).await.fails_with(403, "may have no more than");
    // Existing ones may be written again, and shrink; then there is room.
    write("PUT", "roles/r0", heavy("r0")).await.ok();
    write("PUT", "roles/r0", role("r0", &["get"], &[""], &["pods"])).await.ok();
    write("POST", "roles", heavy("r3")).await.ok();
    write("DELETE", "roles/r1", Value::Null).await.ok();
    write("POST", "roles", heavy("r1")).await.ok();
    write("POST", "roles", heavy("r4")).await.fails_with(403, "may have no more than");
}

#[tokio::test]
async fn a_certificate_and_its_groups_are_subjects() {
    let api = Api::embedded(|_| {});
    let server = api.server.clone().unwrap();
    let client = Client::new(server.service(UserInfo::new("bob", ["people"])), "default");
    let bob = Api { client, ns: api.ns.clone(), real: false, server: Some(server), dir: None };
    api.post(&there(&api, "roles"), role("reader", &["list"], &[""], &["pods"])).await.ok();
    assert_eq!(bob.get(&api.path("pods")).await.code, 403);
    let people = json!({"kind": "Group", "name": "people"});
    api.post(&there(&api, "rolebindings"), to_role("people", "Role", "reader", people)).await.ok();
    bob.get(&api.path("pods")).await.ok();
    api.delete(&there(&api, "rolebindings"), Value::Null).await.ok();
    assert_eq!(bob.get(&api.path("pods")).await.code, 403);
}

/// A user who may change objects but not create them cannot create them by a change either.
#[tokio::test]
async fn what_is_changed_into_being_needs_the_right_to_create() {
    let api = Api::open().await;
    let changer = own(&api, "changer");
    let mut rights = role("changer", &["get", "patch", "update"], &["", "rbac.authorization.k8s.io"], &["configmaps"]);
    rights["rules"][0]["resources"] = json!(["configmaps", "services", "endpoints"]);
    api.post(&there(&api, "roles"), rights).await.ok();
    api.post(&there(&api, "rolebindings"), to_role("changer", "Role", "changer", user(&changer))).await.ok();
    becomes(&api, &changer, &api.path("configmaps/none"), 404).await;
    let applied = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"},"data":{"a":"1"}}"#.to_vec();
    let headers = [("impersonate-user", changer.as_str()), ("content-type", crate::harness::APPLY)];
    for query in ["fieldManager=t", "fieldManager=t&dryRun=All"] {
        let path = format!("{}?{query}", api.path("configmaps/new"));
        let refused = api.send("PATCH", &path, &headers, applied.clone()).await;
        refused.fails_with(403, "cannot create resource \"configmaps\" in API group \"\" in the namespace");
    }
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "new"}});
    let refused = ask(&api, &changer, "PUT", &api.path("endpoints/new"), endpoints).await;
    refused.fails_with(403, "cannot create resource \"endpoints\" in API group \"\" in the namespace");
    api.get(&api.path("configmaps/new")).await.fails_with(404, "not found");
    // It may change existing objects.
    api.post(&api.path("configmaps"), json!({"metadata": {"name": "new"}})).await.ok();
    let path = format!("{}?fieldManager=t", api.path("configmaps/new"));
    api.send("PATCH", &path, &headers, applied).await.ok();
}
