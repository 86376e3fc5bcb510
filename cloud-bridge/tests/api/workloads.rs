//! Kinds that run pods, as objects over HTTP: defaults, kept and refused fields, scaling and tables. On a real cluster
//! their controllers act on them meanwhile; nothing here depends on that.

use std::time::Duration;

use sampan_json::SetField;
use serde_json::{Value, json};

use crate::harness::{APPLY, Answer, Api, MERGE, STRATEGIC, TABLE};

fn replica_set(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "busybox:1"}]}}},
    })
}

pub(crate) fn with(mut object: Value, path: &[&str], value: Value) -> Value {
    object.set_at(path, value);
    object
}

/// Replaces each named field by a value of the wrong type.
pub(crate) async fn refuses_wrong_types(api: &Api, all: &str, object: &Value, fields: &[(&str, Value)]) {
    for (path, wrong) in fields {
        let path: Vec<&str> = path.split('.').collect();
        let answer: Answer = api.post(all, with(object.clone(), &path, wrong.clone())).await;
        assert_eq!(answer.code, 400, "{path:?} {wrong}: {}", answer.body);
    }
    assert!(api.get(all).await.ok()["items"].as_array().is_some_and(Vec::is_empty));
}

/// The object as it is; on a real cluster after its controller has no more to write: it has created these pods, and
/// they wait for a scheduler that does not exist.
async fn settled(api: &Api, path: &str, replicas: i64) -> Value {
    let seen = |object: &Value| {
        object["status"]["replicas"] == replicas
            && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    };
    api.until(path, |answer| !api.real || seen(&answer.body)).await.ok()
}

#[tokio::test]
async fn a_replica_set_keeps_its_status_and_is_scaled() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "replicasets");
    let made = with(replica_set("r"), &["status"], json!({"replicas": 5}));
    let made = api.post(&all, made).await.ok();
    assert_eq!((&made["metadata"]["generation"], &made["status"]["replicas"]), (&json!(1), &json!(0)));
    let path = format!("{all}/r");
    let status = json!({"status": {"replicas": 2, "observedGeneration": 1}, "spec": {"replicas": 9}});
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    loop {
        let told = api.patch(&format!("{path}/status"), MERGE, status.clone()).await.ok();
        assert_eq!((&told["spec"]["replicas"], &told["status"]["replicas"]), (&json!(0), &json!(2)));
        let seen = api.get(&format!("{path}/scale")).await.ok();
        assert_eq!((&seen["spec"], &seen["status"]["selector"]), (&json!({}), &json!("app=r")));
        if seen["status"]["replicas"] == 2 {
            break;
        }
        // The controller of a real cluster was faster, and counted none.
        assert!(api.real && tokio::time::Instant::now() < end, "{seen}");
    }
    api.patch(&format!("{path}/scale"), MERGE, json!({"spec": {"replicas": 3}})).await.ok();
    let whole = settled(&api, &path, 3).await;
    assert_eq!((&whole["spec"]["replicas"], &whole["metadata"]["generation"]), (&json!(3), &json!(2)));
    let changed = json!({"status": {"replicas": 7}, "spec": {"minReadySeconds": 1}});
    let changed = api.patch(&path, STRATEGIC, changed).await.ok();
    assert_eq!(
        (&changed["status"]["replicas"], &changed["metadata"]["generation"]),
        (&whole["status"]["replicas"], &json!(3))
    );
    let wrong = json!({"status": {"readyReplicas": 9}});
    let why = "status.readyReplicas: Invalid value: 9: cannot be greater than status.replicas";
    api.patch(&format!("{path}/status"), MERGE, wrong).await.fails_with(422, why);
}

