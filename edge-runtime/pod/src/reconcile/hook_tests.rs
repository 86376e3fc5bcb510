//! Lifecycle hooks on the road of a pod.

use serde_json::{Value, json};

use super::super::event::HookKind::{PostStart, PreStop};
use super::super::event::{PodEvent, ProbeKind};
use super::super::testing::{Sim, pod};

fn hooked(name: &str, hooks: &[&str]) -> Value {
    let hooks: serde_json::Map<String, Value> =
        hooks.iter().map(|h| ((*h).to_owned(), json!({"exec": {"command": ["x"]}}))).collect();
    json!({"name": name, "image": "img:1", "lifecycle": hooks})
}

fn up(spec: Value) -> Sim {
    let mut sim = Sim::new(pod(spec));
    sim.turn();
    sim.sandbox_ready();
    sim
}

#[test]
fn post_start_holds_up_those_behind() {
    let mut sim = up(json!({"containers": [hooked("a", &["postStart"]), {"name": "b", "image": "img:1"}]}));
    assert_eq!(sim.steps, ["sandbox", "start a 0"]);
    assert_eq!(sim.started("a"), ["PostStart a"]);
    assert!(sim.turn().is_empty());
    assert_eq!(sim.hook_done("a", PostStart, None), ["start b 0"]);
    sim.started("b");
    assert_eq!(sim.exited("a", 1), ["start a 1", "remove a 0"]);
    assert_eq!(sim.started("a"), ["PostStart a"], "every attempt has its hook");
    let id = sim.id("b");
    assert!(sim.exited("b", 1).iter().all(|step| !step.starts_with("start")), "held up again");
    assert_eq!(sim.hook_done("a", PostStart, None), ["start b 1"]);
    assert_ne!(sim.id("b"), id);
}

#[test]
fn a_sidecar_counts_as_started_after_its_hook() {
    let mut side = hooked("s", &["postStart"]);
    side["restartPolicy"] = json!("Always");
    let mut sim = up(json!({"initContainers": [side], "containers": [{"name": "c", "image": "img:1"}]}));
    assert_eq!(sim.started("s"), ["PostStart s"]);
    assert_eq!(sim.hook_done("s", PostStart, None), ["start c 0"]);
}

#[test]
fn a_failed_post_start_ends_the_container() {
    let mut sim = up(json!({"containers": [hooked("c", &["postStart", "preStop"]), {"name": "d", "image": "img:1"}]}));
    sim.started("c");
    sim.events.clear();
    assert_eq!(sim.hook_done("c", PostStart, Some("no")), ["PreStop c", "start d 0"]);
    assert_eq!(sim.events[0], "Killing: FailedPostStartHook");
    assert_eq!(sim.hook_done("c", PreStop, None), ["stop c 30"]);
    assert_eq!(sim.exited("c", 137), ["start c 1", "remove c 0"]);
    assert_eq!(sim.record.containers["c"].state.shown(), ("PostStartHookError", "no"));
}

#[test]
fn a_failed_post_start_of_a_never_pod_is_its_end() {
    let mut sim = up(json!({"restartPolicy": "Never", "containers": [hooked("c", &["postStart"])]}));
    sim.started("c");
    assert_eq!(sim.hook_done("c", PostStart, Some("no")), ["stop c 30"]);
    assert_eq!(sim.exited("c", 143), ["teardown"]);
    assert!(!sim.record.terminal.as_ref().unwrap().succeeded);
}

#[test]
fn pre_stop_uses_up_the_grace() {
    let mut sim = up(json!({"containers": [hooked("c", &["preStop"])]}));
    sim.started("c");
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 10 }), ["PreStop c"]);
    sim.s += 4;
    assert_eq!(sim.hook_done("c", PreStop, Some("fails, and that is all")), ["stop c 6"]);
    assert_eq!(sim.wait(6), ["kill c"]);
}

