//! Events, static pods, logs.

use apimachinery::flow::Flow;
use apimachinery::user::UserInfo;
use edge_protocol::message::Report;
use edge_protocol::message::StreamRequest;
use edge_protocol::stream::MAX_STREAMS;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::Api;
use kube::api::DeleteParams;
use kube::api::ListParams;
use kubelet_api::backend::{BackendError, KubeletBackend, LogOptions, PodOnNode};
use serde_json::json;
use std::time::Duration;

use crate::support::fixture::{Cluster, TestBridge, force_delete, running, status, unique};

#[tokio::test]
async fn repeated_events_are_counted() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("event"), unique("event-pod"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let pod = cluster.create_pod(&name, &node, json!({})).await;
    let event = |number: u32, message: &str| {
        let time = format!("2026-01-01T00:00:0{number}Z");
        Report::Event {
            event: json!({
                "metadata": {"name": format!("{name}.{number}"), "namespace": "default"},
                "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": name, "uid": pod.uid()},
                "type": "Warning", "reason": "BackOff", "message": message, "count": 1,
                "source": {"component": "kubelet", "host": node}, "firstTimestamp": time, "lastTimestamp": time,
            }),
        }
    };
    for number in [1, 2, 2, 3] {
        edge.report_and_wait(event(number, "again")).await.unwrap();
    }
    edge.report_and_wait(event(4, "different")).await.unwrap();
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let list = events.list(&ListParams::default().fields(&format!("involvedObject.name={name}"))).await.unwrap();
    let mut counts: Vec<_> = list.iter().map(|e| (e.message.clone().unwrap(), e.count.unwrap())).collect();
    counts.sort();
    assert_eq!(counts, [("again".to_owned(), 3), ("different".to_owned(), 1)]);
    force_delete(&cluster.pods(), &name).await;
}

#[tokio::test]
async fn a_static_pod_has_a_mirror_that_comes_back() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("static");
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let name = format!("web-{node}");
    let manifest = |hash: &str| {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": hash, "annotations": {
                "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file",
                "kubernetes.io/config.seen": "2026-01-01T00:00:00Z"}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "busybox"}],
                     "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}
        })
    };
    edge.report_and_wait(Report::MirrorPod { pod: manifest("h1") }).await.unwrap();
    let mirror = cluster.pods().get(&name).await.unwrap();
    assert_eq!(mirror.annotations()["kubernetes.io/config.mirror"], "h1");
    edge.until("the mirror", |edge| edge.object("Pod", "default", &name).is_some()).await;
    edge.report_and_wait(status(&mirror, running())).await.unwrap();
    edge.report_and_wait(Report::MirrorPod { pod: manifest("h1") }).await.expect("a repetition is harmless");
    assert_eq!(cluster.pods().get(&name).await.unwrap().uid(), mirror.uid());

    edge.report_and_wait(Report::MirrorPod { pod: manifest("h2") }).await.unwrap();
    let newer = cluster.pods().get(&name).await.unwrap();
    assert_eq!(newer.annotations()["kubernetes.io/config.mirror"], "h2");

    // A user deletes it: no container has to stop, and the node is notified.
    cluster.pods().delete(&name, &DeleteParams::default()).await.unwrap();
    edge.until("the end of the mirror", |edge| edge.object("Pod", "default", &name).is_none()).await;
    edge.report_and_wait(Report::MirrorPod { pod: manifest("h2") }).await.unwrap();
    let gone =
        |uid: &str| Report::MirrorGone { namespace: "default".into(), name: name.clone(), static_uid: uid.into() };
    edge.report_and_wait(gone("h1")).await.unwrap();
    assert!(cluster.pods().get_opt(&name).await.unwrap().is_some(), "that is another one's mirror");
    edge.report_and_wait(gone("h2")).await.unwrap();
    assert!(cluster.pods().get_opt(&name).await.unwrap().is_none());
}

