//! The bridge between a scripted node and a Kubernetes API: the embedded one, or a real one when
//! `TEST_KUBECONFIG` names it.

mod support;

use std::time::{Duration, Instant};

use cloud_bridge::api::backend::{LogOptions, PodOnNode};
use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use cloud_bridge::pki::token;
use edge_protocol::message::{Report, StreamRequest};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use support::fixture::{Cluster, Saboteur, TestBridge, eventually, force_delete, node_object, unique};
use support::{Edge, Store, join};

fn status(pod: &Pod, status: Value) -> Report {
    Report::PodStatus { namespace: "default".into(), name: pod.name_any(), uid: pod.uid().unwrap(), status }
}

fn gone(pod: &Pod) -> Report {
    Report::PodGone { namespace: "default".into(), name: pod.name_any(), uid: pod.uid().unwrap() }
}

fn running() -> Value {
    json!({
        "phase": "Running", "podIP": "10.1.0.2", "podIPs": [{"ip": "10.1.0.2"}], "hostIP": "192.0.2.7",
        "hostIPs": [{"ip": "192.0.2.7"}], "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "containerStatuses": [{"name": "c", "image": "busybox", "imageID": "sha256:0", "ready": true, "started": true,
            "restartCount": 0, "containerID": "runc://0", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
    })
}

#[tokio::test]
async fn a_token_is_good_once_for_one_node_and_for_a_time() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("join");
    let own = format!("system:node:{node}");
    let text = bridge.token(&cluster, &node).await;

    let (ca, address, fingerprint) = (bridge.ca.clone(), bridge.address, bridge.fingerprint.clone());
    let other = join(address, &ca, &text, "other", "x").await.err().expect("refused");
    assert_eq!(other.0, 403, "{}", other.1);
    assert!(other.1.contains("another node"), "{}", other.1);
    let asks = join(address, &ca, &text, &node, "system:node:other").await.err().expect("refused");
    assert_eq!(asks.0, 400, "{}", asks.1);

    let identity = join(address, &ca, &text, &node, &own).await.expect("joined after all");
    assert_eq!(identity.ca, ca);
    let second = join(address, &ca, &text, &node, &own).await.err().expect("refused");
    assert_eq!(second.0, 401, "{}", second.1);
    assert!(second.1.contains("used already"), "{}", second.1);

    let earlier = Timestamp::now() - jiff::SignedDuration::from_hours(2);
    let hour = Duration::from_secs(3600);
    // Made by hand two hours ago: `create` clears away what has expired, but not what it makes itself.
    let old = token::create(&cluster.client, &fingerprint, &node, hour, earlier).await.unwrap().text();
    let expired = join(address, &ca, &old, &node, &own).await.err().expect("refused");
    assert!(expired.0 == 401 && expired.1.contains("expired"), "{} {}", expired.0, expired.1);
    bridge.kill();
}

#[tokio::test]
async fn two_uses_at_once_have_one_winner() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("race");
    let text = bridge.token(&cluster, &node).await;
    let attempt = || join(bridge.address, &bridge.ca, &text, &node, "x");
    let outcomes = futures::join!(attempt(), attempt(), attempt());
    let winners = [outcomes.0.is_ok(), outcomes.1.is_ok(), outcomes.2.is_ok()].iter().filter(|ok| **ok).count();
    assert_eq!(winners, 1);
}

#[tokio::test]
async fn a_node_is_what_its_certificate_says() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let identity = bridge.join(&cluster, &unique("real")).await;
    let mut liar = Edge::connect(bridge.address, &identity, "someone-else", Store::default()).await.unwrap();
    let why = liar.until_ended().await;
    assert!(why.contains("WrongNode"), "{why}");

    let stream = support::tls(bridge.address, &bridge.ca, None).await.unwrap();
    let stream = async_tungstenite::tokio::TokioAdapter::new(stream);
    let error = async_tungstenite::client_async("wss://localhost/v1/link", stream).await.err().unwrap();
    assert!(error.to_string().contains("401"), "{error}");
}

