//! DaemonSets in the simulation, and the rules that it does not reach one by one.

use serde_json::{Value, json};

use crate::workloads::plan::Action;
use crate::workloads::simulation::{Course, Model, Named, key, owned, seeds};
use crate::workloads::world::Kind;

/// The most pods that a test's DaemonSet may have on one node, which the test keeps in this annotation.
const BOUND: &str = "test/bound";

fn daemon_set(surge: i64, unavailable: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "annotations": {BOUND: if surge > 0 { "2" } else { "1" }}},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}}, "revisionHistoryLimit": 2,
            "updateStrategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
            },
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"nodeSelector": {"wanted": "yes"}, "containers": [{"name": "agent", "image": "one"}]},
            },
        },
    })
}

fn node(name: &str) -> Value {
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"wanted": "yes"}},
        "spec": {"taints": []}, "status": {"conditions": ready},
    })
}

fn set_image(course: &mut Course, image: &str) {
    course.model.change(Kind::DaemonSet, &key("agent"), |set| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    });
}

fn set_ready(course: &mut Course, node: &str, ready: &str) {
    course.model.change(Kind::Node, &key(node), |node| node["status"]["conditions"][0]["status"] = ready.into());
}

fn image(object: &Value) -> &str {
    object["spec"]["containers"][0]["image"].as_str().unwrap()
}

fn tied_to(pod: &Value) -> &str {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str().unwrap()
}

/// The pods of the set on a node, without terminated pods and those being deleted.
fn active<'a>(model: &'a Model, node: &str) -> Vec<&'a Value> {
    let pods = owned(model, Kind::Pod, &model.get(Kind::DaemonSet, "agent")["metadata"]["uid"]);
    let here = pods.filter(|pod| tied_to(pod) == node && pod["metadata"]["deletionTimestamp"].is_null());
    here.filter(|pod| !["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())).collect()
}

fn never_too_many(model: &Model, _: &Action) {
    let set = model.get(Kind::DaemonSet, "agent");
    let bound: usize = set["metadata"]["annotations"][BOUND].as_str().unwrap().parse().unwrap();
    for node in model.names(Kind::Node) {
        let here = active(model, &node.name);
        assert!(here.len() <= bound, "{} pods on {}: {here:?}", here.len(), node.name);
        let mut hashes: Vec<_> =
            here.iter().map(|pod| pod["metadata"]["labels"]["controller-revision-hash"].as_str()).collect();
        hashes.dedup();
        assert_eq!(hashes.len(), here.len(), "two of one template on {}", node.name);
    }
}

fn count(status: &Value, name: &str) -> usize {
    usize::try_from(status[name].as_i64().unwrap_or_default()).unwrap()
}

/// All that `rollout status` waits for, and a pod of the template on each node that wants one.
fn assert_rolled_out(model: &Model) {
    let set = model.get(Kind::DaemonSet, "agent");
    let status = &set["status"];
    let wanting = model.of(Kind::Node).filter(|node| node["metadata"]["labels"]["wanted"] == "yes");
    let wanting: Vec<_> = wanting.map(|node| node["metadata"]["name"].as_str().unwrap()).collect();
    for node in &wanting {
        let here = active(model, node);
        assert_eq!(here.len(), 1, "on {node}: {status}");
        assert_eq!(image(here[0]), image(&set["spec"]["template"]), "on {node}");
    }
    for name in
        ["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable"]
    {
        assert_eq!(count(status, name), wanting.len(), "{name} {status}");
    }
    assert_eq!((count(status, "numberMisscheduled"), count(status, "numberUnavailable")), (0, 0), "{status}");
    assert_eq!(status["observedGeneration"], set["metadata"]["generation"]);
    let uid = &set["metadata"]["uid"];
    assert!(owned(model, Kind::ControllerRevision, uid).count() <= 3, "two old ones are kept");
}

/// S15: whatever is killed, lost or late, a DaemonSet ends with a pod of its template on each node, never with two on one
/// beyond its surge.
#[test]
fn s15_a_daemon_set_ends_with_a_pod_on_each_node_and_never_two() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, never_too_many);
        let surge = i64::from(seed % 3 == 0);
        course.model.put(Kind::DaemonSet, daemon_set(surge, (seed % 3).cast_signed()));
        let names = ["a", "b", "c", "d"];
        for name in names {
            course.model.put(Kind::Node, node(name));
        }
        for _ in 0..60 {
            let name = names[usize::try_from(course.chance.below(4)).unwrap()];
            let number = course.chance.below(3);
            match course.chance.below(30) {
                0..3 => set_image(&mut course, &format!("v{number}")),
                3 => set_ready(&mut course, name, "Unknown"),
                4..6 => set_ready(&mut course, name, "True"),
                6 => course.model.change(Kind::Node, &key(name), |node| {
                    node["metadata"]["labels"]["wanted"] = if number == 0 { "no" } else { "yes" }.into();
                }),
                7 => course.model.change(Kind::Node, &key(name), |node| {
                    let effect = if number == 0 { "NoSchedule" } else { "NoExecute" };
                    node["spec"]["taints"] = json!([{"key": "own", "effect": effect}]);
                }),
                8..10 => course.model.change(Kind::Node, &key(name), |node| node["spec"]["taints"] = json!([])),
                10 => course.restart(),
                _ => {}
            }
            course.nodes();
            let seconds = course.chance.below(20).cast_signed();
            course.step(seconds);
        }
        for name in names {
            set_ready(&mut course, name, "True");
            course.model.change(Kind::Node, &key(name), |node| node["spec"]["taints"] = json!([]));
        }
        course.settle();
        assert_rolled_out(&course.model);
    }
}

