//! Deployments in the simulation, and the rules that it does not reach one by one.

use serde_json::{Value, json};

use crate::workloads::plan::{Action, Write};
use crate::workloads::simulation::{Course, Model, Named, key, owned, seeds};
use crate::workloads::world::Kind;

/// The most pods that a test's Deployment may ever have wanted, which the test keeps in this annotation.
const BOUND: &str = "test/bound";

fn deployment(replicas: i64, image: &str, strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "annotations": {BOUND: "10"}},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "strategy": strategy,
            "revisionHistoryLimit": 2, "progressDeadlineSeconds": 600,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    })
}

fn rolling(surge: &Value, unavailable: &Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

fn sets<'a>(model: &'a Model, name: &str) -> Vec<&'a Value> {
    owned(model, Kind::ReplicaSet, &model.get(Kind::Deployment, name)["metadata"]["uid"]).collect()
}

fn pods<'a>(model: &'a Model, name: &str) -> Vec<&'a Value> {
    let sets = sets(model, name).into_iter();
    let pods = sets.flat_map(|set| owned(model, Kind::Pod, &set["metadata"]["uid"]));
    pods.filter(|pod| is_active(pod)).collect()
}

fn is_active(pod: &Value) -> bool {
    pod["status"]["phase"] != "Failed" && pod["metadata"]["deletionTimestamp"].is_null()
}

fn image(object: &Value) -> &Value {
    &object["spec"]["containers"][0]["image"]
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

/// A Deployment requests no more of its ReplicaSets than allowed, and none of these creates too many pods. (Pods that
/// one ReplicaSet has to delete may still exist while another grows: as in Kubernetes, neither waits for the other.)
fn never_too_many(model: &Model, action: &Action) {
    for deployment in model.of(Kind::Deployment) {
        let bound: i64 = deployment["metadata"]["annotations"][BOUND].as_str().unwrap().parse().unwrap();
        let sets = sets(model, deployment["metadata"]["name"].as_str().unwrap());
        let wanted: i64 = sets.iter().map(|set| set["spec"]["replicas"].as_i64().unwrap()).sum();
        assert!(wanted <= bound, "{wanted} pods wanted, of {bound} at most");
    }
    if let (Kind::Pod, Write::Create(pod)) = (action.kind, &action.write) {
        let set = model.get(Kind::ReplicaSet, pod.own()["metadata"]["ownerReferences"][0]["name"].as_str().unwrap());
        let count = owned(model, Kind::Pod, &set["metadata"]["uid"]).filter(|pod| is_active(pod)).count();
        assert!(count <= usize::try_from(set["spec"]["replicas"].as_u64().unwrap()).unwrap(), "{count} pods of {set}");
    }
}

/// All that `rollout status` waits for.
fn assert_rolled_out(model: &Model) {
    let web = model.get(Kind::Deployment, "web");
    let (status, wants) = (&web["status"], web["spec"]["replicas"].as_i64().unwrap());
    let pods = pods(model, "web");
    assert_eq!(pods.len(), usize::try_from(wants).unwrap(), "{status}");
    assert!(pods.iter().all(|pod| *image(pod) == *image(&web["spec"]["template"])), "{pods:?}");
    for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[count].as_i64().unwrap_or_default(), wants, "{count} {status}");
    }
    assert_eq!(status["observedGeneration"], web["metadata"]["generation"]);
    assert_eq!(condition(web, "Available")["status"], "True");
    assert_eq!(condition(web, "Progressing")["reason"], "NewReplicaSetAvailable");
    assert!(sets(model, "web").len() <= 3, "two old ones are kept");
}

/// S15: after any kill, loss or delay, a Deployment ends in the state of its spec, and never has too many pods.
#[test]
fn s15_a_deployment_ends_with_what_its_spec_says() {
    for seed in seeds() {
        let _named = Named(seed);
        let mut course = Course::new(seed, never_too_many);
        let recreate = seed % 4 == 0;
        let amounts = [json!(0), json!(1), json!("25%"), json!("100%")];
        let any = |course: &mut Course| amounts[usize::try_from(course.chance.below(4)).unwrap()].clone();
        let (surge, unavailable) = (any(&mut course), any(&mut course));
        let strategy = if recreate { json!({"type": "Recreate"}) } else { rolling(&surge, &unavailable) };
        let mut web = deployment(4, "one", strategy);
        // Five are wanted at most.
        let extra = match surge.as_str() {
            _ if recreate => 0,
            Some("100%") => 5,
            Some(_) => 2,
            None => surge.as_i64().unwrap(),
        };
        web["metadata"]["annotations"][BOUND] = (5 + extra).to_string().into();
        course.model.put(Kind::Deployment, web);
        for _ in 0..60 {
            if course.chance.one_in(6) {
                let (what, number) = (course.chance.below(4), course.chance.below(6));
                course.model.change(Kind::Deployment, &key("web"), |web| match what {
                    0 => web["spec"]["replicas"] = number.into(),
                    1 => web["spec"]["paused"] = (number % 2 == 0).into(),
                    _ => web["spec"]["template"]["spec"]["containers"][0]["image"] = format!("v{}", number % 3).into(),
                });
            }
            if course.chance.one_in(20) {
                course.restart();
            }
            course.nodes();
            let seconds = course.chance.below(20).cast_signed();
            course.step(seconds);
        }
        course.model.change(Kind::Deployment, &key("web"), |web| web["spec"]["paused"] = false.into());
        course.settle();
        assert_rolled_out(&course.model);
    }
}

fn settled(deployment: Value) -> Course {
    let mut course = Course::new(1, never_too_many);
    course.model.put(Kind::Deployment, deployment);
    course.settle();
    course
}

