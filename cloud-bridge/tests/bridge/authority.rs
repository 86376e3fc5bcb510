//! A hostile node: it has a valid certificate, speaks the protocol, and requests objects of others.

use async_tungstenite::tungstenite::Message;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::{Report, TokenAnswer, TokenRequest};
use http::{Method, Request};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::fixture::{Cluster, TestBridge, force_delete, gone, node_object, running, status, unique};
use crate::support::{Edge, Identity, Store, ask, get, tls};

/// A pod of the victim that names a secret and wants a token.
async fn victims_pod(cluster: &Cluster, name: &str, node: &str, secret: &str) -> k8s_openapi::api::core::v1::Pod {
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "default");
    let object = json!({"metadata": {"name": secret}, "stringData": {"key": "value"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}});
    let volumes = json!([
        {"name": "s", "secret": {"secretName": secret}},
        {"name": "t", "projected": {"sources": [token]}}
    ]);
    cluster.create_pod(name, node, json!({ "volumes": volumes })).await
}

#[tokio::test]
async fn g27_a_hostile_node_gets_and_writes_only_its_own() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (evil, victim, pod_name, secret) = (unique("evil"), unique("victim"), unique("theirs"), unique("secret"));
    let (_, mut owner) = bridge.edge(&cluster, &victim).await;
    let pod = victims_pod(&cluster, &pod_name, &victim, &secret).await;
    owner.until("the secret of its pod", |edge| edge.object("Secret", "default", &secret).is_some()).await;

    let (identity, mut edge) = bridge.edge(&cluster, &evil).await;
    // Reports about others: each is refused with a reason, and nothing of it is in the API.
    let mut other_node = node_object(&victim);
    other_node["status"]["conditions"] = json!([]);
    let mut restricted = node_object(&evil);
    restricted["metadata"]["labels"]["node-restriction.kubernetes.io/zone"] = "vault".into();
    let mut nameless = node_object(&evil);
    nameless["status"]["nodeInfo"]["kubeletVersion"] = "".into();
    let event = |kind: &str, namespace: &str, name: &str| {
        let involved = json!({"kind": kind, "namespace": namespace, "name": name, "uid": "u", "apiVersion": "v1"});
        Report::Event {
            event: json!({"metadata": {"name": format!("{name}.{}", unique("e")), "namespace": "default"},
                "involvedObject": involved, "reason": "Lie", "message": "a lie", "type": "Warning",
                "source": {"component": "kubelet", "host": victim}, "count": 1}),
        }
    };
    let Report::Event { event: mut elsewhere } = event("Node", "", &evil) else { unreachable!() };
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    let uid = pod.uid().unwrap();
    let mirror = |node: &str| {
        json!({"metadata": {"name": unique("mirror"), "namespace": "default",
                "annotations": {"kubernetes.io/config.hash": "h"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "busybox"}]}})
    };
    let matrix = [
        ("status of another's pod", status(&pod, running())),
        ("end of another's pod", gone(&pod)),
        ("status of another node", Report::Node { node: other_node }),
        ("event about another's pod", event("Pod", "default", &pod_name)),
        ("event about a pod that nobody has", event("Pod", "default", &unique("bank"))),
        ("event about another node", event("Node", "", &victim)),
        ("event about another's secret", event("Secret", "default", &secret)),
        ("event in another namespace than its object", Report::Event { event: elsewhere }),
        ("itself without a kubelet's version, as if it were new", Report::Node { node: nameless }),
        ("mirror on another node", Report::MirrorPod { pod: mirror(&victim) }),
    ];
    for (what, report) in matrix {
        let refused = edge.report_and_wait(report).await;
        // A mirror always gets the name of the reporting node.
        if what != "mirror on another node" {
            assert!(refused.is_err(), "{what} was accepted");
        }
    }
    edge.report_and_wait(Report::Node { node: restricted }).await.unwrap();
    let own = cluster.nodes().get(&evil).await.unwrap();
    assert!(!own.labels().contains_key("node-restriction.kubernetes.io/zone"), "the label is left out");
    let end_of_mirror =
        Report::MirrorGone { namespace: "default".into(), name: pod_name.clone(), static_uid: "x".into() };
    assert!(edge.report_and_wait(end_of_mirror).await.is_err(), "end of another's mirror");
    let now = cluster.pods().get(&pod_name).await.unwrap();
    assert_eq!(now.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Pending"));
    assert!(now.metadata.deletion_timestamp.is_none());
    let ready = cluster.nodes().get(&victim).await.unwrap().status.unwrap().conditions.unwrap();
    assert!(ready.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"));
    let mirrors = cluster.pods().list(&Default::default()).await.unwrap();
    let on_victim = mirrors.iter().filter(|p| p.spec.as_ref().unwrap().node_name.as_deref() == Some(&victim));
    assert_eq!(on_victim.map(ResourceExt::name_any).collect::<Vec<_>>(), std::slice::from_ref(&pod_name));

    // A token for another's pod.
    let request = TokenRequest {
        namespace: "default".into(),
        pod: pod_name.clone(),
        uid,
        audience: String::new(),
        expiration_seconds: 3600,
    };
    assert!(edge.session.request_token(1, request));
    edge.until("an answer about a token", |edge| !edge.tokens.is_empty()).await;
    assert!(matches!(&edge.tokens[0], TokenAnswer::Refused { .. }), "{:?}", edge.tokens);

    // Requests for another node's objects: by name in the list, by claiming to hold them, by streams that were not
    // opened.
    let key = json!({"kind": "Secret", "namespace": "default", "name": secret});
    let mut unlisted = key.clone();
    (unlisted["uid"], unlisted["digest"]) = ("u".into(), "d".into());
    for frame in [
        json!({"need": {"keys": [key], "done": true}}),
        json!({"unlisted": {"objects": [unlisted]}}),
        json!({"nack": {"object": {"kind": "Secret", "namespace": "default", "name": secret, "uid": "u"}, "reason": "x"}}),
        json!({"streamData": {"stream": 7, "data": "aGVsbG8="}}),
        json!({"streamCredit": {"stream": 7, "bytes": 9}}),
        json!({"hello": {"protocol": {"min": 1, "max": 1}, "node": victim, "bootId": "b"}}),
    ] {
        let mut other = bridge.connect(&identity, Store::default()).await;
        other.until("the first list", |edge| edge.synced).await;
        other.send_raw(Message::text(frame.to_string())).await;
        for _ in 0..10 {
            if other.step(Duration::from_millis(30)).await.is_err() {
                break;
            }
        }
        assert!(other.object("Secret", "default", &secret).is_none(), "{frame}");
        assert!(other.object("Pod", "default", &pod_name).is_none(), "{frame}");
    }
    // Another's name in the hello.
    let mut liar = Edge::connect(bridge.address, &identity, &victim, Store::default()).await.unwrap();
    assert!(liar.until_ended().await.contains("WrongNode"));
    // The victim was not affected.
    owner.linger(Duration::from_millis(100)).await;
    force_delete(&cluster.pods(), &pod_name).await;
    for node in [evil, victim] {
        drop(cluster.nodes().delete(&node, &DeleteParams::default()).await);
    }
}

/// The node made up a mirror pod, so naming an object in it gives no right to that object.
#[tokio::test]
async fn g27_a_mirror_pod_is_no_way_to_what_other_pods_name() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (evil, victim, pod_name, secret) = (unique("evil"), unique("victim"), unique("theirs"), unique("secret"));
    let (_, mut owner) = bridge.edge(&cluster, &victim).await;
    victims_pod(&cluster, &pod_name, &victim, &secret).await;
    owner.until("the secret of its pod", |edge| edge.object("Secret", "default", &secret).is_some()).await;

    let (_, mut edge) = bridge.edge(&cluster, &evil).await;
    let name = unique("mirror");
    let mirror = |spec: Value| {
        let metadata = json!({"name": name, "namespace": "default", "annotations": {"kubernetes.io/config.hash": "h"}});
        Report::MirrorPod { pod: json!({"metadata": metadata, "spec": spec}) }
    };
    let container = json!({"name": "c", "image": "busybox"});
    let volumes = json!([{"name": "s", "secret": {"secretName": secret}}]);
    let refused = edge.report_and_wait(mirror(json!({"containers": [container], "volumes": volumes}))).await;
    assert!(refused.as_ref().is_err_and(|why| why.contains("may not reference secrets")), "{refused:?}");
    let of_account = json!({"containers": [container], "serviceAccountName": "default"});
    assert!(edge.report_and_wait(mirror(of_account)).await.is_err());
    // A mirror that names no objects is accepted.
    edge.report_and_wait(mirror(json!({"containers": [container]}))).await.unwrap();
    edge.until("its mirror", |edge| edge.object("Pod", "default", &name).is_some()).await;
    edge.linger(Duration::from_millis(200)).await;
    assert!(edge.object("Secret", "default", &secret).is_none());
    force_delete(&cluster.pods(), &name).await;
    force_delete(&cluster.pods(), &pod_name).await;
    for node in [evil, victim] {
        drop(cluster.nodes().delete(&node, &DeleteParams::default()).await);
    }
}