#[tokio::test]
async fn a_replica_set_that_cannot_work_is_refused() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "replicasets");
    let empty = with(replica_set("r"), &["spec", "selector"], json!({}));
    api.post(&all, empty).await.fails(
        422,
        "ReplicaSet.apps \"r\" is invalid: spec.selector: Invalid value: {}: empty selector is invalid for deployment",
    );
    let none = with(replica_set("r"), &["spec", "selector"], Value::Null);
    api.post(&all, none).await.fails_with(422, "spec.selector: Required value");
    let other = with(replica_set("r"), &["spec", "selector", "matchLabels"], json!({"app": "x"}));
    api.post(&all, other).await.fails_with(422, "`selector` does not match template `labels`");
    let fields = [
        ("spec", json!([])),
        ("spec.replicas", json!("1")),
        ("spec.minReadySeconds", json!({})),
        ("spec.selector", json!("app=r")),
        ("spec.selector.matchLabels", json!({"app": 1})),
        ("spec.template", json!([])),
        ("spec.template.metadata", json!("x")),
        ("spec.template.spec", json!(1)),
        ("spec.template.spec.containers", json!({})),
        ("status", json!(1)),
        ("status.replicas", json!("1")),
        ("status.conditions", json!({})),
    ];
    refuses_wrong_types(&api, &all, &replica_set("r"), &fields).await;
}

#[tokio::test]
async fn a_replica_set_is_shown_found_and_applied() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "replicasets");
    let path = format!("{all}/r?fieldManager=one");
    api.patch(&path, APPLY, replica_set("r")).await.ok();
    let mut second = replica_set("r");
    second.set_at(&["spec", "template", "spec", "containers"], json!([{"name": "d", "image": "busybox:2"}]));
    api.patch(&path.replace("=one", "=two"), APPLY, second).await.ok();
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("r"), json!(0), json!(0), json!(0)]);
    assert_eq!(cells[5..], [json!("c,d"), json!("busybox:1,busybox:2"), json!("app=r")]);
    // Kubernetes selects them only by their names, though its source names replicas.
    assert_eq!(api.get(&format!("{all}?fieldSelector=status.replicas%3D0")).await.code, 400);
    assert_eq!(api.delete(&format!("{all}/r"), Value::Null).await.ok()["details"]["kind"], "replicasets");
}

#[tokio::test]
async fn a_daemon_set_counts_changes_of_its_template() {
    const COUNT: &str = "/metadata/annotations/deprecated.daemonset.template.generation";
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "daemonsets");
    let mut set = replica_set("d");
    set.set("kind", "DaemonSet".into());
    // No node of a real cluster has this label, so no pods are created.
    set.set_at(
        &["spec"],
        json!({"selector": {"matchLabels": {"app": "d"}}, "template": {
        "metadata": {"labels": {"app": "d"}},
        "spec": {"nodeSelector": {"none": "x"}, "containers": [{"name": "c", "image": "busybox:1"}]}}}),
    );
    let made = api.post(&all, set.clone()).await.ok();
    assert_eq!((made.pointer(COUNT), &made["status"]["desiredNumberScheduled"]), (Some(&json!("1")), &json!(0)));
    assert_eq!(made["spec"]["updateStrategy"]["rollingUpdate"], json!({"maxUnavailable": 1, "maxSurge": 0}));
    let path = format!("{all}/d");
    let history = api.patch(&path, MERGE, json!({"spec": {"revisionHistoryLimit": 3}})).await.ok();
    assert_eq!((history.pointer(COUNT), &history["metadata"]["generation"]), (Some(&json!("1")), &json!(2)));
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
    let changed = api.patch(&path, STRATEGIC, image).await.ok();
    assert_eq!((changed.pointer(COUNT), &changed["metadata"]["generation"]), (Some(&json!("2")), &json!(3)));
    // Fields that a client omits from a status are restored.
    let mut status = changed.clone();
    for field in ["annotations", "resourceVersion"] {
        status.set_at(&["metadata", field], Value::Null);
    }
    status.set_at(&["status", "observedGeneration"], json!(3));
    let told = api.put(&format!("{path}/status"), status).await.ok();
    assert_eq!((told.pointer(COUNT), &told["status"]["observedGeneration"]), (Some(&json!("2")), &json!(3)));
    let annotated =
        with(set.clone(), &["metadata", "annotations"], json!({(COUNT.split('/').next_back().unwrap()): "x"}));
    api.post(&all, annotated).await.fails_with(400, "strconv.ParseInt: parsing \"x\": invalid syntax");
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!((cells.len(), &cells[1], &cells[6]), (11, &json!(0), &json!("none=x")));
    api.delete(&path, Value::Null).await.ok();
    let fields = [
        ("spec.updateStrategy", json!("OnDelete")),
        ("spec.updateStrategy.rollingUpdate", json!([])),
        ("spec.updateStrategy.rollingUpdate.maxUnavailable", json!({})),
        ("spec.minReadySeconds", json!("1")),
        ("spec.revisionHistoryLimit", json!([])),
        ("spec.template", json!(1)),
        ("spec.selector", json!([])),
        ("status.numberReady", json!("1")),
    ];
    if !api.real {
        refuses_wrong_types(&api, &all, &set, &fields).await;
    }
}

