//! Which containers a restart ends, and when it is done.

use jiff::Timestamp;
use sampan_pod::clock::Mono;
use serde_json::json;

use super::*;

fn running(id: &str) -> ContainerState {
    ContainerState::Running { id: id.into(), pid: 7, started_at: Timestamp::UNIX_EPOCH, since: Mono::default() }
}

fn pod(policy: &str) -> (PodRecord, PodSpec) {
    let mut record = PodRecord { name: "web".into(), ..Default::default() };
    for (name, kind) in [
        ("app", ContainerKind::App),
        ("side", ContainerKind::Sidecar),
        ("setup", ContainerKind::Init),
        ("pause", ContainerKind::Pause),
    ] {
        let container = ContainerRecord { state: running(name), ..ContainerRecord::new(kind) };
        record.containers.insert(name.into(), container);
    }
    let spec = json!({"restartPolicy": policy, "initContainers": [{"name": "setup"}, {"name": "side", "restartPolicy": "Always"}],
            "containers": [{"name": "app", "lifecycle": {"stopSignal": "SIGUSR1"}}]});
    (record, serde_json::from_value(spec).unwrap())
}

#[test]
fn only_containers_that_start_again_are_ended() {
    let (mut record, spec) = pod("Always");
    let names = |found: &[Target]| found.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let found = targets(&record, &spec, None).unwrap();
    assert_eq!(names(&found), ["app", "side"]);
    assert_eq!((found[0].signal, found[1].signal), (stop_signal::number("USR1"), None));
    assert_eq!(names(&targets(&record, &spec, Some("side")).unwrap()), ["side"]);
    assert!(targets(&record, &spec, Some("setup")).unwrap_err().contains("setup of pod web does not run"));
    for policy in ["Never", "OnFailure"] {
        let (record, spec) = pod(policy);
        assert!(targets(&record, &spec, None).unwrap_err().contains(policy));
        assert_eq!(names(&targets(&record, &spec, Some("side")).unwrap()), ["side"]);
    }
    record.containers.values_mut().for_each(|one| one.state = ContainerState::waiting());
    assert!(targets(&record, &spec, None).unwrap_err().contains("no container"));
}

#[test]
fn restart_is_done_when_another_attempt_runs_or_waits() {
    let (mut record, spec) = pod("Always");
    let all = targets(&record, &spec, Some("app")).unwrap();
    let mut now = |state: ContainerState| {
        record.containers.get_mut("app").unwrap().state = state;
        phase(&record, &all[0])
    };
    assert_eq!(now(running("app")), Phase::Ends);
    assert_eq!(now(ContainerState::waiting()), Phase::Starts);
    let back_off =
        ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new(), retry_at: None };
    assert_eq!(now(back_off), Phase::Waits("CrashLoopBackOff".into()));
    assert_eq!(now(running("other")), Phase::Runs);
}

#[test]
fn missing_container_is_named_with_what_to_do() {
    let pod = PodRecord { namespace: "shop".into(), name: "web".into(), ..Default::default() };
    assert!(
        late(&["app"], &pod, false).ends_with("containers app do not run again yet: edge-runtime describe shop/web")
    );
    assert!(late(&["app"], &pod, true).starts_with("edge-runtime has ended"));
}
