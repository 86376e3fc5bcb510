//! StatefulSets in the simulation, and the rules that it does not reach one by one.

mod claims;

use serde_json::{Value, json};

use crate::workloads::plan::{Action, Write};
use crate::workloads::simulation::{Course, Model, Named, collect_garbage, key, owned, seeds};
use crate::workloads::world::Kind;

fn stateful_set(replicas: i64, policy: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "db"}}, "serviceName": "peers",
            "podManagementPolicy": policy, "revisionHistoryLimit": 2,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": "one"}], "volumes": [{"name": "tmp", "emptyDir": {}}]},
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data", "labels": {"kept": "yes"}},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    })
}

fn change(course: &mut Course, change: impl FnOnce(&mut Value)) {
    course.model.change(Kind::StatefulSet, &key("db"), |set| change(&mut set["spec"]));
}

fn node() -> Value {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({"metadata": {"name": "node"}, "status": {"conditions": ready}})
}

fn set_ready(course: &mut Course, ready: &str) {
    course.model.change(Kind::Node, &key("node"), |node| node["status"]["conditions"][0]["status"] = ready.into());
}

fn set_image(course: &mut Course, image: &str) {
    change(course, |spec| spec["template"]["spec"]["containers"][0]["image"] = image.into());
}

fn status(model: &Model) -> &Value {
    &model.get(Kind::StatefulSet, "db")["status"]
}

fn pods(model: &Model) -> Vec<&Value> {
    owned(model, Kind::Pod, &model.get(Kind::StatefulSet, "db")["metadata"]["uid"]).collect()
}

fn names(model: &Model) -> Vec<&str> {
    pods(model).iter().map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect()
}

fn image(object: &Value) -> &str {
    object["spec"]["containers"][0]["image"].as_str().unwrap()
}

fn images(model: &Model) -> Vec<&str> {
    pods(model).into_iter().map(image).collect()
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

fn ordinal(name: &str) -> i64 {
    name.rsplit_once('-').unwrap().1.parse().unwrap()
}

/// Pods are created in order, each after all before it have run, whatever happened to them since, because that is
/// reported late. They are deleted from the last one.
fn in_order(model: &Model, action: &Action) {
    if action.kind != Kind::Pod {
        return;
    }
    let set = model.get(Kind::StatefulSet, "db");
    if set["spec"]["podManagementPolicy"] != "OrderedReady" {
        return;
    }
    let (this, wants) = (ordinal(&action.key.name), set["spec"]["replicas"].as_i64().unwrap());
    let has_run = |pod: &Value| is_ready(pod) || pod["status"]["phase"] == "Failed";
    let runs = |one: i64| model.objects.get(&(Kind::Pod, key(&format!("db-{one}")))).is_some_and(has_run);
    match action.write {
        Write::Create(_) => assert!((0..this).all(runs), "db-{this} before those below it"),
        // When it deletes a pod for another reason, it may not know yet that there are too many.
        Write::Delete { .. } if this >= wants && !model.is_late(Kind::StatefulSet) => {
            let above: Vec<_> = names(model).into_iter().filter(|name| ordinal(name) > this).collect();
            assert!(above.is_empty(), "db-{this} before {above:?}");
        }
        _ => {}
    }
}

/// All that `rollout status` waits for.
fn assert_rolled_out(model: &Model) {
    let (set, status) = (model.get(Kind::StatefulSet, "db"), status(model));
    let wants = set["spec"]["replicas"].as_i64().unwrap();
    let wanted: Vec<String> = (0..wants).map(|ordinal| format!("db-{ordinal}")).collect();
    assert_eq!(names(model), wanted, "{status}");
    assert!(images(model).iter().all(|one| *one == image(&set["spec"]["template"])), "{:?}", images(model));
    for count in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(status[count].as_i64().unwrap_or_default(), wants, "{count} {status}");
    }
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    assert_eq!(status["observedGeneration"], set["metadata"]["generation"]);
    for pod in pods(model) {
        assert_eq!(pod["metadata"]["labels"]["controller-revision-hash"], status["updateRevision"]);
        let claim = format!("data-{}", pod["metadata"]["name"].as_str().unwrap());
        assert!(model.objects.contains_key(&(Kind::PersistentVolumeClaim, key(&claim))), "{claim}");
    }
    let uid = &set["metadata"]["uid"];
    assert!(owned(model, Kind::ControllerRevision, uid).count() <= 3, "two old ones are kept");
}

