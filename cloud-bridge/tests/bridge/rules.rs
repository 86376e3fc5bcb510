//! Rules: what nodes receive of them, messages of nodes at a real HTTP server, and the limits of a hostile node.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edge_protocol::message::{CallFailure, CallResult, Report, RuleMessage, RuleRequest};
use http::Request;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::fixture::{Cluster, TestBridge, eventually, node_object, unique};
use crate::support::{Edge, Store};

const DEFINITIONS: &str = include_str!("../../../deploy/bridge/rules/crds.yaml");

struct Lab {
    cluster: Cluster,
    namespace: &'static str,
}

impl Lab {
    async fn open() -> Self {
        let lab = Self { cluster: Cluster::open().await, namespace: "default" };
        for text in DEFINITIONS.split("\n---\n") {
            let name = text.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap();
            let list = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let request = Request::patch(format!("{list}/{name}?fieldManager=test&force=true&fieldValidation=Strict"));
            let request = request.header("content-type", "application/apply-patch+yaml").body(text.as_bytes().to_vec());
            let _: Value = lab.cluster.client.request(request.unwrap()).await.unwrap();
        }
        for plural in ["rules", "ruleendpoints"] {
            eventually("the definitions", || async {
                let path = format!("/apis/rules.kubeedge.io/v1/namespaces/default/{plural}");
                lab.cluster.client.request::<Value>(Request::get(path).body(Vec::new()).unwrap()).await.is_ok()
            })
            .await;
        }
        for (name, kind) in [("rest", "rest"), ("bus", "eventbus"), ("web", "servicebus")] {
            let properties = if kind == "servicebus" { json!({"service_port": "80"}) } else { json!({}) };
            let body = json!({"apiVersion": "rules.kubeedge.io/v1", "kind": "RuleEndpoint", "metadata": {"name": name},
                "spec": {"ruleEndpointType": kind, "properties": properties}});
            let params = PatchParams::apply("test");
            lab.api("RuleEndpoint", "ruleendpoints").patch(name, &params, &Patch::Apply(body)).await.unwrap();
        }
        lab
    }

    fn api(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let (group, version) = ("rules.kubeedge.io".to_owned(), "v1".to_owned());
        let api_version = format!("{group}/{version}");
        let resource = ApiResource { group, version, api_version, kind: kind.into(), plural: plural.into() };
        Api::namespaced_with(self.cluster.client.clone(), self.namespace, &resource)
    }

    fn rules(&self) -> Api<DynamicObject> {
        self.api("Rule", "rules")
    }

    /// Creates a rule; returns its uid.
    async fn rule(&self, name: &str, node: &str, topic: &str, url: &str) -> String {
        self.made(name, "bus", &json!({"topic": topic, "node_name": node}), url).await
    }

    /// Creates a rule for programs on the node.
    async fn requests(&self, name: &str, node: &str, asked: &str, url: &str) -> String {
        self.made(name, "web", &json!({"target_url": asked, "node_name": node}), url).await
    }

    async fn made(&self, name: &str, source: &str, from: &Value, url: &str) -> String {
        let body = json!({"apiVersion": "rules.kubeedge.io/v1", "kind": "Rule", "metadata": {"name": name}, "spec": {
            "source": source, "sourceResource": from, "target": "rest", "targetResource": {"resource": url}}});
        let made = self.rules().create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await;
        made.unwrap().uid().unwrap()
    }

    async fn edge(&self, bridge: &TestBridge, node: &str) -> Edge {
        let identity = bridge.join(&self.cluster, node).await;
        let mut edge = Edge::connect_with_rules(bridge.address, &identity, Store::default()).await;
        edge.report_and_wait(Report::Node { node: node_object(node) }).await.unwrap();
        edge.until("the first list", |edge| edge.synced).await;
        edge
    }
}

/// An HTTP server with this answer, and the requests that it received.
async fn server(answer: Option<&'static str>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let all = Arc::clone(&heard);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
                // The bodies of these tests end with a dot.
                while !text.ends_with(b".") {
                    match socket.read(&mut chunk).await {
                        Ok(read) if read > 0 => text.extend_from_slice(&chunk[..read]),
                        _ => return,
                    }
                }
                all.lock().unwrap().push(String::from_utf8(text).unwrap());
                match answer {
                    Some(answer) => {
                        let text = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                        let _ = socket.write_all(text.as_bytes()).await;
                    }
                    None => std::future::pending().await,
                }
            });
        }
    });
    (address, heard)
}