/// A message of any shape from one node does not affect the others.
#[tokio::test]
async fn g27_reports_of_any_shape_end_nothing() {
    apimachinery::panics::install();
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (evil, other) = (unique("evil"), unique("other"));
    let (_, mut honest) = bridge.edge(&cluster, &other).await;
    let (_, mut edge) = bridge.edge(&cluster, &evil).await;
    let before = apimachinery::panics::count();
    let hash = json!({"kubernetes.io/config.hash": "h"});
    let metadata = json!({"name": "m", "namespace": "default", "annotations": hash});
    for odd in [json!(1), json!([]), json!("x"), Value::Null, json!([{}]), json!({"conditions": [1, "x", [], null]})] {
        let node = json!({"metadata": {"name": evil}, "status": odd, "spec": odd});
        for report in [
            Report::Node { node: odd.clone() },
            Report::Node { node },
            Report::MirrorPod { pod: odd.clone() },
            Report::MirrorPod { pod: json!({"metadata": metadata, "spec": odd}) },
            Report::MirrorPod { pod: json!({"metadata": odd, "spec": {}}) },
            Report::Event { event: odd.clone() },
            Report::Event { event: json!({"metadata": odd, "involvedObject": {"kind": "Node", "name": evil}}) },
            Report::Event { event: json!({"metadata": {"name": "e"}, "involvedObject": odd, "source": odd}) },
            Report::PodStatus { namespace: "default".into(), name: "p".into(), uid: "u".into(), status: odd.clone() },
        ] {
            // Most are refused, and some are valid.
            let _ = edge.report_and_wait(report).await;
        }
    }
    assert_eq!(apimachinery::panics::count(), before);
    honest.linger(Duration::from_millis(100)).await;
    honest.report_and_wait(Report::Node { node: node_object(&other) }).await.unwrap();
    for node in [evil, other] {
        drop(cluster.nodes().delete(&node, &DeleteParams::default()).await);
    }
}