fn settled(set: Value, nodes: &[&str]) -> Course {
    let mut course = Course::new(1, never_too_many);
    course.model.put(Kind::DaemonSet, set);
    for name in nodes {
        course.model.put(Kind::Node, node(name));
    }
    course.settle();
    assert_rolled_out(&course.model);
    course
}

fn running(model: &Model, nodes: &[&str]) -> usize {
    let runs = |pod: &&Value| pod["status"]["phase"] == "Running";
    nodes.iter().filter(|node| active(model, node).iter().any(runs)).count()
}

#[test]
fn a_pod_says_what_it_is_of_and_where_it_belongs() {
    let mut set = daemon_set(0, 1);
    set["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = "7".into();
    let course = settled(set, &["a"]);
    let pod = active(&course.model, "a")[0];
    let revisions: Vec<_> = course.model.of(Kind::ControllerRevision).collect();
    assert_eq!(revisions.len(), 1);
    assert_eq!(revisions[0]["revision"], 1);
    assert_eq!(revisions[0]["data"]["spec"]["template"]["$patch"], "replace");
    let hash = &revisions[0]["metadata"]["labels"]["controller-revision-hash"];
    assert_eq!(revisions[0]["metadata"]["name"], format!("agent-{}", hash.as_str().unwrap()));
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "agent", "controller-revision-hash": hash, "pod-template-generation": "7"})
    );
    assert_eq!(pod["metadata"]["generateName"], "agent-");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
}

#[test]
fn rollout_respects_max_unavailable_and_can_roll_back() {
    let names = ["a", "b", "c", "d", "e"];
    let mut course = settled(daemon_set(0, 2), &names);
    for (image, revisions, number) in [("two", 2, 2), ("one", 2, 3)] {
        set_image(&mut course, image);
        let mut least = names.len();
        for _ in 0..60 {
            course.nodes();
            course.step(1);
            least = least.min(running(&course.model, &names));
        }
        assert_eq!(least, 3, "two at a time");
        assert_rolled_out(&course.model);
        assert_eq!(course.model.of(Kind::ControllerRevision).count(), revisions);
        let newest = course.model.of(Kind::ControllerRevision).map(|one| one["revision"].as_i64().unwrap()).max();
        assert_eq!(newest, Some(number));
    }
}

#[test]
fn a_surge_leaves_no_node_without_a_pod() {
    let names = ["a", "b", "c"];
    let mut course = settled(daemon_set(1, 0), &names);
    set_image(&mut course, "two");
    for _ in 0..30 {
        course.step(1);
        let doubled = names.iter().filter(|name| active(&course.model, name).len() == 2).count();
        assert!(doubled <= 1, "{doubled} nodes at once");
        assert_eq!(running(&course.model, &names), 3);
        course.nodes();
    }
    assert_rolled_out(&course.model);
}

#[test]
fn on_delete_waits_for_somebody_to_delete() {
    let mut set = daemon_set(0, 1);
    set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    let mut course = settled(set, &["a", "b"]);
    set_image(&mut course, "two");
    course.settle();
    assert_eq!(image(active(&course.model, "a")[0]), "one");
    assert_eq!(course.model.get(Kind::DaemonSet, "agent")["status"]["updatedNumberScheduled"], Value::Null);
    let pod = key(active(&course.model, "a")[0]["metadata"]["name"].as_str().unwrap());
    course.model.remove(Kind::Pod, &pod);
    course.settle();
    assert_eq!((image(active(&course.model, "a")[0]), image(active(&course.model, "b")[0])), ("two", "one"));
}