#[tokio::test]
async fn a_stateful_set_keeps_what_its_pods_stand_on() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "statefulsets");
    let mut set = replica_set("s");
    set.set("kind", "StatefulSet".into());
    set.set_at(&["spec", "serviceName"], "s".into());
    set.set_at(
        &["spec", "volumeClaimTemplates"],
        json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]),
    );
    let made = api.post(&all, set.clone()).await.ok();
    let template = &made["spec"]["volumeClaimTemplates"][0];
    assert_eq!((&template["kind"], &template["status"]["phase"]), (&json!("PersistentVolumeClaim"), &json!("Pending")));
    assert_eq!((&made["status"]["replicas"], &made["status"]["availableReplicas"]), (&json!(0), &json!(0)));
    let path = format!("{all}/s");
    let other = json!({"spec": {"serviceName": "t"}});
    api.patch(&path, MERGE, other).await.fails_with(422, "spec: Forbidden: updates to statefulset spec for fields");
    let seen = api.get(&format!("{path}/scale")).await.ok();
    assert_eq!(seen["status"]["selector"], "app=s");
    let applied = api.patch(&format!("{path}?fieldManager=a&force=true"), APPLY, set.clone()).await.ok();
    assert_eq!(applied["spec"]["volumeClaimTemplates"], made["spec"]["volumeClaimTemplates"]);
    assert_eq!(applied["metadata"]["generation"], 1);
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!((&cells[1], &cells[3..]), (&json!("0/0"), &[json!("c"), json!("busybox:1")][..]));
    let dotted = with(set.clone(), &["metadata", "name"], "a.b".into());
    api.post(&all, dotted).await.fails_with(422, "metadata.name: Invalid value: \"a.b\"");
    api.delete(&path, Value::Null).await.ok();
    let fields = [
        ("spec.replicas", json!("1")),
        ("spec.ordinals", json!(1)),
        ("spec.ordinals.start", json!("1")),
        ("spec.serviceName", json!(1)),
        ("spec.podManagementPolicy", json!([])),
        ("spec.updateStrategy.rollingUpdate.partition", json!("1")),
        ("spec.persistentVolumeClaimRetentionPolicy", json!("Delete")),
        ("spec.volumeClaimTemplates", json!({})),
        ("spec.volumeClaimTemplates", json!([1])),
        ("spec.volumeClaimTemplates", json!([{"apiVersion": 1}])),
        ("spec.volumeClaimTemplates", json!([{"spec": {"resources": {"requests": []}}}])),
        ("status.replicas", json!(true)),
        ("status.currentRevision", json!(1)),
    ];
    if !api.real {
        refuses_wrong_types(&api, &all, &set, &fields).await;
    }
}