/// S15: after any kill, loss, delay or offline node, a StatefulSet ends with its pods, created in order.
#[test]
fn s15_a_stateful_set_ends_with_its_pods_in_order() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, in_order);
        course.model.put(Kind::Node, node());
        course.model.put(Kind::StatefulSet, stateful_set(3, if seed % 3 == 0 { "Parallel" } else { "OrderedReady" }));
        for _ in 0..60 {
            let number = course.chance.below(5);
            match course.chance.below(25) {
                0..3 => set_image(&mut course, &format!("v{}", number % 3)),
                3 => change(&mut course, |spec| spec["replicas"] = number.into()),
                4 => change(&mut course, |spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = number.into()),
                5 => change(&mut course, |spec| {
                    let when = |bit: u64| if number & bit == 0 { "Retain" } else { "Delete" };
                    let policy = json!({"whenDeleted": when(1), "whenScaled": when(2)});
                    spec["persistentVolumeClaimRetentionPolicy"] = policy;
                }),
                6 => course.restart(),
                7 => set_ready(&mut course, "Unknown"),
                8..11 => set_ready(&mut course, "True"),
                _ => {}
            }
            collect_garbage(&mut course);
            course.nodes();
            let seconds = course.chance.below(20).cast_signed();
            course.step(seconds);
        }
        set_ready(&mut course, "True");
        change(&mut course, |spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = 0.into());
        // Surplus pods that never become ready are not deleted: as in Kubernetes, a user has to intervene.
        for name in course.model.names(Kind::Pod) {
            if course.model.objects[&(Kind::Pod, name.clone())]["status"]["phase"] == "Failed" {
                course.model.remove(Kind::Pod, &name);
            }
        }
        for _ in 0..3 {
            course.settle();
            collect_garbage(&mut course);
        }
        course.settle();
        assert_rolled_out(&course.model);
    }
}

fn settled(set: Value) -> Course {
    let mut course = Course::new(1, in_order);
    course.model.put(Kind::StatefulSet, set);
    course.settle();
    course
}

#[test]
fn a_pod_has_a_name_an_address_and_claims_of_its_own() {
    let course = settled(stateful_set(2, "OrderedReady"));
    assert_rolled_out(&course.model);
    let (pod, status) = (course.model.get(Kind::Pod, "db-1"), status(&course.model));
    assert_eq!(
        pod["metadata"]["labels"],
        json!({
            "app": "db", "apps.kubernetes.io/pod-index": "1", "statefulset.kubernetes.io/pod-name": "db-1",
            "controller-revision-hash": status["currentRevision"],
        })
    );
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("db-1"), &json!("peers")));
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}, {"name": "tmp", "emptyDir": {}},
    ]);
    assert_eq!(pod["spec"]["volumes"], volumes);
    let claim = course.model.get(Kind::PersistentVolumeClaim, "data-db-1");
    assert_eq!(claim["metadata"]["labels"], json!({"app": "db", "kept": "yes"}));
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1Gi");
    assert!(claim["metadata"]["ownerReferences"].is_null(), "it outlives the set");
    let revision = course.model.of(Kind::ControllerRevision).next().unwrap();
    assert_eq!(revision["metadata"]["name"], status["currentRevision"]);
    let hash = revision["metadata"]["labels"]["controller.kubernetes.io/hash"].as_str().unwrap();
    assert_eq!(revision["metadata"]["name"], format!("db-{hash}"));
}

#[test]
fn long_name_makes_pods_with_labels_that_fit() {
    for length in [52, 53, 63] {
        let name = "n".repeat(length);
        let mut set = stateful_set(1, "OrderedReady");
        set["metadata"]["name"] = name.as_str().into();
        let mut course = Course::new(1, |_, _| {});
        course.calm = true;
        course.model.put(Kind::StatefulSet, set);
        course.step(1);
        course.settle();
        let pod = course.model.get(Kind::Pod, &format!("{name}-0"));
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        assert!(labels.values().all(|label| label.as_str().unwrap().len() <= 63), "{labels:?}");
        assert!(pod["spec"]["hostname"].as_str().unwrap_or_default().len() <= 63);
        let image = |course: &Course| image(course.model.get(Kind::Pod, &format!("{name}-0"))).to_owned();
        course.model.change(Kind::StatefulSet, &key(&name), |set| {
            set["spec"]["template"]["spec"]["containers"][0]["image"] = "two".into();
        });
        course.step(1);
        course.settle();
        assert_eq!(image(&course), "two", "{length}");
        let status = &course.model.get(Kind::StatefulSet, &name)["status"];
        assert_eq!((&status["updatedReplicas"], &status["currentReplicas"]), (&json!(1), &json!(1)), "{length}");
    }
}

