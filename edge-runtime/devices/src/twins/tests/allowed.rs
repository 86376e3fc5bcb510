//! Mappers of pods in some namespaces only.

use std::collections::BTreeMap;

use sampan_devices_control::Dmi;
use sampan_dmi::ReportDeviceStatesRequest;
use sampan_grpc::Code;

use super::mappers::{FOLDER, registration};
use super::*;

fn only(namespaces: &[&str]) -> Settings {
    let allow_namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
    Settings { dmi: Some(Dmi { folder: FOLDER.into(), allow_namespaces }), ..settings() }
}

fn state() -> Request {
    Request::State(ReportDeviceStatesRequest {
        device_name: "t1".into(),
        device_namespace: "default".into(),
        state: "online".into(),
    })
}

/// Answers so far, by number of the call.
fn answers(world: &mut World) -> Vec<(u64, Option<Code>)> {
    world.tick();
    let mut answers = Vec::new();
    world.said.retain(|said| {
        let Output::Answer { call, answer } = said else { return true };
        answers.push((*call, answer.as_ref().err().map(|status| status.code)));
        false
    });
    answers
}

/// Pods that the daemon is asked for.
fn asked(world: &mut World) -> Vec<String> {
    world.tick();
    let mut asked = Vec::new();
    world.said.retain(|said| {
        let Output::Tell(FromHelper::Pod { uid }) = said else { return true };
        asked.push(uid.clone());
        false
    });
    asked
}

#[test]
fn only_pods_of_these_namespaces_register_and_report() {
    let mut world = World::started(&only(&["devices", "lab"]), &BTreeMap::new());
    let mut call = 0;
    let mut speak = |world: &mut World, request: Request, pod: &str| {
        call += 1;
        world.twins.asked(world.now, call, request, pod.to_owned());
        call
    };
    // Both wait for one answer of the daemon.
    let (first, second) =
        (speak(&mut world, registration("m", "lab", true), "good"), speak(&mut world, state(), "good"));
    assert!(answers(&mut world).is_empty());
    assert_eq!(asked(&mut world), ["good"]);
    world.twins.pod(world.now, "good", Some("lab".into()));
    assert_eq!(answers(&mut world), [(first, None), (second, None)]);
    // After the answer of the daemon both permission and refusal are known.
    let third = speak(&mut world, state(), "good");
    let bad = speak(&mut world, registration("n", "lab", true), "bad");
    assert_eq!((answers(&mut world), asked(&mut world)), (vec![(third, None)], vec!["bad".to_owned()]));
    world.twins.pod(world.now, "bad", Some("default".into()));
    let again = speak(&mut world, state(), "bad");
    let denied = Some(Code::PermissionDenied);
    assert_eq!(answers(&mut world), [(bad, denied), (again, denied)]);
    // A process of the node, and one of a pod that the node does not have.
    let none = speak(&mut world, registration("n", "lab", true), "");
    let strange = speak(&mut world, state(), "strange");
    world.twins.pod(world.now, "strange", None);
    assert_eq!(answers(&mut world), [(none, denied), (strange, denied)]);
    let mappers = world.twins.mappers().expect("DMI is on");
    assert_eq!(mappers.as_array().map(Vec::len), Some(1));
    // Without a daemon the namespace is unknown.
    let waits = speak(&mut world, state(), "new");
    world.twins.daemon_went(world.now);
    let late = speak(&mut world, state(), "newer");
    let away = Some(Code::Unavailable);
    assert_eq!(answers(&mut world), [(waits, away), (late, away)]);
}

#[test]
fn flood_of_unknown_pods_is_answered() {
    let mut world = World::started(&only(&["lab"]), &BTreeMap::new());
    (0..1_000).for_each(|n| world.twins.asked(world.now, n, state(), format!("pod-{n}")));
    let refused = answers(&mut world);
    assert!(refused.len() > 900 && refused.iter().all(|(_, code)| *code == Some(Code::Unavailable)));
    assert_eq!(refused.len() + asked(&mut world).len(), 1_000);
}

