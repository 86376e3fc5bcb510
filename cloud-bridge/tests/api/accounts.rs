//! Service accounts: tokens, their users, and what pods and namespaces get for them; addresses and ports of Services.

use std::sync::Arc;

use apiserver::{Accounts, Config, ServiceRange};
use serde_json::{Value, json};

use crate::harness::{Answer, Api, JSON, MERGE};

fn api() -> Api {
    Api::embedded(|config: &mut Config| {
        let key = Accounts::new_key().unwrap();
        config.accounts = Some(Arc::new(Accounts::new(&key, "the authority\n".into()).unwrap()));
        config.services = Some(ServiceRange::parse("10.96.0.0/28").unwrap());
    })
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}})
}

async fn as_node(api: &Api, path: &str, body: Value) -> Answer {
    let headers =
        [("impersonate-user", "system:node:n1"), ("impersonate-group", "system:nodes"), ("content-type", JSON)];
    api.send("POST", path, &headers, body.to_string().into()).await
}

fn request(pod: &Value) -> Value {
    json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": {"apiVersion": "v1", "kind": "Pod",
        "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}}})
}

async fn review(api: &Api, token: &str, audiences: Value) -> Value {
    let body = json!({"spec": {"token": token, "audiences": audiences}});
    api.post("/apis/authentication.k8s.io/v1/tokenreviews", body).await.ok()["status"].clone()
}

