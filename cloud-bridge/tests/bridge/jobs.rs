//! Fleet jobs with a scripted node: the path of an order and its result, and the limits of a hostile node.

use std::time::Duration;

use apimachinery::user::{UserInfo, account_groups, account_name};
use cloud_bridge::bridge::Settings;
use edge_protocol::message::{Order, Report, Work};
use http::Request;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::fixture::{Cluster, TestBridge, eventually, node_object, twins, unique};
use crate::support::{Edge, Store};

const DEFINITIONS: &str = include_str!("../../../deploy/bridge/operations/crds.yaml");
const RIGHTS: &str = include_str!("../../../deploy/bridge/rbac.yaml");

const UPGRADE: (&str, &str) = ("NodeUpgradeJob", "nodeupgradejobs");
const PREPULL: (&str, &str) = ("ImagePrePullJob", "imageprepulljobs");
const CONFIGURE: (&str, &str) = ("ConfigUpdateJob", "configupdatejobs");

struct Lab {
    cluster: Cluster,
}

impl Lab {
    async fn open() -> Self {
        Self::over(Cluster::open().await).await
    }

    async fn over(cluster: Cluster) -> Self {
        let lab = Self { cluster };
        for text in DEFINITIONS.split("\n---\n") {
            lab.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text).await;
        }
        for (_, plural) in [UPGRADE, PREPULL, CONFIGURE] {
            eventually("the definitions", || async {
                let path = format!("/apis/operations.kubeedge.io/v1alpha2/{plural}");
                lab.cluster.client.request::<Value>(Request::get(path).body(Vec::new()).unwrap()).await.is_ok()
            })
            .await;
        }
        lab
    }

    async fn apply(&self, list: &str, text: &str) {
        let name = text.lines().find_map(|line| line.strip_prefix("  name: ")).unwrap();
        let request = Request::patch(format!("{list}/{name}?fieldManager=test&force=true&fieldValidation=Strict"));
        let request = request.header("content-type", "application/apply-patch+yaml").body(text.as_bytes().to_vec());
        let _: Value = self.cluster.client.request(request.unwrap()).await.unwrap();
    }

    fn jobs(&self, kind: (&str, &str)) -> Api<DynamicObject> {
        self.jobs_of(kind, "v1alpha2")
    }

    fn jobs_of(&self, (kind, plural): (&str, &str), version: &str) -> Api<DynamicObject> {
        let (group, version) = ("operations.kubeedge.io".to_owned(), version.to_owned());
        let api_version = format!("{group}/{version}");
        let resource = ApiResource { group, version, api_version, kind: kind.into(), plural: plural.into() };
        Api::all_with(self.cluster.client.clone(), &resource)
    }

    /// Creates a job; returns its uid.
    async fn job(&self, kind: (&str, &str), name: &str, spec: Value) -> String {
        let body = json!({"apiVersion": "operations.kubeedge.io/v1alpha2", "kind": kind.0, "metadata": {"name": name}, "spec": spec});
        let made = self.jobs(kind).create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await;
        made.unwrap().uid().unwrap()
    }

    async fn status(&self, kind: (&str, &str), name: &str) -> Value {
        self.jobs(kind).get(name).await.unwrap().data["status"].clone()
    }

    async fn until_phase(&self, kind: (&str, &str), name: &str, phase: &str) -> Value {
        eventually(&format!("{name} to be {phase}"), || async { self.status(kind, name).await["phase"] == phase })
            .await;
        self.status(kind, name).await
    }

    async fn edge(&self, bridge: &TestBridge, node: &str) -> Edge {
        let (_, edge) = bridge.edge(&self.cluster, node).await;
        edge
    }

    async fn annotate(&self, kind: (&str, &str), name: &str, annotations: Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.jobs(kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete(&self, kind: (&str, &str), name: &str) {
        self.jobs(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// The order of the node for this job, after it has arrived.
async fn order(edge: &mut Edge, uid: &str) -> Order {
    edge.until("an order", |edge| edge.object("Order", "", uid).is_some()).await;
    serde_json::from_value(edge.object("Order", "", uid).unwrap().body.clone()).unwrap()
}

fn says(job: &str, status: Value) -> Report {
    Report::Order { job: job.to_owned(), status }
}

fn steps(actions: &[&str]) -> Value {
    actions.iter().map(|action| json!({"action": action, "status": "True", "time": "2026-01-01T00:00:00Z"})).collect()
}

fn digest() -> Value {
    json!(format!("sha256:{}", "0a".repeat(32)))
}

#[tokio::test]
async fn an_order_goes_down_and_what_comes_of_it_goes_up() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (node, name) = (unique("pi"), unique("to-2"));
    let mut edge = lab.edge(&bridge, &node).await;
    let spec = json!({"version": "v2", "image": "r.example/sampan:v2", "imageDigestGatter": {"arm64": digest()},
        "nodeNames": [node], "checkItems": ["disk"], "timeoutSeconds": 60, "requireConfirmation": true});
    let uid = lab.job(UPGRADE, &name, spec).await;
    let order_of = order(&mut edge, &uid).await;
    assert_eq!((&*order_of.job.name, order_of.timeout_seconds, &*order_of.check_items[0]), (&*name, 60, "disk"));
    assert!(order_of.require_confirmation && !order_of.confirmed);
    let Work::Upgrade { image, .. } = &order_of.work else { panic!("{order_of:?}") };
    assert_eq!(image, "r.example/sampan");
    assert_eq!(lab.status(UPGRADE, &name).await["nodeStatus"][0]["phase"], "InProgress", "before the node is told");

    let waits = json!([steps(&["Check"])[0], {"action": "WaitingConfirmation", "status": "False", "time": "t"}]);
    edge.report_and_wait(says(&uid, json!({"phase": "InProgress", "actionFlow": waits}))).await.unwrap();
    assert_eq!(lab.status(UPGRADE, &name).await["nodeStatus"][0]["actionFlow"][1]["action"], "WaitingConfirmation");
    lab.annotate(UPGRADE, &name, json!({"sampan.dev/confirm": uid})).await;
    let mut confirmed = false;
    for _ in 0..100 {
        edge.linger(Duration::from_millis(50)).await;
        confirmed = order(&mut edge, &uid).await.confirmed;
        if confirmed {
            break;
        }
    }
    assert!(confirmed);
    let done = json!({"phase": "Successful", "currentVersion": "v2", "historicVersion": "v1",
        "actionFlow": steps(&["Check", "WaitingConfirmation", "BackUp", "Upgrade"])});
    edge.report_and_wait(says(&uid, done)).await.unwrap();
    let status = lab.until_phase(UPGRADE, &name, "Completed").await;
    assert_eq!(status["reason"], "1 node: 1 successful");
    assert_eq!((&status["counts"]["total"], &status["counts"]["successful"]), (&json!(1), &json!(1)));
    let entry = &status["nodeStatus"][0];
    assert_eq!(
        (&entry["nodeName"], &entry["phase"], &entry["currentVersion"]),
        (&json!(node), &json!("Successful"), &json!("v2"))
    );
    assert_eq!(entry["actionFlow"].as_array().unwrap().len(), 4);
    edge.until("the end of the order", |edge| edge.object("Order", "", &uid).is_none()).await;
    // The repeated report, as after a broken link, has no effect.
    edge.report_and_wait(says(&uid, json!({"phase": "Failure"}))).await.unwrap();
    assert_eq!(lab.status(UPGRADE, &name).await["nodeStatus"][0]["phase"], "Successful");
    let events: Api<Event> = Api::namespaced(lab.cluster.client.clone(), "default");
    eventually("events", || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        let of = |reason: &str| {
            all.iter().any(|event| {
                event.involved_object.name.as_deref() == Some(&name) && event.reason.as_deref() == Some(reason)
            })
        };
        of("Started") && of("Completed")
    })
    .await;
    lab.delete(UPGRADE, &name).await;
}

#[tokio::test]
async fn a_node_speaks_of_its_own_orders_only() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (evil, victim, name, other) = (unique("evil"), unique("victim"), unique("own"), unique("theirs"));
    let (mut edge, mut theirs) = (lab.edge(&bridge, &evil).await, lab.edge(&bridge, &victim).await);
    let fields = json!({"logs.max-files": "3"});
    let uid = lab.job(CONFIGURE, &name, json!({"nodeNames": [evil], "updateFields": fields})).await;
    let their = lab.job(CONFIGURE, &other, json!({"nodeNames": [victim], "updateFields": fields})).await;
    order(&mut edge, &uid).await;
    order(&mut theirs, &their).await;
    assert!(edge.object("Order", "", &their).is_none());
    for (job, status, refused) in [
        (&*their, json!({"phase": "Failure"}), true),
        (&*uid, json!({"phase": [1]}), true),
        (&*uid, json!("x"), true),
        ("no-such-job", json!({"phase": "Failure"}), false),
        ("../../x", json!({"phase": "Failure"}), false),
    ] {
        let answered = edge.report_and_wait(says(job, status)).await;
        assert_eq!(answered.is_err(), refused, "{job}: {answered:?}");
    }
    assert_eq!(lab.status(CONFIGURE, &other).await["nodeStatus"][0]["phase"], "InProgress");
    let step =
        json!({"action": "a".repeat(5000), "status": "False", "reason": "r".repeat(5000), "time": "t".repeat(50)});
    let long = json!({"phase": "Failure", "reason": "x".repeat(100_000), "actionFlow": vec![step; 100],
        "imageStatus": vec![json!({"image": "i", "status": "True"}); 2000], "nodeName": victim});
    edge.report_and_wait(says(&uid, long)).await.unwrap();
    let status = lab.until_phase(CONFIGURE, &name, "Failure").await;
    assert!(status.to_string().len() < 30_000, "{}", status.to_string().len());
    assert_eq!(status["nodeStatus"][0]["nodeName"], json!(evil));
    // Reports about a deleted order are ignored.
    lab.delete(CONFIGURE, &other).await;
    theirs.until("the end of the order", |edge| edge.object("Order", "", &their).is_none()).await;
    theirs.report_and_wait(says(&their, json!({"phase": "Successful"}))).await.unwrap();
    lab.delete(CONFIGURE, &name).await;
}

#[tokio::test]
async fn a_secret_travels_with_the_order_and_no_other_secret_does() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let node = unique("pull");
    let mut edge = lab.edge(&bridge, &node).await;
    let secrets: Api<Secret> = Api::namespaced(lab.cluster.client.clone(), "default");
    let config = r#"{"auths":{"r.example":{"auth":"dTpw"}}}"#;
    for (name, kind, key) in
        [("pull", "kubernetes.io/dockerconfigjson", ".dockerconfigjson"), ("plain", "Opaque", ".dockerconfigjson")]
    {
        let secret = json!({"metadata": {"name": format!("{name}-{node}")}, "type": kind, "stringData": {key: config}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }
    let spec = |secret: &str| {
        json!({"imagePrePullTemplate": {"images": ["r.example/a:1", "b"], "retryTimes": 2,
        "nodeNames": [node], "imageSecrets": secret}})
    };
    let name = unique("good");
    let uid = lab.job(PREPULL, &name, spec(&format!("default/pull-{node}"))).await;
    let Work::PrePull { images, secrets, retry_times } = order(&mut edge, &uid).await.work else { panic!() };
    assert_eq!((images.len(), secrets, retry_times), (2, vec![config.to_owned()], 2));
    let images = json!([{"image": "r.example/a:1", "status": "True"}, {"image": "b", "status": "False", "reason": "no such image"}]);
    let said = json!({"phase": "Failure", "reason": "b: no such image", "imageStatus": images, "actionFlow": steps(&["Check"])});
    edge.report_and_wait(says(&uid, said)).await.unwrap();
    let status = lab.until_phase(PREPULL, &name, "Failure").await;
    assert_eq!(status["nodeStatus"][0]["imageStatus"], images);
    for (secret, why) in
        [(format!("default/plain-{node}"), "is not of type"), ("default/missing".into(), "is not there")]
    {
        let name = unique("bad");
        let uid = lab.job(PREPULL, &name, spec(&secret)).await;
        let status = lab.until_phase(PREPULL, &name, "Failure").await;
        assert!(status["reason"].as_str().unwrap().contains(why), "{status}");
        edge.linger(Duration::from_millis(300)).await;
        assert!(edge.object("Order", "", &uid).is_none());
        lab.delete(PREPULL, &name).await;
    }
    lab.delete(PREPULL, &name).await;
}

#[tokio::test]
async fn an_older_program_and_one_that_cannot_take_an_order_have_failed() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let (old, odd, name) = (unique("old"), unique("odd"), unique("mixed"));
    let identity = bridge.join(&lab.cluster, &old).await;
    let mut edge = Edge::connect_without_orders(bridge.address, &identity, Store::default()).await;
    edge.report_and_wait(Report::Node { node: node_object(&old) }).await.unwrap();
    edge.until("the first list", |edge| edge.synced).await;
    let mut odd_edge = lab.edge(&bridge, &odd).await;
    let spec = json!({"nodeNames": [old, odd], "updateFields": {"a": "1"}, "concurrency": 2, "failureTolerate": "1"});
    let uid = lab.job(CONFIGURE, &name, spec).await;
    order(&mut odd_edge, &uid).await;
    let key = odd_edge.object("Order", "", &uid).unwrap().digest.key.clone();
    odd_edge.session.nack(&key, &uid, "no such thing here");
    odd_edge.linger(Duration::from_millis(200)).await;
    let status = lab.until_phase(CONFIGURE, &name, "Completed").await;
    let reasons: Vec<&str> =
        status["nodeStatus"].as_array().unwrap().iter().filter_map(|node| node["reason"].as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("knows no jobs")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("no such thing here")), "{reasons:?}");
    assert!(edge.object("Order", "", &uid).is_none() && edge.puts == 0);
    lab.delete(CONFIGURE, &name).await;
}

