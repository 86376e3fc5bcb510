//! ReplicaSets in the model of the API.

use serde_json::{Value, json};

use crate::workloads::plan::{Action, WRITES, Write};
use crate::workloads::simulation::{Course, Model, Named, is_empty, key, owned, seeds};
use crate::workloads::world::Kind;

fn set(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "x"}]}},
        },
    })
}

fn pod(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {"containers": []}})
}

fn course(replicas: i64) -> Course {
    let mut course = Course::new(1, |_, _| {});
    course.calm = true;
    course.model.put(Kind::ReplicaSet, set(replicas));
    course
}

fn status(model: &Model) -> &Value {
    &model.get(Kind::ReplicaSet, "web")["status"]
}

#[test]
fn a_set_has_its_pods_and_counts_them() {
    let mut course = course(3);
    course.step(1);
    assert_eq!(course.model.names(Kind::Pod).len(), 3);
    assert_eq!(status(&course.model)["replicas"], 3);
    assert_eq!(status(&course.model)["fullyLabeledReplicas"], 3);
    assert_eq!(status(&course.model)["readyReplicas"], Value::Null);
    course.settle();
    assert_eq!(status(&course.model)["availableReplicas"], 3);
    let first = course.model.names(Kind::Pod)[0].clone();
    let pod = &course.model.objects[&(Kind::Pod, first.clone())];
    assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["controller"], true);
    assert_eq!(pod["metadata"]["generateName"], "web-");
    course.model.remove(Kind::Pod, &first);
    course.step(1);
    assert_eq!(course.model.names(Kind::Pod).len(), 3);
}

#[test]
fn a_set_adopts_the_orphans_that_it_selects_and_lets_go_what_it_does_not() {
    let mut course = course(2);
    course.model.put(Kind::Pod, pod("mine", &json!({"app": "web"})));
    course.model.put(Kind::Pod, pod("other", &json!({"app": "db"})));
    course.step(1);
    let owner =
        |course: &Course, name: &str| course.model.get(Kind::Pod, name)["metadata"]["ownerReferences"][0].clone();
    assert_eq!(owner(&course, "mine")["name"], "web");
    assert_eq!(owner(&course, "other"), Value::Null);
    assert_eq!(course.model.names(Kind::Pod).len(), 3, "one more was made");
    course.model.change(Kind::Pod, &key("mine"), |pod| pod["metadata"]["labels"] = json!({"app": "out"}));
    course.step(1);
    assert_eq!(owner(&course, "mine"), Value::Null);
    assert_eq!(course.model.names(Kind::Pod).len(), 4);
}

/// Only an existing owner that stays adopts an object. A late set may still create a pod, which is garbage.
fn owners_live(model: &Model, action: &Action) {
    if !matches!(action.write, Write::Strategic { .. }) {
        return;
    }
    let owner = &model.get(action.kind, &action.key.name)["metadata"]["ownerReferences"][0]["uid"];
    let lives = |set: &Value| set["metadata"]["uid"] == *owner && set["metadata"]["deletionTimestamp"].is_null();
    assert!(owner.is_null() || model.of(Kind::ReplicaSet).any(lives), "{} has an owner that is gone", action.key.name);
}

/// The garbage collector: deletes pods whose owner is deleted.
fn collect_garbage(course: &mut Course) {
    for name in course.model.names(Kind::Pod) {
        let owner = &course.model.objects[&(Kind::Pod, name.clone())]["metadata"]["ownerReferences"][0]["uid"];
        if !owner.is_null() && !course.model.of(Kind::ReplicaSet).any(|set| set["metadata"]["uid"] == *owner) {
            course.model.remove(Kind::Pod, &name);
        }
    }
}

