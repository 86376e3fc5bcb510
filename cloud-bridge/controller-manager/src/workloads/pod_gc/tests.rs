//! Deletion of pods that no other component deletes, in the model of the API.

use serde_json::{Value, json};

use super::OUT_OF_SERVICE;
use crate::workloads::plan::{Action, Write};
use crate::workloads::simulation::{Course, Model, Named, key, seeds};
use crate::workloads::world::Kind;

const NODES: [&str; 3] = ["a", "b", "c"];

fn node(name: &str, ready: &str) -> Value {
    json!({
        "metadata": {"name": name}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn pod(name: &str, node: &str) -> Value {
    let node = Some(node).filter(|node| !node.is_empty());
    json!({"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": "Running"}})
}

/// A pod is touched only while its node is not there.
fn node_is_gone(model: &Model, action: &Action) {
    let node = model.notes.borrow().get(&action.key.name).map(|node| NODES[usize::try_from(*node).unwrap()]);
    let node = node.expect("a pod");
    assert!(!model.has_node(node), "{action:?} while {node} is there");
    if let Write::Delete { .. } = action.write {
        assert!(!model.objects.contains_key(&(Kind::Pod, action.key.clone())), "no grace");
    }
}

fn phase<'a>(course: &'a Course, name: &str) -> Option<&'a str> {
    course.model.objects.get(&(Kind::Pod, key(name))).and_then(|pod| pod["status"]["phase"].as_str())
}

/// S15: nodes are created, deleted, fall silent and return, while watches lag and the program is killed: pods are
/// deleted with a deleted node, and for no other reason.
#[test]
fn s15_pods_go_with_their_node_and_with_nothing_less() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, node_is_gone);
        for number in 0..60 {
            let place = course.chance.below(3);
            let at = NODES[usize::try_from(place).unwrap()];
            match course.chance.below(6) {
                0 => drop(course.model.put(Kind::Node, node(at, "True"))),
                1 => drop(course.model.put(Kind::Node, node(at, "Unknown"))),
                2 => course.model.remove(Kind::Node, &key(at)),
                _ => {
                    let name = format!("pod{number}");
                    course.model.notes.borrow_mut().insert(name.clone(), place.cast_signed());
                    course.model.put(Kind::Pod, pod(&name, at));
                }
            }
            let seconds = course.chance.below(30).cast_signed();
            course.step(seconds);
        }
        let placed = |model: &Model| {
            model.of(Kind::Pod).filter(|pod| model.has_node(pod["spec"]["nodeName"].as_str().unwrap())).count()
        };
        let kept = placed(&course.model);
        course.calm = true;
        for _ in 0..20 {
            course.step(20);
        }
        assert_eq!((placed(&course.model), course.model.names(Kind::Pod).len()), (kept, kept));
    }
}

#[test]
fn a_pod_of_a_node_that_is_gone_fails_and_goes_after_a_while() {
    let mut course = Course::new(1, |_, _| {});
    course.calm = true;
    course.model.put(Kind::Node, node("a", "Unknown"));
    course.model.put(Kind::Pod, pod("one", "a"));
    let mut held = pod("held", "a");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    course.model.put(Kind::Pod, held);
    for _ in 0..50 {
        course.step(100);
    }
    assert_eq!(phase(&course, "one"), Some("Running"), "its node is away, not gone");
    course.model.remove(Kind::Node, &key("a"));
    course.step(1);
    course.step(38);
    assert_eq!(phase(&course, "one"), Some("Running"));
    course.step(3);
    assert_eq!(phase(&course, "one"), None);
    let held = course.model.get(Kind::Pod, "held");
    assert_eq!(
        (&held["status"]["phase"], &held["metadata"]["deletionGracePeriodSeconds"]),
        (&json!("Failed"), &json!(0))
    );
    let condition = &held["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("DisruptionTarget"), &json!("DeletionByPodGC")));
    let writes = course.model.writes;
    for _ in 0..20 {
        course.step(60);
    }
    assert_eq!(course.model.writes, writes, "a finalizer is waited for");
}

#[test]
fn a_node_that_comes_back_in_time_keeps_its_pods() {
    let mut course = Course::new(1, |_, _| {});
    course.calm = true;
    course.model.put(Kind::Pod, pod("one", "a"));
    for _ in 0..10 {
        course.step(1);
        course.step(30);
        course.model.put(Kind::Node, node("a", "True"));
        course.step(1);
        course.model.remove(Kind::Node, &key("a"));
    }
    assert_eq!(phase(&course, "one"), Some("Running"));
}

#[test]
fn deleted_pods_leave_an_out_of_service_node_and_no_others_do() {
    let mut course = Course::new(1, |_, _| {});
    course.calm = true;
    let mut gone = node("a", "Unknown");
    course.model.put(Kind::Node, gone.clone());
    for name in ["stays", "deleted"] {
        course.model.put(Kind::Pod, pod(name, "a"));
    }
    course
        .model
        .change(Kind::Pod, &key("deleted"), |pod| pod["metadata"]["deletionTimestamp"] = "2024-07-03T09:46:40Z".into());
    course.step(100);
    assert_eq!(phase(&course, "deleted"), Some("Running"));
    gone["spec"]["taints"] = json!([{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]);
    gone["status"]["conditions"][0]["status"] = "True".into();
    course.model.put(Kind::Node, gone.clone());
    course.step(100);
    assert_eq!(phase(&course, "deleted"), Some("Running"), "the node is ready");
    gone["status"]["conditions"][0]["status"] = "Unknown".into();
    course.model.put(Kind::Node, gone);
    course.step(1);
    assert_eq!((phase(&course, "deleted"), phase(&course, "stays")), (None, Some("Running")));
    course
        .model
        .change(Kind::Pod, &key("stays"), |pod| pod["metadata"]["deletionTimestamp"] = "2024-07-03T09:46:40Z".into());
    course.step(1);
    assert_eq!(phase(&course, "stays"), None);
}

#[test]
fn a_pod_that_is_deleted_before_it_has_a_node_goes() {
    let mut course = Course::new(1, |_, _| {});
    course.calm = true;
    course.model.put(Kind::Pod, pod("one", ""));
    course.step(100);
    assert_eq!(phase(&course, "one"), Some("Running"));
    course
        .model
        .change(Kind::Pod, &key("one"), |pod| pod["metadata"]["deletionTimestamp"] = "2024-07-03T09:46:40Z".into());
    course.step(1);
    assert_eq!(phase(&course, "one"), None);
}

#[test]
fn of_too_many_pods_that_ended_the_evicted_and_the_oldest_go() {
    for (most, wanted) in [(0, 6), (4, 4), (10, 6)] {
        let mut course = Course::new(1, |_, _| {});
        course.options.terminated_pod_gc_threshold = most;
        course.calm = true;
        course.restart();
        course.model.put(Kind::Node, node("a", "True"));
        for number in 0..6 {
            let mut ended = pod(&format!("pod{number}"), "a");
            let reason = Some("Evicted").filter(|_| number == 5);
            ended["status"] = json!({"phase": if number == 1 { "Succeeded" } else { "Failed" }, "reason": reason});
            course.model.put(Kind::Pod, ended);
            course.model.put(Kind::Pod, pod(&format!("run{number}"), "a"));
            course.step(1);
        }
        course.step(30);
        course.step(30);
        let names = course.model.names(Kind::Pod);
        assert_eq!(names.iter().filter(|key| key.name.starts_with("run")).count(), 6);
        assert_eq!(names.len() - 6, wanted, "{most}");
        assert!(most != 4 || (phase(&course, "pod0"), phase(&course, "pod5")) == (None, None));
    }
}
