//! Races: renewal and join at two bridges, completion and change of a node, events with one name, a deletion and an API
//! that does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cloud_bridge::bridge::Settings;
use cloud_bridge::bridge::clients::Clients;
use cloud_bridge::pki::authority::Authority;
use edge_protocol::message::{RenewAnswer, Report};
use futures::FutureExt;
use http::Method;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use crate::support::fixture::{Cluster, TestBridge, force_delete, node_object, twins, unique};
use crate::support::interpose::{Instead, Seen, interpose};
use crate::support::{Store, ask};

/// A bridge whose own requests the test sees first.
async fn bridge(
    cluster: &Cluster,
    authority: Authority,
    look: impl Fn(Seen) -> futures::future::BoxFuture<'static, Instead> + Send + Sync + 'static,
) -> TestBridge {
    let (inner, own) = (cluster.clients.clone(), interpose(cluster.client.clone(), look));
    let clients = Clients::new(own.clone(), move |node| inner.as_node(node));
    let settings = Settings { replicated: false, ..Settings::default() };
    TestBridge::over(clients, &own, authority, settings).await
}

/// A stolen device renews its certificate at one bridge, whose watch is slow, while its replacement joins at another:
/// the renewed certificate is invalid, and further renewals are refused.
#[tokio::test]
async fn g28_a_renewal_beside_a_join_is_void() {
    let cluster = Cluster::open().await;
    let (one, two) = twins();
    let node = unique("renewing");
    let path = format!("/api/v1/nodes/{node}");
    // Its watch delivers nothing after the first list.
    let first = bridge(&cluster, one, |seen| {
        let silent = seen.path == "/api/v1/nodes" && seen.query.contains("watch=");
        async move { if silent { std::future::pending().await } else { None } }.boxed()
    })
    .await;
    let (asked, go, held) = (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let (telling, going, once) = (Arc::clone(&asked), Arc::clone(&go), Arc::clone(&held));
    let second = bridge(&cluster, two, move |seen| {
        let (telling, going) = (Arc::clone(&telling), Arc::clone(&going));
        let writes = seen.method == Method::PATCH && seen.path == path && once.swap(false, Ordering::SeqCst);
        async move {
            if writes {
                telling.notify_one();
                going.notified().await;
            }
            None
        }
        .boxed()
    })
    .await;
    let (stolen, mut edge) = first.edge(&cluster, &node).await;

    held.store(true, Ordering::SeqCst);
    let joining = async {
        let new = second.join(&cluster, &node).await;
        (new, Instant::now())
    };
    let renewing = async {
        // The join has started and is not written yet.
        asked.notified().await;
        let (answer, key) = edge.renew("x").await;
        go.notify_one();
        (answer, key)
    };
    let ((new, _), (answer, key)) = futures::join!(joining, renewing);
    let RenewAnswer::Issued { certificate, .. } = answer else { panic!("nothing spoke against it yet: {answer:?}") };
    let renewed = stolen.renewed(certificate.0, key);
    let standing = async |identity| {
        ask("POST", second.address, &second.ca, Some(identity), "/v1/identity", "Content-Length: 0\r\n").await
    };
    for old in [&stolen, &renewed] {
        let (code, text) = standing(old).await;
        assert!(code == 403 && text.contains("before the node joined again"), "{code} {text}");
    }
    assert_eq!(standing(&new).await.0, 200);
    // The first bridge does not know of the join, and checks before it signs another certificate.
    let (answer, _) = edge.renew("x").await;
    assert!(matches!(&answer, RenewAnswer::Refused { reason } if reason.contains("joined again")), "{answer:?}");
    drop(cluster.nodes().delete(&node, &DeleteParams::default()).await);
}

/// An administrator taints a node at the moment when the bridge completes it: both changes stay.
#[tokio::test]
async fn taints_that_come_while_a_node_is_completed_stay() {
    let cluster = Cluster::open().await;
    let (node, tries) = (unique("tainted"), Arc::new(AtomicU32::new(0)));
    let (path, admin, counted) = (format!("/api/v1/nodes/{node}"), cluster.nodes(), Arc::clone(&tries));
    let bridge = bridge(&cluster, Authority::create("test").unwrap(), move |seen| {
        let completes = seen.method == Method::PATCH
            && seen.path == path
            && !seen.body["metadata"]["labels"]["node-role.kubernetes.io/edge"].is_null();
        let first = completes && counted.fetch_add(1, Ordering::SeqCst) == 0;
        let (admin, name) = (admin.clone(), path.rsplit('/').next().unwrap_or_default().to_owned());
        async move {
            if first {
                let taint = json!({"key": "admins", "effect": "NoExecute"});
                let patch = Patch::Merge(json!({"spec": {"taints": [taint]}}));
                admin.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
            None
        }
        .boxed()
    })
    .await;
    let identity = bridge.join(&cluster, &node).await;
    let mut edge = bridge.connect(&identity, Store::default()).await;
    let mut object = node_object(&node);
    object["spec"] = json!({"taints": [{"key": "nodes-own", "effect": "NoSchedule"}]});
    edge.report_and_wait(Report::Node { node: object }).await.unwrap();
    let found = cluster.nodes().get(&node).await.unwrap();
    assert!(found.labels().contains_key("node-role.kubernetes.io/edge"));
    let mut keys: Vec<_> =
        found.spec.unwrap_or_default().taints.into_iter().flatten().map(|t| (t.key, t.effect)).collect();
    keys.sort();
    let pair = |key: &str, effect: &str| (key.to_owned(), effect.to_owned());
    assert_eq!(keys, [pair("admins", "NoExecute"), pair("nodes-own", "NoSchedule")]);
    assert_eq!(tries.load(Ordering::SeqCst), 2, "the first was on an older version");
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}

fn event(node: &str, uid: &str, name: &str, message: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": uid, "apiVersion": "v1"},
        "reason": "Test", "message": message, "type": "Normal", "count": 1,
        "source": {"component": "kubelet", "host": node},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"})
}

/// Events of pods that start together share syncs of the API's disk.
#[tokio::test]
async fn events_of_four_objects_are_written_at_once() {
    let cluster = Cluster::open().await;
    let node = unique("burst");
    let (under_way, most) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let (together, seen_most) = (Arc::new(Barrier::new(4)), Arc::clone(&most));
    let ours = node.clone();
    let bridge = bridge(&cluster, Authority::create("test").unwrap(), move |seen| {
        let (together, under_way, most) = (Arc::clone(&together), Arc::clone(&under_way), Arc::clone(&seen_most));
        let is_event = seen.method == Method::POST
            && seen.body["involvedObject"]["name"].as_str().is_some_and(|name| name.starts_with(&ours));
        async move {
            if is_event {
                most.fetch_max(under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                together.wait().await;
                under_way.fetch_sub(1, Ordering::SeqCst);
            }
            None
        }
        .boxed()
    })
    .await;
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    let (mut names, mut reports) = (Vec::new(), Vec::new());
    for number in 0..8 {
        let name = format!("{node}-{number}");
        let pod = cluster.create_pod(&name, &node, json!({})).await;
        let mut event = event(&node, &pod.uid().unwrap(), &format!("{name}.1"), "once");
        event["involvedObject"]["kind"] = "Pod".into();
        event["involvedObject"]["namespace"] = "default".into();
        event["involvedObject"]["name"] = name.clone().into();
        reports.push(edge.report(Report::Event { event }));
        names.push(name);
    }
    edge.until("the events", |edge| reports.iter().all(|id| edge.acked.contains(id))).await;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    for name in names {
        force_delete(&cluster.pods(), &name).await;
    }
}

/// The name of an event exists: the node's own event was written before, and another node's stays unchanged.
#[tokio::test]
async fn g27_events_whose_name_is_taken_replace_nobodys() {
    let cluster = Cluster::open().await;
    let bridge = TestBridge::start(&cluster).await;
    let node = unique("speaker");
    let (identity, mut edge) = bridge.edge(&cluster, &node).await;
    let uid = cluster.nodes().get(&node).await.unwrap().uid().unwrap();
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let (own, foreign) = (unique("own"), unique("foreign"));
    let theirs: Event = serde_json::from_value(event("somebody", "else", &foreign, "theirs")).unwrap();
    let before = events.create(&PostParams::default(), &theirs).await.unwrap();

    let lie = Report::Event { event: event(&node, &uid, &foreign, "a lie") };
    let refused = edge.report_and_wait(lie.clone()).await;
    assert!(refused.as_ref().is_err_and(|why| why.contains("somebody else")), "{refused:?}");
    let repeated = edge.report_and_wait(lie).await;
    assert!(repeated.is_err(), "{repeated:?}");
    let after = events.get(&foreign).await.unwrap();
    assert_eq!((after.message, after.metadata.resource_version), (before.message, before.metadata.resource_version));

    // An event that was written before a connection broke off is sent again over the next one, which does not know it.
    let report = Report::Event { event: event(&node, &uid, &own, "once") };
    edge.report_and_wait(report.clone()).await.unwrap();
    let mut next = bridge.connect(&identity, std::mem::take(&mut edge.store)).await;
    next.report_and_wait(report).await.unwrap();
    assert_eq!(events.get(&own).await.unwrap().count, Some(1));
    // Counted by name and uid: another event with its name is not changed.
    events.delete(&own, &DeleteParams::default()).await.unwrap();
    let usurper: Event = serde_json::from_value(event("somebody", "else", &own, "theirs")).unwrap();
    events.create(&PostParams::default(), &usurper).await.unwrap();
    let again = Report::Event { event: event(&node, &uid, &unique("again"), "once") };
    next.report_and_wait(again).await.unwrap();
    let found = events.get(&own).await.unwrap();
    assert_eq!((found.count, found.message.as_deref()), (Some(1), Some("theirs")));
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
}

/// A node is deleted and the API does not answer at once: the question is repeated.
#[tokio::test]
async fn g28_a_deletion_counts_though_the_api_does_not_answer_at_first() {
    let cluster = Cluster::open().await;
    let (node, failures) = (unique("unsaid"), Arc::new(AtomicU32::new(0)));
    let (path, left) = (format!("/api/v1/nodes/{node}"), Arc::clone(&failures));
    let bridge = bridge(&cluster, Authority::create("test").unwrap(), move |seen| {
        let fails = seen.method == Method::GET
            && seen.path == path
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        async move { fails.then_some(500) }.boxed()
    })
    .await;
    let (_, mut edge) = bridge.edge(&cluster, &node).await;
    failures.store(3, Ordering::SeqCst);
    let start = Instant::now();
    cluster.nodes().delete(&node, &DeleteParams::default()).await.unwrap();
    let why = edge.until_ended().await;
    assert!(why.contains("fresh token"), "{why}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(failures.load(Ordering::SeqCst), 0, "it was asked again");
}
