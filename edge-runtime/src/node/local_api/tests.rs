//! What the helper is told, and that a node without a local API has none of it.

use edge_protocol::message::TokenAnswer;
use edge_protocol::version::{API, TOKENS};
use k8s_openapi::api::core::v1;
use sampan_api_control::FromHelper;
use serde_json::json;

use super::*;
use crate::config::Listen;
use crate::helper::client::Heard;
use crate::link::LinkHandle;
use crate::node::bench::Bench;
use crate::pod::clock::Mono;

/// A node whose pod `u` uses the local API and has a token, with a helper that is not connected yet.
fn with_token() -> Bench {
    let mut bench = Bench::new();
    let mut config = (*bench.node.cx.config).clone();
    config.local_api.listen = Listen::Gateway;
    bench.node.cx.config = Rc::new(config);
    bench.add("u");
    let source = json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}});
    let volumes = json!([{"name": "v", "projected": {"sources": [source]}}]);
    let metadata = json!({"name": "u", "namespace": "ns", "uid": "u", "annotations": {"sampan.dev/local-api": "true"}});
    let pod = json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}});
    let pod: v1::Pod = serde_json::from_value(pod).unwrap();
    bench.node.cx.pods.get_mut("u").unwrap().pod = Rc::new(pod.clone());
    let link = LinkHandle::for_tests(&bench.node.cx.paths, &[TOKENS, API]);
    bench.node.cx.link = Some(link.clone());
    let helper = Helper::new(&PROGRAM, &bench.node.cx.paths, &ToHelper::Ping {});
    let news = bench.node.cx.senders.news.clone();
    let (teller, work) = helper.keep(news, |event| Ok(News::LocalApi(event.read()?)));
    let requests = Rc::new(Requests::new(link));
    let task = bench.node.cx.tasks.spawn(work);
    bench.node.local_api.running = Some(Running { teller, requests, moving: None, _addresses: None, _task: task });
    bench.node.tokens.want(&bench.node.cx, "u", &pod);
    assert!(bench.node.tokens.renew(&bench.node.cx));
    let time = |hour: u32| format!("2026-01-01T{hour:02}:00:00Z");
    let answer = TokenAnswer::Issued { token: "abc".to_owned(), issued: time(0), expires: time(1) };
    bench.node.tokens.answered(1, answer, Mono(0));
    bench.node.keep_tokens().unwrap();
    bench
}

fn next(bench: &mut Bench) -> Option<ToHelper> {
    let api = &mut bench.node.local_api;
    api.untold.next(api.link)
}

#[test]
fn helper_is_told_everything_when_it_is_up() {
    let mut bench = with_token();
    assert!(next(&mut bench).is_none(), "there is no helper");
    bench.node.local_api.connected(&bench.node.cx);
    bench.node.take_local_api(Heard::Up(1)).unwrap();
    assert!(matches!(next(&mut bench), Some(ToHelper::Link { up: true, since_ms: 1.. })));
    let Some(ToHelper::Pod(pod)) = next(&mut bench) else { panic!("no pod") };
    assert_eq!((pod.uid.as_str(), pod.tokens.len()), ("u", 1));
    assert!(matches!(next(&mut bench), Some(ToHelper::Told {})));
    assert!(next(&mut bench).is_none());
    bench.node.local_api.disconnected(&bench.node.cx);
    assert!(matches!(next(&mut bench), Some(ToHelper::Link { up: false, .. })));
}

/// L3: the helper is told with the same turn of the loop.
#[test]
fn helper_is_told_of_a_pod_that_is_gone() {
    let mut bench = with_token();
    bench.node.take_local_api(Heard::Up(1)).unwrap();
    while next(&mut bench).is_some() {}
    let node = &mut bench.node;
    node.local_api.look_at_pod(&node.cx, &node.tokens, "u");
    assert!(node.local_api.untold.pods.is_empty(), "it is told once");
    node.cx.pod_gone("u");
    node.local_api.look_at_pod(&node.cx, &node.tokens, "u");
    assert_eq!(next(&mut bench), Some(ToHelper::PodGone { uid: "u".to_owned() }));
    assert!(next(&mut bench).is_none());
}

#[test]
fn new_certificate_wakes_the_pods_that_trust_it() {
    let mut bench = with_token();
    bench.add("other");
    bench.take_dirty();
    let ready = |text: &str| Heard::Line(FromHelper::Ready { certificate: text.to_owned(), refused: Vec::new() });
    bench.node.take_local_api(ready("A")).unwrap();
    assert_eq!(bench.take_dirty(), ["u"]);
    assert_eq!(bench.node.cx.object(crate::pod::local_api::KIND, "", ""), Some(json!("A")));
    bench.node.take_local_api(ready("A")).unwrap();
    assert!(bench.take_dirty().is_empty());
}

#[test]
fn pods_trust_the_last_certificate_of_the_file() {
    let block = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    assert_eq!(authority(&(block("own") + &block("authority"))), Some(block("authority").as_str()));
    assert_eq!(authority(""), None);
}

/// Answers may hold Secrets: they do not stay where nothing manages them.
#[test]
fn kept_answers_go_when_the_local_api_is_turned_off() {
    let mut bench = Bench::new();
    let folder = bench.node.cx.paths.api();
    std::fs::create_dir_all(folder.join("cache/account")).unwrap();
    for file in ["cert.pem", "cache/account/answer"] {
        std::fs::write(folder.join(file), "x").unwrap();
    }
    let node = &mut bench.node;
    node.local_api.start(&mut node.cx, &node.launch);
    assert!(!folder.join("cache").exists() && folder.join("cert.pem").exists());
}

#[test]
fn streams_of_the_bridge_are_left_to_others() {
    let bench = with_token();
    let room = |stream| StreamEvent::Room { stream };
    assert_eq!(bench.node.local_api.take(room(1)), Some(room(1)));
    assert_eq!(bench.node.local_api.take(room(EDGE_STREAMS + 1)), None);
}

/// No process, port, file or state; nothing is announced to the bridge.
#[test]
fn node_without_the_section_has_nothing_of_it() {
    let mut bench = Bench::new();
    bench.node.cx.link = Some(LinkHandle::for_tests(&bench.node.cx.paths, &[API]));
    let node = &mut bench.node;
    node.local_api.start(&mut node.cx, &node.launch);
    assert!(node.local_api.running.is_none() && node.cx.api_certificate.is_none());
    assert!(!node.cx.paths.api().exists() && !node.cx.paths.api_socket().exists());
    bench.add("u");
    let node = &mut bench.node;
    node.local_api.look_at_pod(&node.cx, &node.tokens, "u");
    assert!(node.local_api.known.is_empty() && node.local_api.untold.pods.is_empty());
}