/// S15: the watch of pods reports the orphans before that of ReplicaSets reports that their owner is gone.
#[test]
fn s15_what_an_owner_left_behind_it_does_not_take_again() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, owners_live);
        course.model.put(Kind::ReplicaSet, set(3));
        for _ in 0..6 {
            course.nodes();
            course.step(2);
        }
        course.model.orphan(Kind::ReplicaSet, Kind::Pod, &key("web"));
        for _ in 0..4 {
            course.nodes();
            course.step(1);
        }
        collect_garbage(&mut course);
        let orphans = course.model.names(Kind::Pod);
        course.settle();
        collect_garbage(&mut course);
        assert!(course.model.of(Kind::Pod).all(|pod| is_empty(&pod["metadata"]["ownerReferences"])));
        // The next set with this name adopts them.
        course.model.put(Kind::ReplicaSet, set(3));
        course.settle();
        assert!(
            course
                .model
                .of(Kind::Pod)
                .filter(|pod| pod["status"]["phase"] != "Failed")
                .all(|pod| { pod["metadata"]["ownerReferences"][0]["name"] == "web" })
        );
        assert!(orphans.len() < 3 || course.model.names(Kind::Pod).iter().any(|name| orphans.contains(name)));
    }
}

#[test]
fn writes_that_change_nothing_are_tried_ever_more_seldom() {
    let mut course = course(1);
    course.model.ignores = Some(Kind::ReplicaSet);
    for _ in 0..300 {
        course.step(1);
    }
    assert!((5..40).contains(&course.model.writes), "{} writes in 300 s", course.model.writes);
}

#[test]
fn pods_that_are_nobodys_once_they_are_made_are_not_made_without_end() {
    let mut course = course(3);
    course.model.strips_pods = true;
    for _ in 0..300 {
        course.step(1);
    }
    assert!(course.model.writes < 1000, "{} writes in 300 s", course.model.writes);
}

#[test]
fn template_is_read_once_for_many_pods_and_not_while_none_is_made() {
    let mut course = course(100);
    course.step(1);
    assert_eq!((course.model.names(Kind::Pod).len(), course.model.reads), (100, 1));
    course.settle();
    assert_eq!((status(&course.model)["availableReplicas"].as_i64(), course.model.reads), (Some(100), 1));
}

/// The watch is late with a changed template: pods have the one that is read.
#[test]
fn pods_are_made_of_the_template_as_it_is() {
    let mut course = course(1);
    course.step(1);
    course.model.change(Kind::ReplicaSet, &key("web"), |set| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = "y".into();
        set["spec"]["replicas"] = 2.into();
    });
    course.step(1);
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].to_string();
    let mut images: Vec<String> = course.model.of(Kind::Pod).map(image).collect();
    images.sort();
    assert_eq!(images, ["\"x\"", "\"y\""]);
    assert_eq!(course.model.reads, 2);
}

