//! Who may do what: impersonation and the texts of refusal.

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
    assert!(error.contains("User \"eve\" cannot impersonate resource \"users\""), "{error}");
}