#[test]
fn a_mapper_goes_with_its_pod_and_frees_its_place() {
    let mut world = World::started(&only(&[]), &BTreeMap::new());
    for call in 0..9 {
        let request = registration(&format!("m{call}"), &format!("p{call}"), true);
        world.twins.asked(world.now, call, request, "greedy".to_owned());
    }
    let full = Some(Code::ResourceExhausted);
    assert_eq!(answers(&mut world).last(), Some(&(8, full)), "a share for each pod");
    world.twins.asked(world.now, 10, registration("other", "x", true), "modest".to_owned());
    assert_eq!(answers(&mut world), [(10, None)]);
    assert_eq!(asked(&mut world), Vec::<String>::new());
    world.wait(60_000);
    assert_eq!(asked(&mut world), ["greedy", "modest"]);
    world.twins.pod(world.now, "greedy", None);
    world.twins.pod(world.now, "modest", Some("lab".into()));
    assert_eq!(world.twins.mappers().expect("DMI is on").as_array().map(Vec::len), Some(1));
}

#[test]
fn four_pods_cannot_keep_all_places_of_mappers() {
    let mut world = World::started(&only(&[]), &BTreeMap::new());
    let register = |world: &mut World, call: u64, pod: &str| {
        let request = registration(&format!("m{call}"), &format!("p{call}"), true);
        world.twins.asked(world.now, call, request, pod.to_owned());
        answers(world)
    };
    for call in 0..32 {
        assert_eq!(register(&mut world, call, &format!("greedy-{}", call / 8)), [(call, None)]);
    }
    let full = Some(Code::ResourceExhausted);
    for (call, pod, answer) in [(32, "modest", None), (33, "greedy-3", full), (34, "", None), (35, "greedy-0", full)] {
        assert_eq!(register(&mut world, call, pod), [(call, answer)], "{pod}");
    }
    let mappers = world.twins.mappers().expect("DMI is on");
    let of = |pod: &str| mappers.as_array().into_iter().flatten().filter(|mapper| mapper["pod"] == pod).count();
    assert_eq!(["greedy-0", "greedy-1", "greedy-2", "greedy-3", "modest", ""].map(of), [8, 8, 7, 7, 1, 1]);
}

/// Mappers of an earlier process, under other settings.
#[test]
fn mappers_that_may_not_be_there_any_more_are_forgotten() {
    let (mut world, mut rows) = (World::started(&only(&[]), &BTreeMap::new()), BTreeMap::new());
    for (call, pod) in [(1, "good"), (2, "bad"), (3, "")] {
        let request = registration(&format!("m{call}"), &format!("p{call}"), true);
        world.twins.asked(world.now, call, request, pod.to_owned());
    }
    assert_eq!(answers(&mut world).len(), 3);
    world.wait(1_000);
    world.tick();
    world.rows(&mut rows);
    assert_eq!(rows.keys().filter(|uid| uid.starts_with("mapper/")).count(), 3);
    let mut world = World::started(&only(&["lab"]), &rows);
    let names = |world: &World| {
        let mappers = world.twins.mappers().expect("DMI is on");
        let names = mappers.as_array().into_iter().flatten().filter_map(|mapper| mapper["pod"].as_str());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&world), ["good", "bad"]);
    assert_eq!(asked(&mut world), ["bad", "good"]);
    world.twins.pod(world.now, "good", Some("lab".into()));
    world.twins.pod(world.now, "bad", Some("default".into()));
    assert_eq!(names(&world), ["good"]);
    world.wait(1_000);
    world.tick();
    world.rows(&mut rows);
    assert!(rows.keys().all(|uid| !uid.starts_with("mapper/2") && !uid.starts_with("mapper/3")), "{rows:?}");
}