fn message(rule: &str, topic: &str, text: &str) -> Value {
    let (rule, key, topic) = (rule.to_owned(), format!("key-{}", text.trim_end_matches('.')), topic.to_owned());
    serde_json::to_value(RuleMessage { rule, key, topic, payload: text.into(), at_ms: 7 }).unwrap()
}

const HOUR: u64 = 3_600_000;

#[tokio::test]
async fn d06_messages_are_delivered_in_order_and_a_slow_target_holds_up_its_own() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let node = unique("bus");
    let (good, heard) = server(Some("202 Accepted")).await;
    let (slow, _) = server(None).await;
    let (one, other) = (unique("good"), unique("slow"));
    let uid = lab.rule(&one, &node, "t/#", &format!("http://{good}/a?b")).await;
    let stuck = lab.rule(&other, &node, "s", &format!("http://{slow}/")).await;
    let mut edge = lab.edge(&bridge, &node).await;
    assert_eq!(edge.held(), 2);
    let told = edge.object("Rule", "default", &one).unwrap();
    assert_eq!((&told.body["topic"], &told.body["metadata"]["uid"]), (&json!("default/t/#"), &json!(uid)));

    for id in 1..=3 {
        assert!(edge.session.message(id, HOUR, message(&stuck, "default/s", "x.")));
    }
    for id in 11..=18 {
        assert!(edge.session.message(id, HOUR, message(&uid, "default/t/1", &format!("{id}."))));
    }
    edge.until("what is delivered", |edge| edge.messages.len() == 8).await;
    assert!((11..=18).all(|id| edge.messages.contains(&id)), "{:?}", edge.messages);
    let bodies: Vec<String> = {
        let heard = heard.lock().unwrap();
        heard.iter().map(|text| text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(bodies, (11..=18).map(|id| format!("{id}.")).collect::<Vec<_>>());
    let first = heard.lock().unwrap()[0].clone();
    for line in [
        "POST /a?b HTTP/1.1",
        "x-sampan-message-id: key-11",
        "idempotency-key: \"key-11\"",
        "x-sampan-topic: default/t/1",
    ] {
        assert!(first.contains(line), "{line} in {first}");
    }
    eventually("the counts", || async {
        let status = lab.rules().get(&one).await.unwrap().data["status"].clone();
        status["successMessages"] == 8
    })
    .await;
    lab.rules().delete(&one, &DeleteParams::default()).await.unwrap();
    lab.rules().delete(&other, &DeleteParams::default()).await.unwrap();
    edge.until("the end of both rules", |edge| edge.held() == 0).await;
}

#[tokio::test]
async fn d15_a_node_speaks_for_its_own_rules_only_and_harms_nobody() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (evil, victim) = (unique("evil"), unique("victim"));
    let (target, heard) = server(Some("200 OK")).await;
    let url = format!("http://{target}/");
    let (own, theirs) = (unique("own"), unique("theirs"));
    let uid = lab.rule(&own, &evil, "t", &url).await;
    let their = lab.rule(&theirs, &victim, "t", &url).await;
    let mut edge = lab.edge(&bridge, &evil).await;
    assert_eq!(edge.held(), 1, "its own rule");
    let strange = [
        message(&their, "default/t", "1."),
        message("no-such-rule", "default/t", "2."),
        message(&uid, "default/other", "3."),
        message(&uid, "default/t/more", "4."),
        message(&uid, "default/t\nx: y", "5."),
        message(&uid, "", "6."),
        message(&uid, "default/t", &"7".repeat(65 << 10)),
        json!({"rule": uid}),
        json!({"rule": uid, "key": "k", "topic": "default/t", "payload": "no base64", "atMs": 1}),
        Value::Null,
        json!([[[[]]]]),
    ];
    let count = strange.len() as u64;
    for (id, strange) in (1..).zip(strange) {
        assert!(edge.session.message(id, u64::MAX, strange));
    }
    assert!(edge.session.message(count + 1, HOUR, message(&uid, "default/t", "good.")));
    edge.until("all are dealt with", |edge| edge.messages.len() as u64 == count + 1).await;
    edge.linger(Duration::from_millis(300)).await;
    let heard = heard.lock().unwrap().clone();
    assert!(heard.len() == 1 && heard[0].ends_with("good."), "{heard:?}");
    assert!(lab.rules().get(&theirs).await.unwrap().data["status"].is_null(), "nothing is counted there");
    lab.rules().delete(&own, &DeleteParams::default()).await.unwrap();
    lab.rules().delete(&theirs, &DeleteParams::default()).await.unwrap();
}

