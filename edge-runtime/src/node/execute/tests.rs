//! What a step does to the node and to the store.

use serde_json::json;

use super::super::bench::{Bench, pod, running};
use super::*;
use crate::pod::event::StartFailure;
use crate::pod::record::SandboxState;

fn of(container: &str) -> ContainerRef {
    ContainerRef { uid: "u".to_owned(), container: container.to_owned(), attempt: 0 }
}

#[test]
fn container_is_known_until_it_is_removed() {
    let mut bench = Bench::new();
    bench.add("u");
    let id = bench.container("u", ContainerState::waiting());
    bench.record_mut("u").containers.get_mut("c").unwrap().garbage.insert(0, true);
    bench.node.deleted(&id, Err("busy".to_owned()));
    assert!(bench.node.containers.get(&id).is_some());
    assert_eq!(bench.record("u").containers["c"].garbage.len(), 1);
    bench.node.deleted(&id, Ok(()));
    assert!(bench.node.containers.get(&id).is_none());
    assert!(bench.record("u").containers["c"].garbage.is_empty());
}

#[test]
fn teardown_follows_when_the_monitor_has_forgotten_the_containers() {
    let mut bench = Bench::new();
    bench.add("u");
    let id = bench.container("u", ContainerState::waiting());
    bench.sandbox("u", SandboxState::TearingDown);
    assert_eq!(bench.node.teardown("u"), None);
    bench.node.cleared("u", Err("busy".to_owned()));
    let state = &bench.record("u").sandbox.state;
    assert!(matches!(state, SandboxState::Failed { message, .. } if message == "busy"), "{state:?}");
    assert!(bench.node.containers.get(&id).is_some(), "the next teardown asks for it again");

    bench.sandbox("u", SandboxState::TearingDown);
    bench.node.cleared("u", Ok(()));
    assert_eq!(bench.record("u").sandbox.state, SandboxState::Gone);
    assert!(bench.node.containers.get(&id).is_none());
    assert_eq!(bench.node.teardown("u"), Some(PodEvent::TornDown), "at once without containers");
}

#[test]
fn container_that_cannot_be_prepared_is_not_started() {
    let mut bench = Bench::new();
    bench.add("u");
    for (container, expected, word) in
        [("c", StartFailure::Create, "sha256:gone"), ("other", StartFailure::Config, "other")]
    {
        let answer = bench.node.start_container(&pod("u", "u"), of(container), "id", "sha256:gone");
        let Some(PodEvent::StartFailed { failure, message, .. }) = &answer else { panic!("{answer:?}") };
        assert!(*failure == expected && message.contains(word), "{container}: {message}");
        assert!(bench.node.containers.get("id").is_none(), "the monitor does not know it");
    }
}

#[test]
fn processes_are_shared_with_a_target_that_lives() {
    let mut bench = Bench::new();
    bench.add("u");
    let mut body = serde_json::to_value(pod("u", "u")).unwrap();
    body["spec"]["ephemeralContainers"] = json!([{"name": "debug", "targetContainerName": "c"}, {"name": "alone"}]);
    let target: Pod = serde_json::from_value(body.clone()).unwrap();
    body["spec"]["shareProcessNamespace"] = json!(true);
    let shared: Pod = serde_json::from_value(body).unwrap();
    let join = |bench: &Bench, pod: &Pod, container: &str| bench.node.pid_to_join("u", pod, container);
    assert_eq!(join(&bench, &target, "c"), Ok(None));
    assert_eq!(join(&bench, &target, "alone"), Ok(None));
    assert!(join(&bench, &target, "debug").is_err(), "its target has not started");
    assert!(join(&bench, &shared, "c").is_err(), "the pause container has not started");
    let own = i32::try_from(std::process::id()).unwrap();
    bench.container("u", running("u", own));
    assert_eq!(join(&bench, &target, "debug"), Ok(Some(own)));
    bench.container("u", running("u", i32::MAX));
    assert!(join(&bench, &target, "debug").is_err(), "its process has ended");
}

#[test]
fn folder_of_a_forgotten_pod_goes_with_its_logs() {
    let mut bench = Bench::new();
    bench.add("u");
    let paths = bench.node.cx.paths.clone();
    let made = [paths.pod("u"), paths.pod_logs("ns", "u", "u")];
    made.iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    bench.node.forget("u");
    assert_eq!(made.map(|folder| folder.exists()), [false; 2]);
}

#[test]
fn forgotten_pod_leaves_nothing_in_memory() {
    let mut bench = Bench::new();
    bench.add("u");
    bench.container("u", ContainerState::waiting());
    bench.node.forget("u");
    assert!(!bench.node.cx.pods.contains("u") && bench.node.containers.ids_of("u").is_empty());
    assert!(bench.next_news().is_none());
    bench.add("static");
    bench.record_mut("static").source = PodSource::Static;
    bench.node.forget("static");
    let news = bench.next_news();
    assert!(matches!(news, Some(News::ManifestsChanged)), "an edited manifest may wait for its end");
}
