//! Classes of priorities for pods, and of storage for claims.

use serde_json::{Value, json};

use crate::harness::{Api, MERGE, TABLE, merge, pod};

const PRIORITIES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const STORAGES: &str = "/apis/storage.k8s.io/v1/storageclasses";

#[tokio::test]
async fn a_pod_has_the_priority_of_its_class() {
    let api = Api::open().await;
    // Cluster-scoped, so its name contains the namespace.
    let name = format!("{}-low", api.ns);
    let class = json!({"metadata": {"name": name}, "value": -5, "preemptionPolicy": "Never"});
    let made = api.post(PRIORITIES, class).await.ok();
    assert_eq!((&made["metadata"]["generation"], &made["globalDefault"]), (&json!(1), &Value::Null));
    let mut object = pod("p");
    merge(&mut object, json!({"spec": {"priorityClassName": name}}));
    let given = api.post(&api.path("pods"), object.clone()).await.ok();
    assert_eq!((&given["spec"]["priority"], &given["spec"]["preemptionPolicy"]), (&json!(-5), &json!("Never")));
    for (field, value, shown) in [
        ("priority", json!(7), "the integer value of priority (7)"),
        (
            "preemptionPolicy",
            json!("PreemptLowerPriority"),
            "the string value of PreemptionPolicy (PreemptLowerPriority)",
        ),
    ] {
        let mut wrong = object.clone();
        merge(&mut wrong, json!({"metadata": {"name": "q"}, "spec": {field: value}}));
        let computed = if field == "priority" { "-5" } else { "Never" };
        let why = format!(
            "pods \"q\" is forbidden: {shown} must not be provided in pod spec; priority admission controller computed \
             {computed} from the given PriorityClass name"
        );
        api.post(&api.path("pods"), wrong).await.fails(403, &why);
    }
    // A client that does not know priorities keeps them.
    let mut old = given;
    if let Some(spec) = old["spec"].as_object_mut() {
        spec.remove("priority");
        spec.remove("preemptionPolicy");
    }
    let kept = api.put(&api.path("pods/p"), old).await.ok();
    assert_eq!(kept["spec"]["priority"], -5);
    let changed = json!({"value": 1, "preemptionPolicy": null});
    let refused = api.patch(&format!("{PRIORITIES}/{name}"), MERGE, changed).await;
    refused.fails_with(422, "value: Forbidden: may not be changed in an update.");
    api.delete(&format!("{PRIORITIES}/{name}"), Value::Null).await.ok();
}

#[tokio::test]
async fn classes_of_the_system_are_there_and_stay() {
    let api = Api::open().await;
    let path = format!("{PRIORITIES}/system-node-critical");
    let class = api.get(&path).await.ok();
    assert_eq!((&class["value"], &class["preemptionPolicy"]), (&json!(2_000_001_000), &json!("PreemptLowerPriority")));
    api.delete(&path, Value::Null).await.fails(
        403,
        "priorityclasses.scheduling.k8s.io \"system-node-critical\" is forbidden: this is a system priority class and \
         cannot be deleted",
    );
    let own = json!({"metadata": {"name": "system-own"}, "value": 1});
    api.post(PRIORITIES, own).await.fails_with(422, "error: system-own is not a known system priority class");
    for body in [json!({"value": "1"}), json!([]), json!({"value": 4_294_967_296_i64}), json!({"globalDefault": 1})] {
        assert_eq!(api.post(PRIORITIES, body.clone()).await.code, 400, "{body}");
    }
    let mut object = pod("p");
    merge(&mut object, json!({"spec": {"priorityClassName": "system-cluster-critical"}}));
    let made = api.post(&api.path("pods"), object).await.ok();
    assert_eq!(made["spec"]["priority"], 2_000_000_000);
}

#[tokio::test]
async fn one_class_is_for_pods_that_name_none() {
    let api = Api::open().await;
    if api.real {
        // All pods of a shared cluster would get it.
        return;
    }
    let class = |name: &str, default: bool| json!({"metadata": {"name": name}, "value": 10, "globalDefault": default});
    api.post(PRIORITIES, class("usual", true)).await.ok();
    let second = "is forbidden: PriorityClass usual is already marked as default. Only one default can exist";
    api.post(PRIORITIES, class("other", true)).await.fails_with(403, second);
    api.post(PRIORITIES, class("other", false)).await.ok();
    let other = format!("{PRIORITIES}/other");
    api.patch(&other, MERGE, json!({"globalDefault": true})).await.fails_with(403, second);
    api.patch(&format!("{PRIORITIES}/usual"), MERGE, json!({"description": "d"})).await.ok();
    let made = api.post(&api.path("pods"), pod("p")).await.ok();
    assert_eq!((&made["spec"]["priorityClassName"], &made["spec"]["priority"]), (&json!("usual"), &json!(10)));
    let table = api.send("GET", &format!("{PRIORITIES}/usual"), &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        (&cells[..3], &cells[4]),
        ([json!("usual"), json!(10), json!(true)].as_slice(), &json!("PreemptLowerPriority"))
    );
}

#[tokio::test]
async fn a_claim_that_names_no_class_gets_the_default_one() {
    let api = Api::open().await;
    let wrong = json!({"metadata": {"name": "c"}, "volumeBindingMode": "Later"});
    let wrong = api.post(STORAGES, wrong).await.fails_with(422, "provisioner: Required value");
    assert_eq!(wrong["details"]["causes"].as_array().map(Vec::len), Some(2), "{wrong}");
    for body in [json!({"parameters": []}), json!({"provisioner": 1}), json!({"allowedTopologies": [1]})] {
        assert_eq!(api.post(STORAGES, body.clone()).await.code, 400, "{body}");
    }
    if api.real {
        return;
    }
    let claim = |name: &str, class: Value| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let claims = api.path("persistentvolumeclaims");
    let before = api.post(&claims, claim("before", Value::Null)).await.ok();
    assert_eq!(before["spec"]["storageClassName"], Value::Null);
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let class = json!({"metadata": {"name": "local", "annotations": annotations}, "provisioner": "sampan.dev/local"});
    let made = api.post(STORAGES, class).await.ok();
    assert_eq!((&made["reclaimPolicy"], &made["volumeBindingMode"]), (&json!("Delete"), &json!("Immediate")));
    let given = api.post(&claims, claim("given", Value::Null)).await.ok();
    assert_eq!(given["spec"]["storageClassName"], "local");
    let none = api.post(&claims, claim("none", json!(""))).await.ok();
    assert_eq!(none["spec"]["storageClassName"], "");
    let path = format!("{STORAGES}/local");
    api.patch(&path, MERGE, json!({"reclaimPolicy": "Retain"})).await.fails_with(422, "reclaimPolicy: Invalid value");
    let table = api.send("GET", &path, &[("accept", TABLE)], Vec::new()).await.ok();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[..4], [json!("local (default)"), json!("sampan.dev/local"), json!("Delete"), json!("Immediate")]);
    assert_eq!(api.delete(&path, Value::Null).await.ok()["kind"], "StorageClass");
}