#[tokio::test]
async fn a_pod_gets_an_account_and_its_token_dies_with_it() {
    let api = api();
    let root = api.get(&api.path("configmaps/kube-root-ca.crt")).await.ok();
    assert_eq!(root["data"]["ca.crt"], "the authority\n");
    api.delete(&api.path("configmaps/kube-root-ca.crt"), Value::Null).await.ok();
    api.get(&api.path("configmaps/kube-root-ca.crt")).await.ok();

    let mut bound = pod("p");
    bound["spec"]["nodeName"] = json!("n1");
    let made = api.post(&api.path("pods"), bound).await.ok();
    let volume = &made["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{volume}");
    let mount = &made["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!((&mount["name"], &mount["readOnly"]), (&volume["name"], &json!(true)));
    let mut declined = pod("q");
    declined["spec"]["automountServiceAccountToken"] = json!(false);
    declined["spec"]["nodeName"] = json!("n2");
    let declined = api.post(&api.path("pods"), declined).await.ok();
    assert!(declined["spec"]["volumes"].is_null(), "{declined}");

    let path = api.path("serviceaccounts/default/token");
    let issued = as_node(&api, &path, request(&made)).await.ok();
    assert_eq!(issued["spec"]["expirationSeconds"], 3607);
    let token = issued["status"]["token"].as_str().unwrap().to_owned();
    let status = review(&api, &token, json!([])).await;
    assert_eq!(status["authenticated"], true, "{status}");
    let user = &status["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    assert_eq!(
        user["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(review(&api, &token, json!(["vault"])).await["authenticated"], Value::Null);
    assert_eq!(review(&api, &format!("{token}x"), json!([])).await["authenticated"], Value::Null);

    // Requests that a node may not make.
    as_node(&api, &path, json!({"spec": {}})).await.fails_with(403, "node requested token not bound to a pod");
    as_node(&api, &path, request(&declined)).await.fails_with(403, "scheduled on a different node");
    let mut other = request(&made);
    other["spec"]["audiences"] = json!(["vault"]);
    as_node(&api, &path, other).await.fails_with(403, "audience \"vault\" not found in pod spec volume");
    api.post(&api.path("serviceaccounts"), json!({"metadata": {"name": "robot"}})).await.ok();
    as_node(&api, &api.path("serviceaccounts/robot/token"), request(&made))
        .await
        .fails_with(403, "no relationship found between node 'n1' and this object");
    api.post(&path, json!({"spec": {"expirationSeconds": 60}})).await.fails_with(422, "less than 10 minutes");
    let mut wrong = request(&made);
    wrong["spec"]["boundObjectRef"]["uid"] = json!("u");
    api.post(&path, wrong).await.fails_with(409, "does not match the UID in record");

    // A token for an audience that the pod names is valid only for that audience.
    let mut vault = pod("v");
    vault["spec"]["nodeName"] = json!("n1");
    vault["spec"]["volumes"] = json!([{"name": "t", "projected": {"sources": [
        {"serviceAccountToken": {"path": "t", "audience": "vault"}}]}}]);
    let vault = api.post(&api.path("pods"), vault).await.ok();
    let mut asked = request(&vault);
    asked["spec"]["audiences"] = json!(["vault"]);
    let issued = as_node(&api, &path, asked).await.ok();
    let for_vault = issued["status"]["token"].as_str().unwrap();
    assert_eq!(review(&api, for_vault, json!(["vault", "x"])).await["audiences"], json!(["vault"]));
    assert_eq!(review(&api, for_vault, json!([])).await["authenticated"], Value::Null);

    // So is one that the CSI driver of a volume asks for.
    let requests = json!([{"audience": "bank"}]);
    let driver = json!({"metadata": {"name": "d.example.com"},
        "spec": {"volumeLifecycleModes": ["Ephemeral"], "tokenRequests": requests}});
    api.post("/apis/storage.k8s.io/v1/csidrivers", driver).await.ok();
    let mut inline = pod("inline");
    inline["spec"]["nodeName"] = json!("n1");
    inline["spec"]["volumes"] = json!([{"name": "v", "csi": {"driver": "d.example.com"}}]);
    let inline = api.post(&api.path("pods"), inline).await.ok();
    let mut asked = request(&inline);
    asked["spec"]["audiences"] = json!(["bank"]);
    as_node(&api, &path, asked.clone()).await.ok();
    asked["spec"]["audiences"] = json!(["vault"]);
    as_node(&api, &path, asked).await.fails_with(403, "audience \"vault\" not found in pod spec volume");

    api.delete(&api.path("pods/p"), json!({"gracePeriodSeconds": 0})).await.ok();
    assert_eq!(review(&api, &token, json!([])).await["authenticated"], Value::Null);
}

#[tokio::test]
async fn services_get_addresses_of_the_range_once() {
    let api = api();
    assert_eq!(api.get(&api.path("services/kubernetes")).await.ok()["spec"]["clusterIP"], "10.96.0.1");
    let service = |name: &str, spec: Value| {
        let mut object = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        object
    };
    let path = api.path("services");
    let web = api.post(&path, service("web", json!({}))).await.ok();
    let address = web["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert!(address.starts_with("10.96.0."), "{address}");
    assert_eq!(web["spec"]["clusterIPs"], json!([address]));
    // The Service keeps its address, whichever of the two fields differs.
    for (changed, why) in [
        (
            json!({"clusterIPs": ["10.96.0.1"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.1\"]: first value must match",
        ),
        (
            json!({"clusterIP": "10.96.0.1"}),
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.1\"]: may not change once set",
        ),
        (
            json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"]}),
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.1\"]: may not change once set",
        ),
    ] {
        let refused = api.patch(&format!("{path}/web"), MERGE, json!({"spec": changed})).await;
        refused.fails_with(422, why);
    }
    let headless = api.post(&path, service("headless", json!({"clusterIP": "None"}))).await.ok();
    assert_eq!(headless["spec"]["clusterIP"], "None");
    let outside = service("outside", json!({"type": "ExternalName", "externalName": "a.b"}));
    assert!(api.post(&path, outside).await.ok()["spec"]["clusterIP"].is_null());
    api.post(&path, service("same", json!({"clusterIP": address})))
        .await
        .fails_with(422, "provided IP is already allocated");
    api.post(&path, service("far", json!({"clusterIP": "10.97.0.3"})))
        .await
        .fails_with(422, "the provided IP is not in the valid range");
    api.delete(&api.path("services/web"), Value::Null).await.ok();
    api.post(&path, service("same", json!({"clusterIP": address}))).await.ok();
    let mut replaced = service("same", json!({"ports": [{"port": 81}]}));
    replaced["metadata"]["resourceVersion"] =
        api.get(&format!("{path}/same")).await.ok()["metadata"]["resourceVersion"].clone();
    let replaced = api.put(&format!("{path}/same"), replaced).await.ok();
    assert_eq!(replaced["spec"]["clusterIP"], address, "`kubectl replace` of a manifest that names none");
    assert_eq!(replaced["spec"]["ports"][0]["port"], 81);
    // A Service of type ExternalName has no address, and gets one with its next type.
    let change = json!({"spec": {"type": "ExternalName", "externalName": "a.b"}});
    let named = api.patch(&format!("{path}/same"), MERGE, change).await.ok();
    assert!(named["spec"]["clusterIP"].is_null() && named["spec"]["ipFamilies"].is_null(), "{named}");
    let change = json!({"spec": {"type": "ClusterIP", "externalName": null}});
    let back = api.patch(&format!("{path}/same"), MERGE, change).await.ok();
    assert!(back["spec"]["clusterIP"].as_str().is_some_and(|ip| ip.starts_with("10.96.0.")), "{back}");
    for number in 0..12 {
        api.post(&path, service(&format!("more-{number}"), json!({}))).await.ok();
    }
    api.post(&path, service("one-more", json!({}))).await.fails_with(500, "range is full");
}

/// K8s test/e2e/network/service.go: "should prevent NodePort collisions", "should release NodePorts on delete".
#[tokio::test]
async fn node_ports_are_given_kept_refused_and_given_back() {
    let api = api();
    let all = api.path("services");
    let service = |name: &str, kind: &str, ports: Value| json!({"metadata": {"name": name}, "spec": {"type": kind, "selector": {"a": "b"}, "ports": ports}});
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let made = api.post(&all, service("given", "NodePort", ports)).await.ok();
    let of = |service: &Value, index: usize| service["spec"]["ports"][index]["nodePort"].as_i64();
    let (first, second) = (of(&made, 0).unwrap(), of(&made, 1).unwrap());
    assert!([first, second].iter().all(|port| (30_000..=32_767).contains(port)) && first != second, "{made}");
    // Fields that a manifest omits stay.
    let version = &made["metadata"]["resourceVersion"];
    let mut again = service("given", "NodePort", json!([{"name": "a", "port": 80}]));
    again["metadata"]["resourceVersion"] = version.clone();
    let path = format!("{all}/given");
    assert_eq!(of(&api.put(&path, again).await.ok(), 0), Some(first));
    let taken = json!([{"port": 80, "nodePort": first}]);
    let refused = api.post(&all, service("taken", "NodePort", taken.clone())).await;
    refused.fails_with(422, "spec.ports[0].nodePort: Invalid value: ");
    let udp = json!([{"port": 80, "nodePort": first, "protocol": "UDP"}]);
    assert_eq!(of(&api.post(&all, service("other-protocol", "NodePort", udp)).await.ok(), 0), Some(first));
    let outside = api.post(&all, service("outside", "NodePort", json!([{"port": 80, "nodePort": 80}]))).await;
    outside.fails_with(422, "provided port is not in the valid range. The range of valid ports is 30000-32767");
    // The new type does not need it, so another Service may get it.
    let changed = api.patch(&path, MERGE, json!({"spec": {"type": "ClusterIP"}})).await.ok();
    assert_eq!(of(&changed, 0), None, "{changed}");
    assert_eq!(of(&api.post(&all, service("taken", "NodePort", taken)).await.ok(), 0), Some(first));
    let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let changed = api.patch(&path, MERGE, json!({ "spec": balancer })).await.ok();
    let (port, check) = (of(&changed, 0), changed["spec"]["healthCheckNodePort"].as_i64());
    assert!(port.is_some() && check.is_some() && port != check, "{changed}");
}

#[tokio::test]
async fn issuer_of_tokens_and_its_keys_are_published() {
    let api = api();
    let at_host = [("host", "api.example.com:6443")];
    let issuer = api.send("GET", "/.well-known/openid-configuration", &at_host, Vec::new()).await.ok();
    assert_eq!(issuer["issuer"], "https://kubernetes.default.svc.cluster.local");
    assert_eq!(issuer["jwks_uri"], "https://api.example.com:6443/openid/v1/jwks");
    let (code, kind, keys) = api.raw("GET", "/openid/v1/jwks", &[], Vec::new()).await;
    assert_eq!((code, kind.as_str()), (200, "application/jwk-set+json"));
    let keys: Value = serde_json::from_slice(&keys).unwrap();
    assert!(keys["keys"][0]["kty"].is_string(), "{keys}");
}