#[tokio::test]
async fn a_node_registers_and_proves_that_it_lives() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let name = unique("reg");
    let (_, mut edge) = bridge.edge(&cluster, &name).await;
    let node = cluster.nodes().get(&name).await.unwrap();
    let conditions = node.status.clone().unwrap().conditions.unwrap();
    let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "True");
    assert!(ready.last_heartbeat_time.as_ref().unwrap().0 > Timestamp::now() - jiff::SignedDuration::from_mins(1));
    assert!(node.labels().contains_key("node-role.kubernetes.io/edge"), "{:?}", node.labels());

    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    edge.linger(Duration::from_millis(300)).await;
    let lease = leases.get(&name).await.unwrap().spec.unwrap();
    assert_eq!((lease.holder_identity.as_deref(), lease.lease_duration_seconds), (Some(name.as_str()), Some(40)));

    let mut labelled = node_object(&name);
    labelled["metadata"]["labels"]["node-restriction.kubernetes.io/x"] = "y".into();
    let error = edge.report_and_wait(Report::Node { node: labelled }).await.unwrap_err();
    assert!(error.contains("node-restriction"), "{error}");
    let error = edge.report_and_wait(Report::Node { node: node_object("someone-else") }).await.unwrap_err();
    assert!(error.contains("someone-else"), "{error}");

    // Deleted by somebody: registered again while it lives.
    cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    for _ in 0..100 {
        edge.linger(Duration::from_millis(50)).await;
        if cluster.nodes().get_opt(&name).await.unwrap().is_some() {
            break;
        }
    }
    let again = cluster.nodes().get(&name).await.unwrap();
    assert_ne!(again.uid(), node.uid());
    cluster.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_pod_and_what_it_names_go_down_and_its_status_comes_up() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name, map) = (unique("road"), unique("road-pod"), unique("road-map"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_map(&map, "one").await;
    let spec = json!({"containers": [{"name": "c", "image": "busybox", "envFrom": [{"configMapRef": {"name": map}}]}]});
    let pod = cluster.create_pod(&name, &node, spec).await;
    edge.until("the pod", |edge| edge.object("Pod", "default", &name).is_some()).await;
    assert_eq!(edge.object("ConfigMap", "default", &map).unwrap().body["data"]["key"], "one");
    let body = &edge.object("Pod", "default", &name).unwrap().body;
    assert_eq!((&body["metadata"]["managedFields"], &body["status"]), (&Value::Null, &Value::Null));

    // Status up; a condition of another controller stays; nothing comes down for it.
    let other = json!({"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}});
    let params = PatchParams::default();
    cluster.pods().patch_status(&name, &params, &Patch::Strategic(other)).await.unwrap();
    let puts = edge.puts;
    edge.report_and_wait(status(&pod, running())).await.unwrap();
    let shown = cluster.pods().get(&name).await.unwrap().status.unwrap();
    assert_eq!(shown.phase.as_deref(), Some("Running"));
    let kinds: Vec<_> = shown.conditions.unwrap().into_iter().map(|c| c.type_).collect();
    assert!(kinds.contains(&"example.com/gate".to_owned()) && kinds.contains(&"Ready".to_owned()), "{kinds:?}");
    assert_eq!(shown.pod_ips.unwrap().len(), 1);
    let mut moved = running();
    moved["podIP"] = "10.1.0.3".into();
    moved["podIPs"] = json!([{"ip": "10.1.0.3"}]);
    moved["message"] = "hello".into();
    edge.report_and_wait(status(&pod, moved)).await.unwrap();
    edge.report_and_wait(status(&pod, running())).await.unwrap();
    let shown = cluster.pods().get(&name).await.unwrap().status.unwrap();
    assert_eq!((shown.pod_ips.unwrap().len(), shown.message), (1, None), "what the node no longer says is gone");
    edge.linger(Duration::from_millis(200)).await;
    assert_eq!(edge.puts, puts, "a change of status costs nothing on the way down");

    // Changed, deleted and made again.
    let change = Patch::Merge(json!({"data": {"key": "two"}}));
    cluster.maps().patch(&map, &params, &change).await.unwrap();
    edge.until("the change", |edge| {
        edge.object("ConfigMap", "default", &map).is_some_and(|object| object.body["data"]["key"] == "two")
    })
    .await;
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
    edge.until("the deletion", |edge| edge.object("ConfigMap", "default", &map).is_none()).await;
    cluster.create_map(&map, "three").await;
    edge.until("its successor", |edge| edge.object("ConfigMap", "default", &map).is_some()).await;

    // Graceful end.
    cluster.pods().delete(&name, &DeleteParams::default().grace_period(5)).await.unwrap();
    edge.until("the request to end", |edge| {
        edge.object("Pod", "default", &name).is_some_and(|pod| !pod.body["metadata"]["deletionTimestamp"].is_null())
    })
    .await;
    edge.report_and_wait(gone(&pod)).await.unwrap();
    assert!(cluster.pods().get_opt(&name).await.unwrap().is_none());
    edge.until("the tombstones", |edge| edge.store.held.is_empty()).await;
    edge.report_and_wait(gone(&pod)).await.expect("a repetition is harmless");
    let error = edge.report_and_wait(status(&pod, running())).await.unwrap_err();
    assert!(error.contains("not found"), "{error}");
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_successor_of_the_same_name_is_never_touched() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("uid"), unique("uid-pod"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let old = cluster.create_pod(&name, &node, json!({})).await;
    edge.until("the pod", |edge| edge.object("Pod", "default", &name).is_some()).await;
    force_delete(&cluster.pods(), &name).await;
    let new = cluster.create_pod(&name, &node, json!({})).await;
    edge.report_and_wait(gone(&old)).await.unwrap();
    edge.report_and_wait(status(&old, running())).await.unwrap_err();
    let shown = cluster.pods().get(&name).await.unwrap();
    assert_eq!((shown.uid(), shown.status.unwrap().phase.as_deref()), (new.uid(), Some("Pending")));
    edge.until("the successor", |edge| {
        edge.object("Pod", "default", &name).is_some_and(|pod| Some(&pod.digest.uid) == new.uid().as_ref())
    })
    .await;
    force_delete(&cluster.pods(), &name).await;
    edge.until("the end", |edge| edge.store.held.is_empty()).await;
}

#[tokio::test]
async fn a_node_resumes_and_survives_a_bridge_that_forgot_everything() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, map) = (unique("back"), unique("back-map"));
    let names: Vec<_> = (0..3).map(|_| unique("back-pod")).collect();
    let (identity, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_map(&map, "x").await;
    for name in &names {
        let volume = json!({"volumes": [{"name": "v", "configMap": {"name": map}}]});
        cluster.create_pod(name, &node, volume).await;
    }
    edge.until("all objects", |edge| edge.store.held.len() == 4).await;
    edge.linger(Duration::from_millis(100)).await;

    // The same bridge: only what changed meanwhile.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    force_delete(&cluster.pods(), &names[0]).await;
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the deletion", |edge| edge.store.held.len() == 3).await;
    assert!(edge.resumed && edge.puts == 0, "resumed {} puts {}", edge.resumed, edge.puts);

    // A bridge that starts anew: a full list by digest, no body twice, and what is gone is gone.
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    bridge.kill();
    force_delete(&cluster.pods(), &names[1]).await;
    let authority = Authority::create("test").unwrap();
    let bridge = TestBridge::with(&cluster, authority).await;
    let identity = bridge.join(&cluster, &node).await;
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the full list", |edge| edge.synced).await;
    assert_eq!((edge.puts, edge.store.held.len(), edge.deleted.len()), (0, 2, 1));

    // A newer connection of the same node.
    let mut newer = bridge.connect(&identity, Store::default()).await;
    newer.until("the full list", |edge| edge.synced).await;
    let why = edge.until_ended().await;
    assert!(why.contains("Superseded"), "{why}");
    force_delete(&cluster.pods(), &names[2]).await;
    newer.until("the end of all", |edge| edge.store.held.is_empty()).await;
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}

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

    // Somebody deletes it: nothing has to stop for that, and the node hears of it.
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
async fn a_pod_called_unready_in_the_absence_of_its_node_is_called_ready_again() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("ready"), unique("ready-pod"));
    let (identity, mut edge) = bridge.edge(&cluster, &node).await;
    let pod = cluster.create_pod(&name, &node, json!({})).await;
    edge.until("the pod", |edge| edge.object("Pod", "default", &name).is_some()).await;
    edge.report_and_wait(status(&pod, running())).await.unwrap();
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.pods().patch_status(&name, &PatchParams::default(), &Patch::Strategic(unready)).await.unwrap();
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the welcome", |edge| edge.session.is_welcome()).await;
    eventually("the condition", || async {
        let conditions = cluster.pods().get(&name).await.unwrap().status.unwrap().conditions.unwrap();
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
    })
    .await;
    force_delete(&cluster.pods(), &name).await;
}

#[tokio::test]
async fn logs_come_over_the_link_and_an_absent_node_is_said_to_be_absent() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("logs"), unique("logs-pod"));
    let at = PodOnNode { node: node.clone(), namespace: "default".into(), pod: name, uid: "u".into() };
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

    // A refusal of the node, and a connection that breaks in the middle.
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
async fn an_api_that_talks_nonsense_deletes_nothing() {
    let cluster = Cluster::open().await;
    let saboteur = Saboteur::default();
    let sane = cluster.clients.clone();
    let spoiler = saboteur.clone();
    let clients = Clients::new(saboteur.wrap(cluster.client.clone()), move |node| spoiler.wrap(sane.as_node(node)));
    let authority = Authority::create("test").unwrap();
    let bridge = TestBridge::over(clients, &cluster.client, authority, Settings::default()).await;
    let (node, name, map) = (unique("sane"), unique("sane-pod"), unique("sane-map"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_map(&map, "x").await;
    let spec = json!({"volumes": [{"name": "v", "configMap": {"name": map}}]});
    let pod = cluster.create_pod(&name, &node, spec).await;
    edge.until("both", |edge| edge.store.held.len() == 2).await;
    for kind in [1, 2, 3, 5] {
        saboteur.set(kind);
        edge.linger(Duration::from_millis(700)).await;
        assert_eq!((edge.store.held.len(), edge.deleted.len()), (2, 0), "nonsense of kind {kind}");
    }
    // A list that is well-formed, and lies: a pod is asked for by name before it is believed to be gone.
    saboteur.set(4);
    edge.linger(Duration::from_millis(1500)).await;
    assert!(edge.object("Pod", "default", &name).is_some());

    // Reports made in the meantime arrive when the API is sane again.
    saboteur.set(2);
    let id = edge.report(status(&pod, running()));
    edge.linger(Duration::from_millis(500)).await;
    assert!(!edge.acked.contains(&id) && !edge.refused.contains_key(&id));
    saboteur.set(0);
    edge.until("the report", |edge| edge.acked.contains(&id)).await;
    cluster.maps().patch(&map, &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "y"}}))).await.unwrap();
    edge.until("a change", |edge| {
        edge.object("ConfigMap", "default", &map).is_some_and(|map| map.body["data"]["key"] == "y")
    })
    .await;
    force_delete(&cluster.pods(), &name).await;
    edge.until("the end", |edge| edge.store.held.is_empty()).await;
    cluster.maps().delete(&map, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn what_an_empty_list_does_not_name_is_looked_up_before_it_is_deleted() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let (node, name) = (unique("empty"), unique("empty-pod"));
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    cluster.create_pod(&name, &node, json!({})).await;
    edge.until("the pod", |edge| edge.store.held.len() == 1).await;
    let store = std::mem::take(&mut edge.store);
    bridge.bridge.close().await;
    assert!(edge.until_ended().await.contains("closed"));
    bridge.kill();
    force_delete(&cluster.pods(), &name).await;
    let bridge = TestBridge::start(&cluster).await;
    let identity = bridge.join(&cluster, &node).await;
    let mut edge = bridge.connect(&identity, store).await;
    edge.until("the deletion", |edge| edge.store.held.is_empty()).await;
}

/// Not a bound that fails, because hosts differ: the figures are printed.
#[tokio::test]
async fn fifty_pods_at_once() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("many");
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let names: Vec<_> = (0..50).map(|_| unique("many-pod")).collect();
    let start = Instant::now();
    let mut pods = Vec::new();
    for name in &names {
        pods.push(cluster.create_pod(name, &node, json!({})).await);
    }
    let created = start.elapsed();
    edge.until("all pods", |edge| edge.store.held.len() == 50).await;
    let down = start.elapsed() - created;
    let start = Instant::now();
    for pod in &pods {
        edge.report(status(pod, running()));
    }
    edge.until("all answers", |edge| edge.acked.len() == 51).await;
    // For the reader of the test's output.
    #[allow(clippy::print_stderr)]
    {
        eprintln!("50 pods: created {created:?}, down after {down:?} more, 50 statuses up {:?}", start.elapsed());
    }
    for name in &names {
        force_delete(&cluster.pods(), name).await;
    }
    edge.until("the end", |edge| edge.store.held.is_empty()).await;
}