#[tokio::test]
async fn s17_concurrency_of_one_holds_over_two_bridges() {
    let lab = Lab::open().await;
    let (first, second) = twins();
    let (a, b) = (TestBridge::with(&lab.cluster, first).await, TestBridge::with(&lab.cluster, second).await);
    let (one, two, name) = (unique("one"), unique("two"), unique("both"));
    let (identity, mut edge) = a.edge(&lab.cluster, &one).await;
    let mut other = lab.edge(&b, &two).await;
    let hold = |value: Value| {
        let (nodes, name) = (lab.cluster.nodes(), two.clone());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"sampan.dev/hold": value}}}));
        async move { nodes.patch(&name, &PatchParams::default(), &patch).await.map(drop).unwrap() }
    };
    hold(json!("true")).await;
    // Both bridges have seen it.
    other.linger(Duration::from_millis(500)).await;
    let selector = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [one, two, "gone"]}]});
    let spec = json!({"labelSelector": selector, "updateFields": {"a": "1"}, "concurrency": 1, "failureTolerate": "0"});
    let uid = lab.job(CONFIGURE, &name, spec).await;
    order(&mut edge, &uid).await;
    assert_eq!(lab.status(CONFIGURE, &name).await["reason"], "2 nodes: 1 in progress, 1 pending (1 held)");
    hold(Value::Null).await;
    other.linger(Duration::from_millis(500)).await;
    assert!(other.object("Order", "", &uid).is_none(), "one at a time, over both");

    // It continues at the other bridge, still holds the order, and receives nothing again.
    let mut moved = b.connect(&identity, std::mem::take(&mut edge.store)).await;
    moved.report_and_wait(Report::Node { node: node_object(&one) }).await.unwrap();
    moved.until("the full list", |edge| edge.synced).await;
    assert_eq!((moved.puts, moved.deleted.len()), (0, 0));
    moved.report_and_wait(says(&uid, json!({"phase": "Successful"}))).await.unwrap();
    moved.until("its end", |edge| edge.object("Order", "", &uid).is_none()).await;
    order(&mut other, &uid).await;
    other.report_and_wait(says(&uid, json!({"phase": "Successful"}))).await.unwrap();
    let status = lab.until_phase(CONFIGURE, &name, "Completed").await;
    assert_eq!(status["counts"]["total"], 2);
    lab.delete(CONFIGURE, &name).await;
}

