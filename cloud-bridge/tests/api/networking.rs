//! NetworkPolicies are kept for nodes; Ingresses and their classes as they are, and whoever writes one is told that nothing acts
//! on it.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, MERGE, TABLE};

const CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";

/// On a cluster somebody may well act on it.
fn told(api: &Api, answer: &Answer, kind: &str) {
    let warning = format!("\"{kind} is stored; nothing enforces it here\"");
    assert!(api.real || answer.warnings.contains(&warning), "{:?}", answer.warnings);
}

#[tokio::test]
async fn a_policy_is_kept_and_nobody_is_warned() {
    let api = Api::open().await;
    let all = api.group_path("networking.k8s.io/v1", "networkpolicies");
    let policy = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {"matchLabels": {"a": "1"}},
        "ingress": [{"ports": [{"port": 80}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}});
    let made = api.post(&all, policy.clone()).await;
    assert!(made.warnings.is_empty(), "{:?}", made.warnings);
    let made = made.ok();
    assert_eq!((&made["metadata"]["generation"], &made["spec"]["policyTypes"]), (&json!(1), &json!(["Ingress"])));
    assert_eq!(made["spec"]["ingress"][0]["ports"], json!([{"port": 80, "protocol": "TCP"}]));
    let path = format!("{all}/p");
    let changed = api.patch(&path, MERGE, json!({"spec": {"policyTypes": ["Egress"]}})).await;
    assert!(changed.warnings.is_empty(), "{:?}", changed.warnings);
    assert_eq!(changed.ok()["metadata"]["generation"], 2);
    let wrong = json!({"spec": {"ingress": [{"from": [{}]}]}});
    api.patch(&path, MERGE, wrong)
        .await
        .fails_with(422, "spec.ingress[0].from[0]: Required value: must specify a peer");
    for spec in
        [json!([]), json!({"ingress": {}}), json!({"podSelector": 1}), json!({"egress": [{"ports": [{"port": {}}]}]})]
    {
        let body = json!({"metadata": {"name": "w"}, "spec": spec});
        assert_eq!(api.post(&all, body.clone()).await.code, 400, "{body}");
    }
    let table = api.send("GET", &path, &[("accept", TABLE)], Vec::new()).await.ok();
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..2], [json!("p"), json!("a=1")]);
}

#[tokio::test]
async fn an_ingress_is_kept_and_its_writers_are_warned() {
    let api = Api::open().await;
    let name = format!("{}-class", api.ns);
    let class = json!({"metadata": {"name": name}, "spec": {"controller": "sampan.dev/none"}});
    let made = api.post(CLASSES, class).await;
    told(&api, &made, "IngressClass");
    made.ok();
    let moved = json!({"spec": {"controller": "sampan.dev/other"}});
    api.patch(&format!("{CLASSES}/{name}"), MERGE, moved).await.fails_with(422, "spec.controller: Invalid value");
    let all = api.group_path("networking.k8s.io/v1", "ingresses");
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let rule =
        json!({"host": "a.example", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}});
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"ingressClassName": name, "rules": [rule]},
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}});
    let made = api.post(&all, ingress).await;
    told(&api, &made, "Ingress");
    assert_eq!(made.ok()["status"], json!({"loadBalancer": {}}));
    let path = format!("{all}/i");
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}});
    api.patch(&format!("{path}/status"), MERGE, status).await.ok();
    let table = api.send("GET", &path, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..5], [json!("i"), json!(name), json!("a.example"), json!("10.0.0.1"), json!("80")]);
    let nowhere = api.patch(&path, MERGE, json!({"spec": {"rules": null}})).await;
    nowhere.fails_with(422, "either `defaultBackend` or `rules` must be specified");
    for spec in
        [json!({"rules": {}}), json!({"tls": [1]}), json!({"rules": [{"http": []}]}), json!({"ingressClassName": 1})]
    {
        let body = json!({"metadata": {"name": "w"}, "spec": spec});
        assert_eq!(api.post(&all, body.clone()).await.code, 400, "{body}");
    }
    let gone = api.delete(&format!("{CLASSES}/{name}"), Value::Null).await.ok();
    assert_eq!(gone["kind"], "Status");
}