/// The result of a request.
async fn ask(edge: &mut Edge, id: u64, request: Value) -> CallResult {
    assert!(edge.session.request(id, request));
    edge.until("an answer", |edge| edge.responses.contains_key(&id)).await;
    serde_json::from_value(edge.responses[&id].clone()).unwrap()
}

fn request(rule: &str, body: &str) -> Value {
    serde_json::to_value(RuleRequest { rule: rule.to_owned(), body: body.into() }).unwrap()
}

#[tokio::test]
async fn d15_program_on_a_node_gets_answers_by_its_nodes_rules_only() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (evil, victim) = (unique("evil"), unique("victim"));
    let (target, heard) = server(Some("503 Service Unavailable")).await;
    let url = format!("http://{target}/in");
    let (own, theirs, messages) = (unique("own"), unique("theirs"), unique("messages"));
    let uid = lab.requests(&own, &evil, "http://example.com/a", &url).await;
    let their = lab.requests(&theirs, &victim, "http://example.com/a", &url).await;
    let of_messages = lab.rule(&messages, &evil, "t", &url).await;
    let mut edge = lab.edge(&bridge, &evil).await;
    assert_eq!(edge.held(), 2, "its own rules");
    let told = edge.object("Rule", "default", &own).unwrap();
    assert_eq!(told.body["targetUrl"], "http://example.com/a");

    let answer = ask(&mut edge, 7, request(&uid, r#"{"targetURL":"http://example.com/a","payload":1}."#)).await;
    assert_eq!(answer, CallResult::Http { status: 503, headers: vec![], body: vec![] });
    {
        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 1, "once, whatever it says");
        for line in ["POST /in HTTP/1.1", &format!("x-sampan-node: {evil}"), "{\"targetURL\":\"http://example.com/a\""]
        {
            assert!(heard[0].contains(line), "{line} in {}", heard[0]);
        }
    }
    let failure = |result: CallResult| match result {
        CallResult::Failed { failure, .. } => failure,
        other => panic!("{other:?}"),
    };
    for (id, strange) in (8..).zip([
        request(&their, "."),
        request(&of_messages, "."),
        request("no-such-rule", "."),
        request(&uid, &".".repeat((512 << 10) + 1)),
        json!({"rule": uid}),
        json!({"rule": [], "body": 1}),
        Value::Null,
    ]) {
        assert_eq!(failure(ask(&mut edge, id, strange).await), CallFailure::Refused, "{id}");
    }
    assert_eq!(heard.lock().unwrap().len(), 1);
    assert!(lab.rules().get(&theirs).await.unwrap().data["status"].is_null(), "nothing is counted there");

    // No program accepts connections there: the request had no effect.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let nobody = unique("nobody");
    let gone = lab.requests(&nobody, &evil, "http://example.com/b", &format!("http://{closed}/")).await;
    edge.until("another rule", |edge| edge.held() == 3).await;
    assert_eq!(failure(ask(&mut edge, 90, request(&gone, ".")).await), CallFailure::Unreachable);
    eventually("the counts", || async {
        let (own, nobody) = (lab.rules().get(&own).await.unwrap(), lab.rules().get(&nobody).await.unwrap());
        own.data["status"]["failMessages"] == 1 && nobody.data["status"]["failMessages"] == 1
    })
    .await;
    for name in [own, theirs, messages, nobody] {
        lab.rules().delete(&name, &DeleteParams::default()).await.unwrap();
    }
}