/// The API's own rules for nodes, if a request passes the bridge's checks.
#[tokio::test]
async fn g27_the_api_gives_a_node_nothing_of_another_either() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (evil, victim, pod_name, secret) = (unique("evil"), unique("victim"), unique("theirs"), unique("secret"));
    let (_, _owner) = bridge.edge(&cluster, &victim).await;
    let (_, _edge) = bridge.edge(&cluster, &evil).await;
    let pod = victims_pod(&cluster, &pod_name, &victim, &secret).await;
    let client = cluster.clients.as_node(&evil);
    let merge = "application/merge-patch+json";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "audiences": [], "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod.uid()}}});
    let label = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/zone": "vault"}}});
    let matrix: [(Method, String, &str, Value); 12] = [
        (Method::GET, format!("/api/v1/namespaces/default/secrets/{secret}"), "", Value::Null),
        (Method::GET, "/api/v1/namespaces/default/secrets".into(), "", Value::Null),
        (Method::GET, "/api/v1/secrets".into(), "", Value::Null),
        (Method::PATCH, format!("/api/v1/nodes/{victim}/status"), merge, json!({"status": {"conditions": []}})),
        (Method::PATCH, format!("/api/v1/nodes/{victim}"), merge, json!({"metadata": {"labels": {"a": "b"}}})),
        (Method::DELETE, format!("/api/v1/nodes/{victim}"), "", Value::Null),
        (Method::PATCH, format!("/api/v1/nodes/{evil}"), merge, label),
        (
            Method::PATCH,
            format!("/api/v1/namespaces/default/pods/{pod_name}/status"),
            merge,
            json!({"status": {"phase": "Failed"}}),
        ),
        (
            Method::PATCH,
            format!("/api/v1/namespaces/default/pods/{pod_name}"),
            merge,
            json!({"spec": {"activeDeadlineSeconds": 1}}),
        ),
        (Method::DELETE, format!("/api/v1/namespaces/default/pods/{pod_name}"), "", Value::Null),
        (Method::POST, "/api/v1/namespaces/default/serviceaccounts/default/token".into(), "application/json", review),
        (Method::PATCH, format!("{leases}/{victim}"), merge, json!({"spec": {"holderIdentity": evil}})),
    ];
    for (method, path, media, body) in matrix {
        let what = format!("{method} {path}");
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(&path).header("content-type", media).body(bytes).unwrap();
        match client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 403, "{what}: {}", status.message),
            other => panic!("{what}: {other:?}"),
        }
    }
    force_delete(&cluster.pods(), &pod_name).await;
    for node in [evil, victim] {
        drop(cluster.nodes().delete(&node, &DeleteParams::default()).await);
    }
}

