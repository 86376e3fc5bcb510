//! NetworkPolicies are stored for nodes; Ingresses and their classes are stored unchanged, with a warning that nothing
//! enforces them.

use serde_json::{Value, json};

use crate::harness::{Answer, Api, MERGE, TABLE};

const CLASSES: &str = "/apis/networking.k8s.io/v1/ingressclasses";

/// Checks the warning that nothing enforces the object. On a real cluster a controller may enforce it.
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

const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

/// The embedded API with a range for Services.
fn with_services() -> Api {
    Api::embedded(|config| config.services = Some(apiserver::ServiceRange::parse("10.96.0.0/29").unwrap()))
}

fn service(name: &str, ip: &str) -> Value {
    let spec = json!({"clusterIP": ip, "ports": [{"port": 80}]});
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

#[tokio::test]
async fn services_get_addresses_of_every_range_that_stays() {
    let api = with_services();
    let own = api.get(&format!("{RANGES}/kubernetes")).await.ok();
    assert_eq!(own["spec"]["cidrs"], json!(["10.96.0.0/29"]));
    let kept = api.delete(&format!("{RANGES}/kubernetes"), Value::Null).await;
    kept.fails_with(403, "this servicecidr may not be deleted");
    let services = api.path("services");
    let asked = api.post(&services, service("a", "203.0.113.10")).await;
    asked.fails_with(422, "the provided IP is not in the valid range");
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["203.0.113.0/24"]}});
    let more = api.post(RANGES, more).await.ok();
    assert_eq!(more["status"]["conditions"][0]["status"], "True", "{more}");
    api.post(&services, service("a", "203.0.113.10")).await.ok();
    // Addresses that the first range does not have come from the second.
    for name in ["b", "c", "d", "e", "f"] {
        api.post(&services, service(name, "")).await.ok();
    }
    let last = api.post(&services, service("g", "")).await.ok();
    assert!(last["spec"]["clusterIP"].as_str().unwrap().starts_with("203.0.113."), "{last}");
    let path = format!("{RANGES}/more");
    api.delete(&path, Value::Null).await.ok();
    api.until(&path, |answer| answer.body["status"]["conditions"][0]["reason"] == "Terminating").await;
    api.post(&services, service("h", "")).await.fails_with(500, "range is full");
    for name in ["a", "g"] {
        api.delete(&api.path(&format!("services/{name}")), Value::Null).await.ok();
    }
    api.until(&path, |answer| answer.code == 404).await;
}

#[tokio::test]
async fn an_address_that_somebody_else_has_is_given_to_no_service() {
    let api = with_services();
    let of = |name: &str| {
        let parent = json!({"group": "example.com", "resource": "routers", "name": "r"});
        json!({"metadata": {"name": name}, "spec": {"parentRef": parent}})
    };
    api.post(ADDRESSES, of("10.96.00.2")).await.fails_with(422, "must be a valid IP address");
    api.post(ADDRESSES, of("10.96.0.2")).await.ok();
    api.post(ADDRESSES, of("fe80::42:1dff:fe84:f9e2")).await.ok();
    let services = api.path("services");
    api.post(&services, service("a", "10.96.0.2")).await.fails_with(422, "provided IP is already allocated");
    for name in ["b", "c", "d", "e"] {
        let made = api.post(&services, service(name, "")).await.ok();
        assert_ne!(made["spec"]["clusterIP"], "10.96.0.2");
    }
    api.post(&services, service("f", "")).await.fails_with(500, "range is full");
    let moved = json!({"spec": {"parentRef": {"name": "other"}}});
    api.patch(&format!("{ADDRESSES}/10.96.0.2"), MERGE, moved).await.fails_with(422, "field is immutable");
    let table = api.send("GET", ADDRESSES, &[("accept", TABLE)], Vec::new()).await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["10.96.0.2", "routers.example.com/r"]));
    api.delete(&format!("{ADDRESSES}/10.96.0.2"), Value::Null).await.ok();
    api.post(&services, service("f", "")).await.ok();
}
