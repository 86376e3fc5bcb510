//! Authorization: impersonation and the texts of refusals.

use serde_json::json;

use crate::harness::{Answer, Api, JSON};

async fn as_user(api: &Api, method: &str, path: &str, user: &str, body: &str) -> Answer {
    api.send(method, path, &[("impersonate-user", user), ("content-type", JSON)], body.into()).await
}

#[tokio::test]
async fn strangers_may_look_at_nothing() {
    let api = Api::open().await;
    let ns = &api.ns;
    as_user(&api, "GET", &api.path("pods"), "eve", "").await.fails(
        403,
        &format!(
            "pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"{ns}\""
        ),
    );
    let body = as_user(&api, "GET", &api.path("pods/x/log"), "eve", "").await.fails(
        403,
        &format!("pods \"x\" is forbidden: User \"eve\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"{ns}\""),
    );
    assert_eq!(body["details"], json!({"name": "x", "kind": "pods"}));
    as_user(&api, "GET", "/api/v1/nodes", "eve", "").await.fails(
        403,
        "nodes is forbidden: User \"eve\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
    );
    as_user(&api, "DELETE", &api.group_path("coordination.k8s.io/v1", "leases"), "eve", "").await.fails(
        403,
        &format!("leases.coordination.k8s.io is forbidden: User \"eve\" cannot deletecollection resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"{ns}\""),
    );
    as_user(&api, "GET", "/frob", "eve", "").await.fails(403, "forbidden: User \"eve\" cannot get path \"/frob\"");
    for path in ["/version", "/api", "/apis", "/healthz"] {
        assert_eq!(as_user(&api, "GET", path, "eve", "").await.code, 200, "{path}");
    }
}

#[tokio::test]
async fn reviews() {
    let api = Api::open().await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": api.ns}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(api.post(path, review.clone()).await.ok()["status"]["allowed"], true);
    assert_eq!(as_user(&api, "POST", path, "eve", &review.to_string()).await.ok()["status"]["allowed"], false);
    let mut about = review;
    about["spec"]["user"] = json!("eve");
    let answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", about).await.ok();
    assert_eq!(answer["status"]["allowed"], false);
    let me = as_user(&api, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "eve", "{}").await.ok();
    assert_eq!((&me["kind"], &me["apiVersion"]), (&json!("SelfSubjectReview"), &json!("authentication.k8s.io/v1")));
    assert_eq!(me["status"]["userInfo"]["username"], "eve");
    assert_eq!(me["status"]["userInfo"]["groups"], json!(["system:authenticated"]));
}

#[tokio::test]
async fn only_masters_impersonate() {
    let api = Api::embedded(|_| {});
    let server = api.server.clone().unwrap();
    let eve = apimachinery::user::UserInfo::new("eve", ["people"]);
    let client = kube::Client::new(server.service(eve), "default");
    let request = http::Request::get("/api/v1/pods").header("impersonate-user", "admin").body(Vec::new()).unwrap();
    let error = client.request::<serde_json::Value>(request).await.unwrap_err().to_string();
    assert!(error.contains("User \"eve\" cannot impersonate-on:user-info:list resource \"pods\""), "{error}");
}

async fn post_as(api: &Api, path: &str, headers: &[(&str, &str)]) -> Answer {
    let typed = [("content-type", JSON)];
    api.send("POST", path, &[headers, &typed].concat(), b"{}".to_vec()).await
}

#[tokio::test]
async fn who_may_act_as_somebody_has_what_that_one_has() {
    let api = Api::open().await;
    let name = |name: &str| format!("{name}-{}", api.ns);
    let (eve, bob) = (name("eve"), name("bob"));
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let rules = json!([
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": [bob]},
        {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["people"]},
        {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"]},
    ]);
    api.post(roles, json!({"metadata": {"name": eve}, "rules": rules})).await.ok();
    let to_eve = json!({"metadata": {"name": eve}, "roleRef": {"kind": "ClusterRole", "name": eve},
        "subjects": [{"kind": "User", "name": eve}]});
    api.post(bindings, to_eve).await.ok();
    if api.real {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    // Requests of Eve herself: a user who impersonates Eve cannot impersonate another user with Eve's rights.
    let Some(server) = api.server.clone() else { return };
    let user = apimachinery::user::UserInfo::new(&eve, ["x"]);
    let client = kube::Client::new(server.service(user), "default");
    let eves = Api { client, ns: api.ns.clone(), real: false, server: Some(server), dir: None };
    let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let whole =
        [("impersonate-user", bob.as_str()), ("impersonate-group", "people"), ("impersonate-extra-scopes", "view")];
    let acting = post_as(&eves, review, &whole);
    let info = acting.await.ok()["status"]["userInfo"].clone();
    assert_eq!(
        info,
        json!({"username": bob, "groups": ["people", "system:authenticated"], "extra": {"scopes": ["view"]}})
    );
    for headers in [
        vec![("impersonate-user", "admin")],
        vec![("impersonate-user", bob.as_str()), ("impersonate-group", "system:masters")],
        vec![("impersonate-user", bob.as_str()), ("impersonate-uid", "7")],
        vec![("impersonate-user", "system:node:n1"), ("impersonate-group", "system:nodes")],
    ] {
        assert_eq!(post_as(&eves, review, &headers).await.code, 403, "{headers:?}");
    }
    post_as(&eves, review, &[("impersonate-group", "people")])
        .await
        .fails_with(400, "without impersonating a user name");
    // Bob's rights apply, not Eve's.
    let pods = eves.send("GET", &api.path("pods"), &[("impersonate-user", bob.as_str())], Vec::new()).await;
    pods.fails_with(403, &format!("User {bob:?} cannot list resource"));
}