/// A site with two of five nodes offline, with and without the annotation.
#[test]
fn offline_nodes_block_a_rollout_unless_ignored() {
    let names = ["a", "b", "c", "d", "e"];
    for ignored in [false, true] {
        let mut set = daemon_set(0, 1);
        if ignored {
            set["metadata"]["annotations"]["sampan.dev/ignore-offline"] = "true".into();
        }
        let mut course = settled(set, &names);
        for name in ["a", "b"] {
            set_ready(&mut course, name, "Unknown");
            let pod = key(active(&course.model, name)[0]["metadata"]["name"].as_str().unwrap());
            course.model.change(Kind::Pod, &pod, |pod| pod["status"]["conditions"][0]["status"] = "False".into());
        }
        set_image(&mut course, "two");
        course.settle();
        let images: Vec<_> = ["c", "d", "e"].iter().map(|name| image(active(&course.model, name)[0])).collect();
        assert_eq!(images, vec![if ignored { "two" } else { "one" }; 3]);
        if ignored {
            assert_eq!(image(active(&course.model, "a")[0]), "one", "it is left alone until then");
        }
        for name in ["a", "b"] {
            set_ready(&mut course, name, "True");
        }
        course.settle();
        assert_rolled_out(&course.model);
    }
}

#[test]
fn unfit_node_loses_its_pod_but_not_for_a_no_schedule_taint() {
    let mut course = settled(daemon_set(0, 1), &["a", "b"]);
    course.model.change(Kind::Node, &key("a"), |node| node["metadata"]["labels"]["wanted"] = "no".into());
    course.model.change(Kind::Node, &key("b"), |node| {
        node["spec"]["taints"] = json!([{"key": "own", "effect": "NoSchedule"}]);
    });
    course.settle();
    assert_eq!((active(&course.model, "a").len(), active(&course.model, "b").len()), (0, 1));
    let status = &course.model.get(Kind::DaemonSet, "agent")["status"];
    assert_eq!((count(status, "desiredNumberScheduled"), count(status, "numberMisscheduled")), (0, 1));
}

#[test]
fn pods_that_fail_again_and_again_are_replaced_ever_more_slowly() {
    let mut course = settled(daemon_set(0, 1), &["a"]);
    let mut made = std::collections::BTreeSet::new();
    for _ in 0..60 {
        for pod in course.model.names(Kind::Pod) {
            course.model.change(Kind::Pod, &pod, |pod| {
                pod["spec"]["nodeName"] = Value::Null;
                pod["status"] = json!({"phase": "Failed"});
            });
            made.insert(pod.name);
        }
        course.step(1);
    }
    // After 0, 1, 3, 7, 15, 31 and not yet after 63 seconds.
    assert_eq!(made.len(), 7, "{made:?}");
}

#[test]
fn a_set_adopts_what_it_selects_and_keeps_one_pod_of_two_on_a_node() {
    // Of two there are two for a moment.
    let mut course = Course::new(1, |_, _| {});
    course.model.put(Kind::DaemonSet, daemon_set(0, 1));
    course.model.put(Kind::Node, node("a"));
    course.settle();
    let mut twin = active(&course.model, "a")[0].clone();
    let uid = twin["metadata"]["uid"].clone();
    twin["metadata"] = json!({"name": "twin", "labels": twin["metadata"]["labels"]});
    course.model.put(Kind::Pod, twin.clone());
    twin["metadata"] = json!({"name": "stranger", "labels": {"app": "other"}});
    course.model.put(Kind::Pod, twin);
    course.settle();
    assert_eq!(active(&course.model, "a").len(), 1);
    assert_eq!(active(&course.model, "a")[0]["metadata"]["uid"], uid, "the older one stays");
    assert!(course.model.get(Kind::Pod, "stranger")["metadata"]["ownerReferences"].is_null());
}

#[test]
fn a_pod_counts_as_available_once_it_has_been_ready_for_long_enough() {
    let mut course = settled(daemon_set(0, 1), &["a"]);
    course.model.change(Kind::DaemonSet, &key("agent"), |set| set["spec"]["minReadySeconds"] = 30.into());
    set_image(&mut course, "two");
    for _ in 0..4 {
        course.nodes();
        course.step(1);
    }
    let available = |course: &Course| course.model.get(Kind::DaemonSet, "agent")["status"]["numberAvailable"].clone();
    assert_eq!(available(&course), Value::Null);
    course.step(27);
    assert_eq!(available(&course), Value::Null);
    course.step(4);
    assert_eq!(available(&course), 1);
}

#[test]
fn a_heartbeat_of_a_node_wakes_nobody() {
    use crate::workloads::node::Node;
    use crate::workloads::store::Store;
    let read = |version: &str, status: &str| -> Node {
        let mut object = node("a");
        object["metadata"]["resourceVersion"] = version.into();
        object["metadata"]["uid"] = "uid".into();
        object["status"]["conditions"][0]["status"] = status.into();
        object["status"]["conditions"][0]["lastHeartbeatTime"] = version.into();
        serde_json::from_value(object).unwrap()
    };
    let (mut store, now) = (Store::default(), crate::workloads::now::Now::default());
    assert!(store.put(read("1", "True"), now).is_some());
    assert!(store.put(read("2", "True"), now).is_none());
    assert!(store.put(read("3", "Unknown"), now).is_some(), "it is away");
}
