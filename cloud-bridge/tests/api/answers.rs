//! Additional parts of answers: warnings, and the managers of fields.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, MERGE, config, pod};

#[tokio::test]
async fn warnings_come_with_a_refusal_too() {
    let api = Api::open().await;
    let mut wrong = pod("p");
    wrong["spec"]["containers"][0]["imagee"] = json!("x");
    wrong["spec"]["containers"][0]["name"] = json!("Not a name");
    let refused = api.post(&api.path("pods"), wrong).await;
    assert_eq!(refused.code, 422, "{refused:?}");
    assert!(refused.warnings.iter().any(|text| text.contains("spec.containers[0].imagee")), "{refused:?}");
}

#[tokio::test]
async fn changes_are_warned_of_as_new_objects_are() {
    let api = Api::open().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "sessionAffinity": "ClientIP",
        "ports": [{"port": 80}]}});
    let told = |answer: &Answer, what: &str| answer.warnings.iter().any(|text| text.contains(what));
    let what = "spec.SessionAffinity is ignored for headless services";
    let made = api.post(&api.path("services"), service).await;
    assert!(told(&made, what), "{made:?}");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let changed = api.patch(&api.path("services/s"), MERGE, patch).await;
    assert!(told(&changed, what), "{changed:?}");
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1500m"}}}});
    let claim = api.post(&api.path("persistentvolumeclaims"), claim).await;
    assert!(told(&claim, "fractional byte value"), "{claim:?}");
}

#[tokio::test]
async fn clients_of_the_process_are_named_in_managed_fields() {
    let api = Api::embedded(|_| {});
    let server = api.server.clone().unwrap();
    let service = server.service(apimachinery::user::UserInfo::master("cloud-bridge")).named("kube-controller-manager");
    let named = Api {
        client: kube::Client::new(service, "default"),
        ns: "default".into(),
        real: false,
        server: None,
        dir: None,
    };
    let manager = |object: Value| object["metadata"]["managedFields"][0]["manager"].clone();
    let made = named.post("/api/v1/namespaces/default/configmaps", config("a", json!({}))).await.ok();
    assert_eq!(manager(made), "kube-controller-manager");
    let headers = [("content-type", "application/json"), ("user-agent", "tool/1.0 (x)")];
    let body = config("b", json!({})).to_string().into();
    let made = named.send("POST", "/api/v1/namespaces/default/configmaps", &headers, body).await.ok();
    assert_eq!(manager(made), "tool");
}