#[test]
fn a_large_set_keeps_no_other_waiting() {
    let mut course = course(1000);
    let mut other = set(1);
    other["metadata"]["name"] = "other".into();
    other["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    other["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    course.model.put(Kind::ReplicaSet, other);
    let of = |course: &Course, name: &str| {
        let uid = &course.model.get(Kind::ReplicaSet, name)["metadata"]["uid"];
        owned(&course.model, Kind::Pod, uid).count()
    };
    course.turns(2);
    assert_eq!((of(&course, "web"), of(&course, "other")), (WRITES, 1));
    for _ in 0..20 {
        course.step(1);
    }
    assert_eq!((of(&course, "web"), of(&course, "other")), (1000, 1));
}

#[test]
fn those_that_serve_nobody_go_first() {
    let mut course = course(4);
    course.settle();
    let names = course.model.names(Kind::Pod);
    course.model.change(Kind::Pod, &names[1], |pod| pod["status"] = json!({"phase": "Pending"}));
    course.model.change(Kind::Pod, &names[2], |pod| {
        pod["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "-5"});
    });
    course.model.change(Kind::ReplicaSet, &key("web"), |set| set["spec"]["replicas"] = 2.into());
    course.step(1);
    let going = |name| !course.model.objects[&(Kind::Pod, name)]["metadata"]["deletionTimestamp"].is_null();
    assert_eq!(names.into_iter().map(going).collect::<Vec<_>>(), [false, true, true, false]);
}

#[test]
fn pod_is_available_after_min_ready_seconds_by_our_clock_too() {
    let mut course = course(1);
    course.model.change(Kind::ReplicaSet, &key("web"), |set| set["spec"]["minReadySeconds"] = 30.into());
    course.step(1);
    course.nodes();
    // A node whose clock is ahead by years.
    let name = course.model.names(Kind::Pod)[0].clone();
    course.model.change(Kind::Pod, &name, |pod| {
        pod["status"]["conditions"][0]["lastTransitionTime"] = "2040-01-01T00:00:00Z".into();
    });
    course.step(1);
    assert_eq!(status(&course.model)["readyReplicas"], 1);
    course.step(28);
    assert_eq!(status(&course.model)["availableReplicas"], Value::Null);
    course.step(5);
    assert_eq!(status(&course.model)["availableReplicas"], 1);
}

#[test]
fn a_clock_that_is_set_back_keeps_no_pod_from_being_available() {
    let mut course = course(1);
    course.model.change(Kind::ReplicaSet, &key("web"), |set| set["spec"]["minReadySeconds"] = 30.into());
    course.step(1);
    course.nodes();
    course.step(1);
    course.model.turn_clock(-86_400);
    course.step(20);
    assert_eq!(status(&course.model)["availableReplicas"], Value::Null);
    course.step(12);
    assert_eq!(status(&course.model)["availableReplicas"], 1);
}

#[test]
fn a_set_that_goes_makes_nothing_more() {
    let mut course = course(2);
    course.model.change(Kind::ReplicaSet, &key("web"), |set| {
        set["metadata"]["deletionTimestamp"] = "2023-11-14T22:13:20Z".into();
    });
    course.step(1);
    assert_eq!(course.model.names(Kind::Pod).len(), 0);
}

#[test]
fn a_replication_controller_is_a_set_with_a_simpler_selector() {
    let mut course = Course::new(1, |_, _| {});
    let mut controller = set(2);
    controller["apiVersion"] = "v1".into();
    controller["kind"] = "ReplicationController".into();
    controller["spec"]["selector"] = json!({"app": "web"});
    course.model.put(Kind::Pod, pod("mine", &json!({"app": "web"})));
    course.model.put(Kind::ReplicationController, controller);
    course.settle();
    let status = &course.model.get(Kind::ReplicationController, "web")["status"];
    assert_eq!((&status["replicas"], &status["availableReplicas"]), (&json!(2), &json!(2)));
    assert_eq!(status["terminatingReplicas"], Value::Null);
    assert_eq!(course.model.names(Kind::Pod).len(), 2);
    let owner = &course.model.get(Kind::Pod, "mine")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["apiVersion"]), (&json!("ReplicationController"), &json!("v1")));
}

#[test]
fn refused_pods_are_replaced_with_pauses() {
    let mut course = course(3);
    let refuse = |course: &mut Course| {
        for pod in course.model.names(Kind::Pod) {
            course
                .model
                .change(Kind::Pod, &pod, |pod| pod["status"] = json!({"phase": "Failed", "reason": "NodePorts"}));
        }
        course.step(1);
    };
    for _ in 0..60 {
        refuse(&mut course);
    }
    // Three at a time until the second failure; then one after 1, 2, 4, 8 and 16 seconds.
    let made = course.model.names(Kind::Pod).len();
    assert!((8..=14).contains(&made), "{made} pods in 60 s");
    // A pod that gets ready ends the pauses.
    for _ in 0..40 {
        course.step(1);
    }
    course.nodes();
    course.settle();
    assert_eq!(status(&course.model)["readyReplicas"], 3);
}