#[tokio::test]
async fn g28_the_port_of_the_nodes_tells_strangers_nothing() {
    let cluster = Cluster::open().await;
    let authority = Authority::create("test").unwrap();
    let admin = Identity::of_user(&authority, "admin", "system:masters");
    let bridge = TestBridge::with(&cluster, authority).await;
    let (address, ca) = (bridge.address, bridge.ca.clone());
    for path in ["/", "/api/v1/secrets", "/v1/link/../join"] {
        assert_eq!(get(address, &ca, None, path, "").await.0, 404, "{path}");
    }
    for path in ["/v1/link", "/v1/nodes", "/metrics"] {
        assert_eq!(get(address, &ca, None, path, "").await.0, 401, "{path}");
    }
    assert_eq!(get(address, &ca, None, "/v1/join", "").await.0, 405);
    assert_eq!(ask("POST", address, &ca, None, "/v1/identity", "Content-Length: 0\r\n").await.0, 401);
    assert_eq!(ask("POST", address, &ca, None, "/v1/join", "Content-Length: 0\r\n").await.0, 400);
    // A body that never arrives is not waited for: the client is authorized first.
    assert_eq!(ask("POST", address, &ca, None, "/v1/identity", "Content-Length: 1000000\r\n").await.0, 401);
    assert_eq!(ask("POST", address, &ca, Some(&admin), "/v1/identity", "Content-Length: 1000000\r\n").await.0, 403);
    // A valid certificate, but not of a node.
    assert_eq!(get(address, &ca, Some(&admin), "/v1/link", "").await.0, 403);
    assert_eq!(ask("POST", address, &ca, Some(&admin), "/v1/identity", "Content-Length: 0\r\n").await.0, 403);
    // A node of another authority: its handshake fails, with the first answer at the latest.
    let other = Authority::create("other").unwrap();
    let stranger = Identity::of_user(&other, "system:node:x", "system:nodes");
    if let Ok(mut stream) = tls(address, &ca, Some(&stranger)).await {
        let asked = stream.write_all(b"POST /v1/identity HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        assert!((asked.is_err() || read.is_err()) && answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    }
    // No TLS at all.
    let mut plain = tokio::net::TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /v1/link HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Reset or closed after an alert.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"));
}