#[tokio::test]
async fn logs_come_over_the_link_and_an_absent_node_is_said_to_be_absent() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("logs"), unique("logs-pod"));
    let flow = Flow::unlimited();
    let at = PodOnNode { node: node.clone(), namespace: "default".into(), pod: name, uid: "u".into(), flow };
    let options = LogOptions { container: "c".into(), tail_lines: Some(5), ..LogOptions::default() };
    let error = bridge.bridge.logs(at.clone(), options.clone()).await.err().unwrap().to_string();
    assert!(error.contains("not connected"), "{error}");

    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let total = 300 * 1024;
    let reader = {
        let (bridge, at, options) = (bridge.bridge.clone(), at.clone(), options.clone());
        tokio::spawn(async move {
            let mut stream = bridge.logs(at, options).await.unwrap();
            let mut bytes = 0;
            while let Some(chunk) = stream.next().await {
                bytes += chunk.unwrap().len();
            }
            bytes
        })
    };
    edge.until("the request", |edge| !edge.streams.is_empty()).await;
    let (stream, request) = edge.streams.pop().unwrap();
    assert!(matches!(request, StreamRequest::Logs { ref container, tail_lines: Some(5), .. } if container == "c"));
    let mut sent = 0;
    while sent < total {
        edge.until("credit", |edge| edge.session.stream_room(stream) > 0).await;
        let size = edge.session.stream_room(stream).min(total - sent);
        edge.session.stream_send(stream, &vec![b'x'; size]).unwrap();
        sent += size;
    }
    edge.session.stream_end(stream, None);
    edge.linger(Duration::from_millis(200)).await;
    assert_eq!(reader.await.unwrap(), total);

    // A refusal of the node, and a connection that breaks during a stream.
    let refused = tokio::spawn({
        let (bridge, at, options) = (bridge.bridge.clone(), at.clone(), options.clone());
        async move { bridge.logs(at, options).await.err().unwrap().to_string() }
    });
    edge.until("the request", |edge| !edge.streams.is_empty()).await;
    let (stream, _) = edge.streams.pop().unwrap();
    edge.session.stream_end(stream, Some("container c not found in pod p".into()));
    edge.linger(Duration::from_millis(100)).await;
    assert!(refused.await.unwrap().contains("not found"));

    let broken = tokio::spawn({
        let (bridge, at) = (bridge.bridge.clone(), at.clone());
        async move {
            let mut stream = bridge.logs(at, LogOptions { follow: true, ..options }).await.unwrap();
            assert_eq!(stream.next().await.unwrap().unwrap(), "line\n");
            stream.next().await.unwrap().err().unwrap().to_string()
        }
    });
    edge.until("the request", |edge| !edge.streams.is_empty()).await;
    let (stream, _) = edge.streams.pop().unwrap();
    edge.session.stream_send(stream, b"line\n").unwrap();
    edge.linger(Duration::from_millis(100)).await;
    drop(edge);
    assert!(broken.await.unwrap().contains("broke"));
}

#[tokio::test]
async fn streams_of_a_user_take_a_bounded_memory() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("held");
    let (_, _edge) = bridge.edge(&cluster, &node).await;
    let forward = |user: &str| {
        let flow = Flow::of(&UserInfo::new(user, ["people"]));
        let (namespace, pod, uid) = ("default".into(), "p".into(), "u".into());
        bridge.bridge.port_forward(PodOnNode { node: node.clone(), namespace, pod, uid, flow }, 80)
    };
    let mut opening: Vec<_> = (0..MAX_STREAMS).map(|_| forward("eve")).collect();
    assert!(opening.iter_mut().all(|stream| stream.now_or_never().is_none()), "the node has not answered yet");
    let refused = forward("eve").now_or_never().expect("the node is not asked").err();
    assert!(matches!(refused, Some(BackendError::Busy(_))), "{refused:?}");
    assert!(forward("bob").now_or_never().is_none(), "others have their own");
    drop(opening);
    assert!(forward("eve").now_or_never().is_none(), "their memory is given back");
}

#[tokio::test]
async fn stream_whose_client_leaves_while_it_opens_ends() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("left");
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let (namespace, pod, uid, flow) = ("default".into(), "p".into(), "u".into(), Flow::unlimited());
    let mut opening = bridge.bridge.port_forward(PodOnNode { node, namespace, pod, uid, flow }, 80);
    assert!((&mut opening).now_or_never().is_none(), "the node has not answered yet");
    edge.until("the request", |edge| !edge.streams.is_empty()).await;
    // The number of the stream is on its way to the client, who does not take it any more.
    drop(opening);
    let (stream, _) = edge.streams.pop().unwrap();
    edge.session.stream_send(stream, b"x").unwrap();
    edge.until("the end of the stream", |edge| edge.closed.contains(&stream)).await;
}