#[tokio::test]
async fn a_replication_controller_has_labels_for_a_selector() {
    let api = Api::open().await;
    let all = api.path("replicationcontrollers");
    let mut controller = replica_set("r");
    controller.set("apiVersion", "v1".into());
    controller.set("kind", "ReplicationController".into());
    controller.set_at(&["spec", "selector"], Value::Null);
    let made = api.post(&all, controller.clone()).await.ok();
    assert_eq!((&made["spec"]["selector"], &made["metadata"]["labels"]), (&json!({"app": "r"}), &json!({"app": "r"})));
    let path = format!("{all}/r");
    let more = json!({"spec": {"selector": {"tier": "a"}, "template": {"metadata": {"labels": {"tier": "a"}}}}});
    let more = api.patch(&path, STRATEGIC, more).await.ok();
    assert_eq!(
        (&more["spec"]["selector"], &more["metadata"]["generation"]),
        (&json!({"app": "r", "tier": "a"}), &json!(2))
    );
    let seen = api.get(&format!("{path}/scale")).await.ok();
    assert_eq!((&seen["apiVersion"], &seen["status"]["selector"]), (&json!("autoscaling/v1"), &json!("app=r,tier=a")));
    let found = |query: &str| format!("{all}?fieldSelector={query}");
    assert_eq!(api.get(&found("status.replicas%3D0")).await.ok()["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(api.get(&found("status.replicas%3D1")).await.ok()["items"], json!([]));
    let why = "field label not supported: spec.replicas";
    api.get(&found("spec.replicas%3D0")).await.fails_with(400, why);
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap().last(), Some(&json!("app=r,tier=a")));
    // Its pods stay unless the request says otherwise.
    let held = api.patch(&path, MERGE, json!({"metadata": {"finalizers": ["x.example/hold"]}})).await.ok();
    assert_eq!(held["metadata"]["finalizers"], json!(["x.example/hold"]));
    let marked = api.delete(&format!("{path}?dryRun=All"), Value::Null).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["x.example/hold", "orphan"]));
    api.patch(&path, MERGE, json!({"metadata": {"finalizers": null}})).await.ok();
    api.delete(&format!("{path}?propagationPolicy=Background"), Value::Null).await.ok();
    let fields = [
        ("spec.selector", json!("app=r")),
        ("spec.selector", json!({"app": 1})),
        ("spec.replicas", json!("1")),
        ("spec.minReadySeconds", json!([])),
        ("spec.template", json!("x")),
        ("status.conditions", json!([1])),
    ];
    if !api.real {
        refuses_wrong_types(&api, &all, &controller, &fields).await;
    }
}

#[tokio::test]
async fn a_revision_is_kept_as_it_came() {
    let api = Api::open().await;
    let all = api.group_path("apps/v1", "controllerrevisions");
    let data =
        json!({"spec": {"template": {"$patch": "replace", "metadata": {"creationTimestamp": null, "labels": {}}}}});
    let revision = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "c"},
        "data": data, "revision": 1});
    let made = api.post(&all, revision.clone()).await.ok();
    assert_eq!((&made["data"], &made["metadata"]["generation"]), (&data, &Value::Null));
    let path = format!("{all}/c");
    let next = api.patch(&path, STRATEGIC, json!({"revision": 2})).await.ok();
    assert_eq!((&next["data"], &next["revision"]), (&data, &json!(2)));
    api.put(&path, with(revision.clone(), &["data"], json!({"a": 1}))).await.fails_with(422, "data: Invalid value: ");
    let table = api.send("GET", &all, &[("accept", TABLE)], Vec::new()).await.ok();
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("c"), json!("<none>"), json!(2)]);
    let named = with(revision, &["metadata", "name"], "d".into());
    for wrong in [json!([]), json!("x"), json!(1), Value::Null] {
        api.post(&all, with(named.clone(), &["data"], wrong)).await.fails_with(422, "data: Required value: data ");
    }
    assert_eq!(api.post(&all, with(named, &["revision"], json!("1"))).await.code, 400);
    api.delete(&path, Value::Null).await.ok();
}