#[tokio::test]
async fn s17_restarted_bridge_withdraws_and_repeats_no_order() {
    let lab = Lab::open().await;
    let (first, second) = twins();
    let a = TestBridge::with(&lab.cluster, first).await;
    let (node, name) = (unique("again"), unique("kept"));
    let (identity, mut edge) = a.edge(&lab.cluster, &node).await;
    let secrets: Api<Secret> = Api::namespaced(lab.cluster.client.clone(), "default");
    let secret = json!({"metadata": {"name": format!("pull-{node}")}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": "{}"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let spec = json!({"imagePrePullTemplate": {"images": ["a"], "nodeNames": [node], "imageSecrets": format!("default/pull-{node}")}});
    let uid = lab.job(PREPULL, &name, spec).await;
    order(&mut edge, &uid).await;
    let store = std::mem::take(&mut edge.store);
    drop(edge);
    a.kill();
    // This bridge does not know the job when the node connects.
    let b = TestBridge::with(&lab.cluster, second).await;
    let mut edge = b.connect(&identity, store).await;
    edge.report_and_wait(Report::Node { node: node_object(&node) }).await.unwrap();
    edge.until("the full list", |edge| edge.synced).await;
    edge.linger(Duration::from_millis(500)).await;
    assert_eq!((edge.puts, edge.deleted.len(), edge.held()), (0, 0, 1));
    edge.report_and_wait(says(&uid, json!({"phase": "Successful"}))).await.unwrap();
    lab.until_phase(PREPULL, &name, "Completed").await;
    edge.until("its end", |edge| edge.held() == 0).await;
    lab.delete(PREPULL, &name).await;
}

#[tokio::test]
async fn a_job_on_a_site_reads_no_secret_without_a_right() {
    let lab = Lab::open().await;
    let settings = Settings { is_master: true, ..Settings::default() };
    let bridge = TestBridge::with_settings(
        &lab.cluster,
        cloud_bridge::pki::authority::Authority::create("site").unwrap(),
        settings,
    )
    .await;
    let (node, name) = (unique("site"), unique("theirs"));
    let mut edge = lab.edge(&bridge, &node).await;
    let secrets: Api<Secret> = Api::namespaced(lab.cluster.client.clone(), "default");
    let secret = json!({"metadata": {"name": format!("pull-{node}")}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": "{}"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let spec = json!({"imagePrePullTemplate": {"images": ["a"], "nodeNames": [node], "imageSecrets": format!("default/pull-{node}")}});
    lab.job(PREPULL, &name, spec).await;
    let status = lab.until_phase(PREPULL, &name, "Failure").await;
    assert!(status["reason"].as_str().unwrap().contains("may not be read"), "{status}");
    edge.linger(Duration::from_millis(100)).await;
    lab.delete(PREPULL, &name).await;
}

#[tokio::test]
async fn jobs_that_cannot_be_right_are_refused_by_the_definitions() {
    let lab = Lab::open().await;
    let name = unique("wrong");
    let refused = |kind: (&'static str, &'static str), version: &'static str, spec: Value| {
        let (jobs, name) = (lab.jobs_of(kind, version), name.clone());
        async move {
            let body = json!({"apiVersion": format!("operations.kubeedge.io/{version}"), "kind": kind.0, "metadata": {"name": name}, "spec": spec});
            let made = jobs.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await;
            made.map(drop).map_err(|error| error.to_string())
        }
    };
    let fields = json!({"a": "1"});
    for (spec, why) in [
        (json!({"updateFields": fields}), "nodeNames or by a labelSelector"),
        (json!({"updateFields": fields, "nodeNames": []}), "nodeNames or by a labelSelector"),
        (json!({"updateFields": fields, "nodeNames": ["a"], "labelSelector": {}}), "nodeNames or by a labelSelector"),
        (json!({"updateFields": fields, "nodeNames": ["a"], "failureTolerate": "2"}), "failureTolerate"),
        (json!({"updateFields": fields, "nodeNames": ["a"], "failureTolerate": "10%"}), "failureTolerate"),
        (json!({"updateFields": fields, "nodeNames": ["a"], "timeoutSeconds": 0}), "timeoutSeconds"),
        (json!({"updateFields": fields, "nodeNames": ["a"], "concurrency": 0}), "concurrency"),
        (json!({"updateFields": {}, "nodeNames": ["a"]}), "updateFields"),
    ] {
        let error = refused(CONFIGURE, "v1alpha2", spec.clone()).await.unwrap_err();
        assert!(error.contains(why), "{spec}: {error}");
    }
    let upgrade =
        |digests: Value| json!({"version": "v2", "image": "a", "nodeNames": ["a"], "imageDigestGatter": digests});
    for (digests, why) in
        [(json!({}), "says a digest"), (json!({"arm64": "sha256:12"}), "arm64"), (json!(null), "imageDigestGatter")]
    {
        let error = refused(UPGRADE, "v1alpha2", upgrade(digests)).await.unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let error = refused(PREPULL, "v1alpha2", json!({"imagePrePullTemplate": {"images": [], "nodeNames": ["a"]}}))
        .await
        .unwrap_err();
    assert!(error.contains("images"), "{error}");
    // The work of a job cannot be changed, but its concurrency can.
    refused(UPGRADE, "v1alpha2", upgrade(json!({"arm64": digest()}))).await.unwrap();
    let patch = |spec: Value| {
        let (jobs, name) = (lab.jobs(UPGRADE), name.clone());
        async move { jobs.patch(&name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await }
    };
    for spec in
        [json!({"version": "v3"}), json!({"nodeNames": ["a", "b"]}), json!({"imageDigestGatter": {"amd64": digest()}})]
    {
        let error = patch(spec).await.unwrap_err().to_string();
        assert!(error.contains("make another job"), "{error}");
    }
    patch(json!({"concurrency": 5})).await.unwrap();
    lab.delete(UPGRADE, &name).await;
}

#[tokio::test]
async fn jobs_of_the_older_version_are_taken_as_they_are() {
    let lab = Lab::open().await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let node = unique("older");
    let mut edge = lab.edge(&bridge, &node).await;
    // The same form as KubeEdge's own samples.
    let (upgrade, prepull) = (unique("upgrade-example"), unique("imageprepull-example"));
    let mut spec = json!({"version": "v1.16.0", "checkItems": ["cpu", "mem", "disk"], "failureTolerate": "0.3", "concurrency": 2,
        "timeoutSeconds": 180, "labelSelector": {"matchLabels": {"kubernetes.io/hostname": node}}});
    let make = |kind: (&'static str, &'static str), name: &str, spec: &Value| {
        let version = "operations.kubeedge.io/v1alpha1";
        let body = json!({"apiVersion": version, "kind": kind.0, "metadata": {"name": name}, "spec": spec});
        let jobs = lab.jobs_of(kind, "v1alpha1");
        async move { jobs.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await }
    };
    let error = make(UPGRADE, &upgrade, &spec).await.unwrap_err().to_string();
    assert!(error.contains("imageDigestGatter"), "no program by its name alone: {error}");
    (spec["image"], spec["imageDigestGatter"]) = (json!("a"), json!({"arm64": digest()}));
    let up = make(UPGRADE, &upgrade, &spec).await.unwrap().uid().unwrap();
    let spec = json!({"images": ["busybox:latest"], "nodeNames": [node], "timeoutSeconds": 300, "retryTimes": 1});
    let pull = make(PREPULL, &prepull, &json!({"imagePrePullTemplate": spec})).await.unwrap().uid().unwrap();
    for (kind, name, uid) in [(UPGRADE, &upgrade, &up), (PREPULL, &prepull, &pull)] {
        order(&mut edge, uid).await;
        edge.report_and_wait(says(uid, json!({"phase": "Successful"}))).await.unwrap();
        lab.until_phase(kind, name, "Completed").await;
        let shown = lab.jobs_of(kind, "v1alpha1").get(name).await.unwrap();
        assert_eq!(shown.data["status"]["nodeStatus"][0]["phase"], "Successful");
        lab.delete(kind, name).await;
    }
}

/// The same with KubeEdge's definitions: they check less, and their status has no numbers.
#[tokio::test]
async fn looser_definitions_do_and_the_job_says_what_it_lacks() {
    let lab = Lab { cluster: Cluster::open().await };
    let step = json!({"type": "object", "properties": {"action": {"type": "string"}, "status": {"type": "string"},
        "reason": {"type": "string"}, "time": {"type": "string"}}});
    let node = json!({"type": "object", "properties": {"nodeName": {"type": "string"}, "phase": {"type": "string"},
        "reason": {"type": "string"}, "actionFlow": {"type": "array", "items": step}}});
    let status = json!({"type": "object", "required": ["phase"], "properties": {"phase": {"type": "string"},
        "reason": {"type": "string"}, "nodeStatus": {"type": "array", "items": node}}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "status": status}});
    let (kind, plural) = CONFIGURE;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.operations.kubeedge.io")}, "spec": {
            "group": "operations.kubeedge.io", "scope": "Cluster",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1alpha2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let request =
        Request::post(path).header("content-type", "application/json").body(definition.to_string().into_bytes());
    let _: Value = lab.cluster.client.request(request.unwrap()).await.unwrap();
    eventually("the definition", || async { lab.jobs(CONFIGURE).list(&ListParams::default()).await.is_ok() }).await;
    let bridge = TestBridge::start(&lab.cluster).await;
    let pi = unique("loose");
    let mut edge = lab.edge(&bridge, &pi).await;
    let fields = json!({"a": "1"});
    for (number, (spec, why)) in [
        (json!({"updateFields": fields}), "neither nodeNames nor a labelSelector"),
        (
            json!({"updateFields": fields, "nodeNames": ["a"], "labelSelector": {}}),
            "both nodeNames and a labelSelector",
        ),
        (json!({"updateFields": fields, "nodeNames": [pi], "failureTolerate": "some"}), "\"some\""),
        (json!({"nodeNames": [pi]}), "no updateFields"),
        (
            json!({"updateFields": fields, "labelSelector": {"matchLabels": {"no": "such"}}}),
            "no node that a bridge speaks for",
        ),
        (json!({"updateFields": fields, "nodeNames": ["no-such-node"], "failureTolerate": "0"}), "1 failed"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("wrong-{number}");
        lab.job(CONFIGURE, &name, spec).await;
        let status = lab.until_phase(CONFIGURE, &name, "Failure").await;
        assert!(status["reason"].as_str().unwrap().contains(why), "{status}");
    }
    let uid = lab.job(CONFIGURE, "right", json!({"updateFields": fields, "nodeNames": [pi]})).await;
    order(&mut edge, &uid).await;
    edge.report_and_wait(says(&uid, json!({"phase": "Successful", "actionFlow": steps(&["Check", "Update"])})))
        .await
        .unwrap();
    let status = lab.until_phase(CONFIGURE, "right", "Completed").await;
    assert_eq!((&status["reason"], &status["counts"]), (&json!("1 node: 1 successful"), &Value::Null));
}

#[tokio::test]
async fn a_bridge_with_its_own_rights_alone_does_jobs() {
    let (namespace, account) = ("sampan-system", "cloud-bridge");
    let user = UserInfo::new(&account_name(namespace, account), account_groups(namespace));
    let cluster = Cluster::open_as(user);
    let lab = Lab { cluster };
    for text in RIGHTS.split("\n---\n") {
        let kind = text.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap();
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let list = match kind {
            "Namespace" => "/api/v1/namespaces".to_owned(),
            "ClusterRole" => format!("{rbac}/clusterroles"),
            "ClusterRoleBinding" => format!("{rbac}/clusterrolebindings"),
            "Role" => format!("{rbac}/namespaces/{namespace}/roles"),
            "RoleBinding" => format!("{rbac}/namespaces/{namespace}/rolebindings"),
            _ => continue,
        };
        lab.apply(&list, text).await;
    }
    let lab = Lab::over(lab.cluster).await;
    let secrets: Api<Secret> = Api::namespaced(lab.cluster.client.clone(), namespace);
    let secret = json!({"metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let bridge = TestBridge::start(&lab.cluster).await;
    let node = unique("rights");
    let mut edge = lab.edge(&bridge, &node).await;
    let spec = |secret: &str| {
        json!({"imagePrePullTemplate": {"images": ["a"], "imageSecrets": secret,
        "labelSelector": {"matchLabels": {"kubernetes.io/hostname": node}}}})
    };
    let uid = lab.job(PREPULL, "mine", spec("sampan-system/pull")).await;
    order(&mut edge, &uid).await;
    edge.report_and_wait(says(&uid, json!({"phase": "Successful"}))).await.unwrap();
    lab.until_phase(PREPULL, "mine", "Completed").await;
    lab.job(PREPULL, "theirs", spec("default/pull")).await;
    let status = lab.until_phase(PREPULL, "theirs", "Failure").await;
    assert!(status["reason"].as_str().unwrap().contains("may not be read"), "{status}");
    let events: Api<Event> = Api::namespaced(lab.cluster.client.clone(), "default");
    eventually("an event", || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.iter().any(|event| event.involved_object.name.as_deref() == Some("mine"))
    })
    .await;
}