#[test]
fn ordinals_may_begin_elsewhere() {
    let mut set = stateful_set(2, "OrderedReady");
    set["spec"]["ordinals"] = json!({"start": 5});
    let mut course = Course::new(1, |_, _| {});
    course.model.put(Kind::StatefulSet, set);
    course.settle();
    assert_eq!(names(&course.model), ["db-5", "db-6"]);
    change(&mut course, |spec| spec["ordinals"]["start"] = 6.into());
    course.settle();
    assert_eq!(names(&course.model), ["db-6", "db-7"]);
}

#[test]
fn pods_come_one_after_the_other_or_all_at_once() {
    for (policy, first) in [("OrderedReady", 1), ("Parallel", 4)] {
        let mut course = Course::new(1, in_order);
        course.calm = true;
        course.model.put(Kind::StatefulSet, stateful_set(4, policy));
        course.step(1);
        assert_eq!(names(&course.model).len(), first, "{policy}");
        course.settle();
        assert_rolled_out(&course.model);
        change(&mut course, |spec| spec["replicas"] = 0.into());
        course.step(1);
        let going = pods(&course.model).into_iter().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(going.count(), first, "{policy}");
        course.settle();
        assert!(names(&course.model).is_empty());
        assert_eq!(course.model.names(Kind::PersistentVolumeClaim).len(), 4, "claims are kept");
    }
}