fn set_image(course: &mut Course, image: &str) {
    course.model.change(Kind::Deployment, &key("web"), |web| {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    });
}

#[test]
fn a_roll_out_keeps_enough_pods_and_a_roll_back_takes_the_old_set_again() {
    let mut course = settled(deployment(4, "one", rolling(&json!(1), &json!(0))));
    let first = sets(&course.model, "web")[0]["metadata"]["name"].clone();
    for (image, revision) in [("two", "2"), ("one", "3")] {
        set_image(&mut course, image);
        for _ in 0..40 {
            course.nodes();
            course.step(1);
            let ready = pods(&course.model, "web").iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            assert!(ready >= 4, "{ready} of 4");
            assert!(pods(&course.model, "web").len() <= 5);
        }
        assert_rolled_out(&course.model);
        let web = course.model.get(Kind::Deployment, "web");
        assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], revision);
    }
    let sets = sets(&course.model, "web");
    assert_eq!(sets.len(), 2);
    let again = sets.iter().find(|set| set["metadata"]["name"] == first).unwrap();
    assert_eq!(again["spec"]["replicas"], 4);
    assert_eq!(again["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(again["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"], "4");
    assert_eq!(again["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"], "5");
    assert!(again["metadata"]["labels"]["pod-template-hash"].is_string());
}

#[test]
fn recreate_starts_no_new_pod_while_an_old_one_runs() {
    let mut course = settled(deployment(3, "one", json!({"type": "Recreate"})));
    set_image(&mut course, "two");
    for _ in 0..20 {
        let images: Vec<_> = course.model.of(Kind::Pod).map(|pod| image(pod).clone()).collect();
        assert!(!(images.contains(&json!("one")) && images.contains(&json!("two"))), "{images:?}");
        course.nodes();
        course.step(1);
    }
    assert_rolled_out(&course.model);
}

#[test]
fn a_roll_out_that_gets_nowhere_says_so_after_its_deadline() {
    let mut course = settled(deployment(2, "one", rolling(&json!(1), &json!(0))));
    set_image(&mut course, "two");
    for _ in 0..15 {
        course.step(50);
    }
    let progressing = condition(course.model.get(Kind::Deployment, "web"), "Progressing");
    assert_eq!((&progressing["status"], &progressing["reason"]), (&json!("False"), &json!("ProgressDeadlineExceeded")));
    assert!(progressing["message"].as_str().unwrap().ends_with("has timed out progressing."), "{progressing}");
}

#[test]
fn a_roll_out_that_comes_along_slowly_is_not_late() {
    let mut course = settled(deployment(4, "one", rolling(&json!(1), &json!(0))));
    set_image(&mut course, "two");
    for _ in 0..20 {
        course.step(250);
        let progressing = condition(course.model.get(Kind::Deployment, "web"), "Progressing");
        assert_eq!(progressing["status"], "True", "{progressing}");
        course.nodes();
    }
    assert_rolled_out(&course.model);
}

#[test]
fn a_pause_holds_a_roll_out_but_not_a_scaling() {
    let mut course = settled(deployment(2, "one", rolling(&json!(1), &json!(0))));
    course.model.change(Kind::Deployment, &key("web"), |web| {
        web["spec"]["paused"] = true.into();
        web["spec"]["replicas"] = 5.into();
    });
    set_image(&mut course, "two");
    course.settle();
    let images = pods(&course.model, "web").iter().map(|pod| image(pod).clone()).collect::<Vec<_>>();
    assert_eq!(images, vec![json!("one"); 5]);
    let progressing = condition(course.model.get(Kind::Deployment, "web"), "Progressing");
    assert_eq!(progressing["reason"], "DeploymentPaused");
}

#[test]
fn a_set_that_cannot_be_made_is_named_where_it_is_told() {
    let mut course = Course::new(1, never_too_many);
    course.calm = true;
    course.model.refuses = Some(Kind::ReplicaSet);
    course.model.put(Kind::Deployment, deployment(2, "one", rolling(&json!(1), &json!(0))));
    course.step(1);
    let progressing = condition(course.model.get(Kind::Deployment, "web"), "Progressing");
    assert_eq!(progressing["reason"], "ReplicaSetCreateError");
    let message = progressing["message"].as_str().unwrap();
    assert!(message.starts_with("Failed to create new replica set \"web-") && message.ends_with("\": no"), "{message}");
    course.model.refuses = None;
    course.settle();
    assert_rolled_out(&course.model);
}

#[test]
fn stale_notes_of_a_scaling_hold_up_no_roll_out() {
    for next in [rolling(&json!(0), &json!(1)), json!({"type": "Recreate"})] {
        let mut course = settled(deployment(3, "one", rolling(&json!(0), &json!(1))));
        // The roll-out had begun when fewer were wanted: the size is right, the note is not.
        let set = course.model.names(Kind::ReplicaSet)[0].clone();
        course.model.change(Kind::ReplicaSet, &set, |set| {
            set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] = "4".into();
        });
        course.model.change(Kind::Deployment, &key("web"), |web| web["spec"]["strategy"] = next);
        set_image(&mut course, "two");
        course.settle();
        assert_rolled_out(&course.model);
    }
}

#[test]
fn scaling_ends_in_a_roll_out_that_became_recreate() {
    let mut course = settled(deployment(4, "one", rolling(&json!(1), &json!(0))));
    set_image(&mut course, "two");
    // The new pods are not ready: both ReplicaSets want some.
    course.step(1);
    course.step(1);
    course.model.change(Kind::Deployment, &key("web"), |web| {
        web["spec"]["strategy"] = json!({"type": "Recreate"});
        web["spec"]["replicas"] = 3.into();
    });
    course.settle();
    assert_rolled_out(&course.model);
}