#[test]
fn a_hook_that_takes_all_the_grace_leaves_a_moment() {
    for (shortened, at) in [(None, 10), (Some(3), 3)] {
        let mut sim = up(json!({"containers": [hooked("c", &["preStop"])]}));
        sim.started("c");
        sim.tell(PodEvent::DeletionRequested { grace_s: 10 });
        if let Some(grace_s) = shortened {
            assert!(sim.tell(PodEvent::DeletionRequested { grace_s }).is_empty());
        }
        assert!(sim.wait(at - 1).is_empty());
        assert_eq!(sim.wait(1), ["stop c 2"]);
        let told = sim.events.iter().filter(|event| *event == "FailedPreStopHook: PreStopHook failed").count();
        assert_eq!(told, 1, "{:?}", sim.events);
        assert!(sim.tell(PodEvent::DeletionRequested { grace_s: 1 }).is_empty(), "the moment is not shortened");
        assert!(sim.wait(1).is_empty());
        assert_eq!(sim.wait(1), ["kill c"]);
    }
}

#[test]
fn force_leaves_the_hook_a_second() {
    let mut sim = up(json!({"containers": [hooked("c", &["preStop"])]}));
    sim.started("c");
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 0 }), ["PreStop c"]);
    assert_eq!(sim.wait(1), ["stop c 2"]);
    assert_eq!(sim.wait(2), ["kill c"]);
}

#[test]
fn liveness_runs_the_hook_and_an_own_end_does_not() {
    let mut sim = up(json!({"containers": [hooked("c", &["preStop"])]}));
    sim.started("c");
    let (container, id) = ("c".to_owned(), sim.id("c"));
    let failed = PodEvent::Probe { container, id, probe: ProbeKind::Liveness, success: false };
    assert_eq!(sim.tell(failed), ["PreStop c"]);
    assert_eq!(sim.hook_done("c", PreStop, None), ["stop c 30"]);
    assert_eq!(sim.exited("c", 137), ["start c 1", "remove c 0"]);
    sim.started("c");
    sim.wait(700);
    assert_eq!(sim.exited("c", 0), ["start c 2", "remove c 1"]);
}

#[test]
fn sidecars_run_their_hooks_at_once_and_stop_in_turn() {
    let side = |name: &str| {
        let mut side = hooked(name, &["preStop"]);
        side["restartPolicy"] = json!("Always");
        side
    };
    let mut sim = up(json!({
        "initContainers": [side("s1"), side("s2")], "containers": [{"name": "c", "image": "img:1"}],
    }));
    sim.started("s1");
    sim.started("s2");
    sim.started("c");
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 20 }), ["stop c 20", "PreStop s1", "PreStop s2"]);
    assert!(sim.hook_done("s2", PreStop, None).is_empty(), "not before the main containers");
    assert_eq!(sim.exited("c", 0), ["stop s2 20", "remove c 0"]);
    assert!(sim.hook_done("s1", PreStop, None).is_empty());
    assert_eq!(sim.exited("s2", 0), ["stop s1 20", "remove s2 0"]);
}

#[test]
fn hooks_cut_short_by_a_restart_of_the_daemon_run_again() {
    let mut sim = up(json!({"containers": [hooked("c", &["postStart", "preStop"])]}));
    sim.started("c");
    let id = sim.id("c");
    assert_eq!(sim.resumed(&[(&id, 7)]), ["PostStart c"]);
    sim.hook_done("c", PostStart, None);
    assert!(sim.resumed(&[(&id, 7)]).is_empty(), "one that has ended does not");
    sim.tell(PodEvent::DeletionRequested { grace_s: 20 });
    sim.s += 5;
    assert_eq!(sim.resumed(&[(&id, 7)]), ["PreStop c"]);
    assert_eq!(sim.hook_done("c", PreStop, None), ["stop c 15"]);
    assert_eq!(sim.resumed(&[(&id, 7)]), ["stop c 15"], "the signal may not have been sent");
}