#[test]
fn rollout_stops_at_the_partition_and_rollback_reuses_revision() {
    let mut course = settled(stateful_set(4, "OrderedReady"));
    let first = status(&course.model)["currentRevision"].clone();
    let untouched = course.model.get(Kind::Pod, "db-1")["metadata"]["uid"].clone();
    change(&mut course, |spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = 2.into());
    set_image(&mut course, "two");
    for _ in 0..30 {
        course.nodes();
        course.step(1);
        let away = 4 - pods(&course.model).into_iter().filter(|pod| is_ready(pod)).count();
        assert!(away <= 1, "{away} at once");
    }
    assert_eq!(images(&course.model), ["one", "one", "two", "two"]);
    assert_eq!(course.model.get(Kind::Pod, "db-1")["metadata"]["uid"], untouched, "nobody took it away in between");
    assert_eq!(
        (&status(&course.model)["currentReplicas"], &status(&course.model)["updatedReplicas"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(status(&course.model)["currentRevision"], first);
    // Pods below the partition are recreated unchanged.
    course.model.remove(Kind::Pod, &key("db-0"));
    course.settle();
    assert_eq!(images(&course.model), ["one", "one", "two", "two"]);
    change(&mut course, |spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = 0.into());
    course.settle();
    assert_rolled_out(&course.model);
    set_image(&mut course, "one");
    course.settle();
    assert_rolled_out(&course.model);
    assert_eq!(status(&course.model)["currentRevision"], first);
    let numbers: Vec<_> =
        course.model.of(Kind::ControllerRevision).map(|one| one["revision"].as_i64().unwrap()).collect();
    assert_eq!((numbers.len(), numbers.iter().max()), (2, Some(&3)));
}

#[test]
fn rollout_of_parallel_pods_replaces_them_one_by_one() {
    let mut course = settled(stateful_set(3, "Parallel"));
    set_image(&mut course, "two");
    for _ in 0..20 {
        course.step(1);
        let away = 3 - pods(&course.model).into_iter().filter(|pod| is_ready(pod)).count();
        assert!(away <= 1, "{away} at once");
        course.nodes();
    }
    assert_rolled_out(&course.model);
}

#[test]
fn on_delete_waits_for_somebody_to_delete() {
    let mut set = stateful_set(2, "OrderedReady");
    set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    let mut course = settled(set);
    set_image(&mut course, "two");
    course.settle();
    assert_eq!(images(&course.model), ["one", "one"]);
    course.model.remove(Kind::Pod, &key("db-1"));
    course.settle();
    assert_eq!(images(&course.model), ["one", "two"]);
}

/// At most one: a pod on an offline node keeps its name until that node reports that it has ended.
#[test]
fn a_pod_whose_node_is_away_stays_and_is_made_nowhere_else() {
    let mut course = Course::new(1, in_order);
    course.model.put(Kind::Node, node());
    course.model.put(Kind::StatefulSet, stateful_set(2, "Parallel"));
    course.settle();
    let uid = course.model.get(Kind::Pod, "db-1")["metadata"]["uid"].clone();
    set_ready(&mut course, "Unknown");
    set_image(&mut course, "two");
    course.settle();
    let pod = course.model.get(Kind::Pod, "db-1");
    assert_eq!(pod["metadata"]["uid"], uid);
    assert!(!pod["metadata"]["deletionTimestamp"].is_null(), "it goes once the node is back");
    assert_eq!(images(&course.model), ["one", "one"]);
    set_ready(&mut course, "True");
    course.settle();
    assert_rolled_out(&course.model);
}

#[test]
fn a_pod_that_has_ended_is_made_again_with_the_same_claim() {
    let mut course = settled(stateful_set(1, "OrderedReady"));
    let uid = course.model.get(Kind::PersistentVolumeClaim, "data-db-0")["metadata"]["uid"].clone();
    for phase in ["Failed", "Succeeded"] {
        let before = course.model.get(Kind::Pod, "db-0")["metadata"]["uid"].clone();
        course.model.change(Kind::Pod, &key("db-0"), |pod| pod["status"] = json!({"phase": phase}));
        course.step(1);
        course.settle();
        assert_rolled_out(&course.model);
        assert_ne!(course.model.get(Kind::Pod, "db-0")["metadata"]["uid"], before, "{phase}");
    }
    assert_eq!(course.model.get(Kind::PersistentVolumeClaim, "data-db-0")["metadata"]["uid"], uid);
}

#[test]
fn refused_pod_is_made_again_with_pauses() {
    let mut course = settled(stateful_set(1, "OrderedReady"));
    let mut made = std::collections::BTreeSet::new();
    for _ in 0..60 {
        for name in course.model.names(Kind::Pod) {
            made.insert(course.model.get(Kind::Pod, &name.name)["metadata"]["uid"].to_string());
            course.model.change(Kind::Pod, &name, |pod| {
                pod["spec"]["nodeName"] = Value::Null;
                pod["status"] = json!({"phase": "Failed"});
            });
        }
        course.step(1);
    }
    assert!((5..=8).contains(&made.len()), "{} pods in 60 s", made.len());
    set_image(&mut course, "two");
    course.step(1);
    course.settle();
    assert_rolled_out(&course.model);
}

#[test]
fn the_next_pod_comes_when_the_one_before_has_been_ready_for_long_enough() {
    let mut set = stateful_set(2, "OrderedReady");
    set["spec"]["minReadySeconds"] = 30.into();
    let mut course = Course::new(1, in_order);
    course.calm = true;
    course.model.put(Kind::StatefulSet, set);
    course.step(1);
    course.nodes();
    course.step(1);
    assert_eq!(
        (status(&course.model)["readyReplicas"].clone(), status(&course.model)["availableReplicas"].clone()),
        (1.into(), 0.into())
    );
    course.step(25);
    assert_eq!(names(&course.model).len(), 1);
    course.step(10);
    assert_eq!(names(&course.model).len(), 2);
}

#[test]
fn deleted_set_creates_nothing_and_adopts_no_foreign_pod() {
    let mut course = settled(stateful_set(2, "OrderedReady"));
    let stranger = json!({"metadata": {"name": "stranger-0", "labels": {"app": "db"}}, "spec": {"containers": []}});
    course.model.put(Kind::Pod, stranger);
    course.settle();
    assert!(course.model.get(Kind::Pod, "stranger-0")["metadata"]["ownerReferences"].is_null());
    course.model.change(Kind::StatefulSet, &key("db"), |set| {
        set["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z".into();
    });
    course.model.remove(Kind::Pod, &key("db-1"));
    course.settle();
    assert_eq!(names(&course.model), ["db-0"]);
}
