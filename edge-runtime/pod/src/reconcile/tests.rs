//! Lives of pods, as events in and steps out. Every turn also checks that a second call adds nothing.

use super::super::record::NodeEnd;
use super::super::refusal::{Admission, Refusal};
use super::super::status::{HostFacts, publish};
use serde_json::json;

use super::super::event::{ImageFailure, PodEvent, ProbeKind, StartFailure};
use super::super::record::{ContainerState, SandboxState};
use super::super::testing::{Sim, at, exit, one, pod};

#[test]
fn a_pod_comes_up() {
    let mut sim = Sim::new(one("Always"));
    assert_eq!(sim.turn(), ["sandbox"]);
    assert_eq!(sim.sandbox_ready(), ["start c 0"]);
    assert!(sim.started("c").is_empty());
    assert_eq!(sim.wake, None, "an idle pod must not wake anybody");
    assert_eq!(
        sim.events,
        ["Pulled: Container image \"img:1\" already present on machine and can be accessed by the pod"]
    );
}

#[test]
fn crashes_back_off_as_the_kubelet_does() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    assert_eq!(sim.exited("c", 1), ["start c 1", "remove c 0"], "the first restart is immediate");
    sim.started("c");
    for (attempt, delay, text) in [(2, 10, "10s"), (3, 20, "20s"), (4, 40, "40s"), (5, 80, "1m20s")] {
        assert_eq!(sim.exited("c", 1), [format!("remove c {}", attempt - 1)]);
        let (reason, message) = sim.waiting("c");
        assert_eq!(reason, "CrashLoopBackOff");
        assert_eq!(message, format!("back-off {text} restarting failed container=c pod=p_ns(u)"));
        assert_eq!(sim.wake_s(), Some(sim.s + delay));
        assert!(sim.wait(delay - 1).is_empty());
        assert_eq!(sim.wait(1), [format!("start c {attempt}")]);
        sim.started("c");
    }
    assert!(sim.events.contains(&"BackOff: Back-off restarting failed container c in pod p_ns(u)".to_owned()));
    sim.wait(601);
    assert_eq!(sim.exited("c", 1), ["start c 6", "remove c 5"], "a long healthy run forgets the back-off");
}

#[test]
fn ends_by_restart_policy() {
    for (policy, code, again, succeeded) in [
        ("Always", 0, true, None),
        ("Always", 1, true, None),
        ("OnFailure", 1, true, None),
        ("OnFailure", 0, false, Some(true)),
        ("Never", 0, false, Some(true)),
        ("Never", 3, false, Some(false)),
    ] {
        let mut sim = Sim::new(one(policy));
        sim.bring_up();
        let steps = sim.exited("c", code);
        assert_eq!(steps.contains(&"start c 1".to_owned()), again, "{policy} {code}");
        assert_eq!(steps.contains(&"teardown".to_owned()), !again, "{policy} {code}");
        assert_eq!(sim.record.terminal.as_ref().map(|t| t.succeeded), succeeded, "{policy} {code}");
        if !again {
            assert!(sim.tell(PodEvent::TornDown).is_empty());
            assert_eq!(sim.record.sandbox.state, SandboxState::Gone);
        }
    }
}

#[test]
fn rules_of_a_container_come_before_the_pods_policy() {
    let rule = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let mut sim = Sim::new(pod(json!({"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "img:1", "restartPolicy": "Never", "restartPolicyRules": rule}]})));
    sim.bring_up();
    assert_eq!(sim.exited("c", 42), ["start c 1", "remove c 0"]);
    sim.started("c");
    assert_eq!(sim.exited("c", 1), ["teardown"]);
    assert!(sim.record.terminal.as_ref().is_some_and(|end| !end.succeeded));
}

#[test]
fn init_containers_run_one_by_one() {
    let mut sim = Sim::new(pod(json!({
        "initContainers": [{"name": "i1", "image": "init:1"}, {"name": "i2", "image": "init:1"}],
        "containers": [{"name": "a", "image": "img:1"}, {"name": "b", "image": "img:1"}],
    })));
    sim.turn();
    assert_eq!(sim.sandbox_ready(), ["start i1 0"]);
    sim.started("i1");
    assert_eq!(sim.exited("i1", 1), ["start i1 1", "remove i1 0"]);
    sim.started("i1");
    assert_eq!(sim.exited("i1", 0), ["start i2 0", "remove i1 1"]);
    assert_eq!(sim.exited("i2", 0), ["start a 0", "start b 0", "remove i2 0"], "an exit may overtake its start");
}

#[test]
fn a_failed_init_container_fails_a_never_pod() {
    let mut sim = Sim::new(pod(json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "init:1"}],
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    sim.turn();
    sim.sandbox_ready();
    sim.started("i");
    assert_eq!(sim.exited("i", 2), ["teardown"]);
    assert!(!sim.record.terminal.as_ref().unwrap().succeeded);
}

#[test]
fn sidecars_start_in_order_and_stop_last() {
    let sidecar = |name: &str| {
        json!({"name": name, "image": "img:1", "restartPolicy": "Always",
               "startupProbe": {"exec": {"command": ["true"]}}})
    };
    let mut sim = Sim::new(pod(json!({
        "initContainers": [sidecar("s1"), sidecar("s2")],
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    let up = |name: &str, sim: &Sim| PodEvent::Probe {
        container: name.into(),
        id: sim.id(name),
        probe: ProbeKind::Startup,
        success: true,
    };
    sim.turn();
    assert_eq!(sim.sandbox_ready(), ["start s1 0"]);
    assert!(sim.started("s1").is_empty(), "the next waits for the startup probe");
    let news = up("s1", &sim);
    assert_eq!(sim.tell(news), ["start s2 0"]);
    sim.started("s2");
    let news = up("s2", &sim);
    assert_eq!(sim.tell(news), ["start c 0"]);
    sim.started("c");
    assert_eq!(sim.exited("s1", 0), ["start s1 1", "remove s1 0"], "a sidecar that ends is started again");
    sim.started("s1");
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 20 }), ["stop c 20"]);
    sim.s += 3;
    assert_eq!(sim.exited("c", 0), ["stop s2 17", "remove c 0"]);
    assert_eq!(sim.exited("s2", 0), ["stop s1 17", "remove s2 0"]);
    assert_eq!(sim.wait(17), ["kill s1"]);
    assert_eq!(sim.exited("s1", 137), ["teardown"]);
}

#[test]
fn failed_sidecar_does_not_delay_started_containers() {
    let sidecar = |name: &str| json!({"name": name, "image": "img:1", "restartPolicy": "Always"});
    let init = json!({"name": "i", "image": "init:1"});
    let mut sim = Sim::new(pod(json!({
        "initContainers": [sidecar("s1"), sidecar("s2"), init],
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    sim.turn();
    sim.sandbox_ready();
    assert_eq!(sim.started("s1"), ["start s2 0"]);
    assert_eq!(sim.started("s2"), ["start i 0"]);
    sim.started("i");
    for (name, after) in [("s1", "start s1 1"), ("s2", "start s2 1")] {
        assert_eq!(sim.exited(name, 1)[0], after);
        sim.started(name);
        assert_eq!(sim.exited(name, 1), [format!("remove {name} 1")]);
        assert_eq!(sim.waiting(name).0, "CrashLoopBackOff");
    }
    assert_eq!(sim.exited("i", 0), ["start c 0", "remove i 0"]);
    assert_eq!(sim.wait(10), ["start s1 2", "start s2 2"]);
}

#[test]
fn a_new_sandbox_begins_with_the_first_init_container_again() {
    let mut sim = Sim::new(pod(json!({
        "initContainers": [{"name": "i", "image": "init:1"}, {"name": "s", "image": "img:1", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    sim.turn();
    sim.sandbox_ready();
    sim.started("i");
    sim.exited("i", 0);
    assert_eq!(sim.started("s"), ["start c 0"]);
    sim.started("c");
    (sim.boot, sim.s) = ("b2".to_owned(), 5);
    assert_eq!(sim.turn()[0], "sandbox");
    assert_eq!(sim.sandbox_ready(), ["start i 1"]);
    sim.started("i");
    assert_eq!(sim.exited("i", 0)[0], "start s 1");
    assert_eq!(sim.started("s"), ["start c 1"]);
}

#[test]
fn a_sidecar_gets_a_moment_even_if_no_grace_is_left() {
    let spec = json!({
        "initContainers": [{"name": "s", "image": "img:1", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "image": "img:1"}],
    });
    let mut sim = Sim::new(pod(spec));
    sim.turn();
    sim.sandbox_ready();
    sim.started("s");
    sim.started("c");
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 5 }), ["stop c 5"]);
    assert_eq!(sim.wait(5), ["kill c", "stop s 2"]);
    assert_eq!(sim.wait(2), ["kill s"]);
}

#[test]
fn a_finished_pod_stops_its_sidecars() {
    let mut sim = Sim::new(pod(json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "initContainers": [{"name": "s", "image": "img:1", "restartPolicy": "Always"}],
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    sim.turn();
    sim.sandbox_ready();
    assert_eq!(sim.started("s"), ["start c 0"]);
    sim.started("c");
    assert_eq!(sim.exited("c", 0), ["stop s 5", "remove c 0"]);
    assert_eq!(sim.exited("s", 143), ["teardown"], "no restart, and the teardown removes what is left");
    assert!(sim.record.terminal.as_ref().unwrap().succeeded);
}

#[test]
fn deletion_stops_then_kills_then_reports_the_end() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 30 }), ["stop c 30"]);
    assert_eq!(sim.events, ["Killing: Stopping container c"]);
    assert_eq!(sim.wake_s(), Some(30));
    assert!(sim.wait(10).is_empty());
    assert!(sim.tell(PodEvent::DeletionRequested { grace_s: 15 }).is_empty(), "a shorter grace moves the deadline");
    assert_eq!(sim.wake_s(), Some(15));
    assert_eq!(sim.wait(5), ["kill c"]);
    assert_eq!(sim.exited("c", 137), ["teardown"]);
    assert_eq!(sim.tell(PodEvent::TornDown), ["gone"]);
    assert!(sim.turn().is_empty());
    assert_eq!(sim.tell(PodEvent::ObjectGone { grace_s: 30 }), ["forget"]);
}

#[test]
fn no_grace_leaves_two_seconds() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 0 }), ["stop c 2"]);
    assert!(sim.wait(1).is_empty());
    assert_eq!(sim.wait(1), ["kill c"]);
}

#[test]
fn a_tombstone_ends_without_a_report() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    assert_eq!(sim.tell(PodEvent::ObjectGone { grace_s: 7 }), ["stop c 7"]);
    assert_eq!(sim.exited("c", 0), ["teardown"]);
    assert_eq!(sim.tell(PodEvent::TornDown), ["forget"]);
}

#[test]
fn a_deletion_mark_in_the_object_is_enough() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    sim.pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at("b", 0).wall));
    sim.pod.metadata.deletion_grace_period_seconds = Some(4);
    assert_eq!(sim.turn(), ["stop c 4"]);
}

#[test]
fn deletion_waits_for_answers_under_way() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    assert!(sim.tell(PodEvent::DeletionRequested { grace_s: 5 }).is_empty(), "the sandbox is being made");
    assert_eq!(sim.sandbox_ready(), ["teardown"]);

    let mut sim = Sim::new(one("Always"));
    sim.turn();
    sim.sandbox_ready();
    assert!(sim.tell(PodEvent::DeletionRequested { grace_s: 5 }).is_empty(), "nobody to signal yet");
    assert_eq!(sim.started("c"), ["stop c 5"], "late news of a start does not undo the stop");
    assert_eq!(sim.exited("c", 0), ["teardown"]);

    let mut sim = Sim::new(one("Always"));
    sim.turn();
    sim.sandbox_ready();
    sim.tell(PodEvent::DeletionRequested { grace_s: 5 });
    let id = sim.id("c");
    let failed =
        PodEvent::StartFailed { container: "c".into(), id, failure: StartFailure::Create, message: "no".into() };
    assert_eq!(sim.tell(failed), ["teardown"]);
}

#[test]
fn a_start_that_never_answers_is_killed_in_the_end() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    sim.sandbox_ready();
    sim.tell(PodEvent::DeletionRequested { grace_s: 5 });
    assert_eq!(sim.wait(5), ["kill c"]);
    assert_eq!(sim.started("c"), ["kill c"], "the first signal may have met no process");
}

#[test]
fn a_new_image_restarts_only_its_container() {
    let spec = |image: &str| {
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 9,
               "containers": [{"name": "a", "image": image}, {"name": "b", "image": "img:1"}]})
    };
    let mut sim = Sim::new(pod(spec("img:1")));
    sim.bring_up();
    sim.pod = pod(spec("img:2"));
    assert_eq!(sim.turn(), ["stop a 9"]);
    assert_eq!(sim.events, ["Killing: Container a definition changed, will be restarted"]);
    assert_eq!(sim.exited("a", 0), ["start a 1", "remove a 0"], "whatever the restart policy");
    sim.started("a");
    assert_eq!(sim.record.containers["a"].image_id, "sha256:img:2");
    assert_eq!(sim.record.containers["b"].attempt, 0);
}

#[test]
fn a_failed_liveness_probe_restarts() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    let failed = PodEvent::Probe { container: "c".into(), id: sim.id("c"), probe: ProbeKind::Liveness, success: false };
    assert_eq!(sim.tell(failed.clone()), ["stop c 30"]);
    assert_eq!(sim.events, ["Killing: Container c failed liveness probe, will be restarted"]);
    assert_eq!(sim.exited("c", 137), ["start c 1", "remove c 0"]);
    sim.started("c");
    assert!(sim.tell(failed).is_empty(), "a verdict about an older attempt means nothing");
}

#[test]
fn a_pull_that_fails_backs_off() {
    let mut sim = Sim::new(pod(json!({"containers": [{"name": "c", "image": "far/away:1"}]})));
    sim.turn();
    assert_eq!(sim.sandbox_ready(), ["image far/away:1"]);
    let failed = |failure| PodEvent::ImageFailed { container: "c".into(), failure, message: "no route".into() };
    assert!(sim.tell(failed(ImageFailure::Pull)).is_empty());
    assert_eq!(sim.waiting("c"), ("ErrImagePull".into(), "no route".into()));
    assert!(sim.wait(3).is_empty());
    let text = "Back-off pulling image \"far/away:1\"";
    assert_eq!(sim.waiting("c"), ("ImagePullBackOff".into(), format!("{text}: ErrImagePull: no route")));
    assert_eq!(sim.events, [format!("BackOff: {text}"), "Failed: Error: ImagePullBackOff".to_owned()]);
    assert_eq!(sim.wake_s(), Some(10));
    assert_eq!(sim.wait(7), ["image far/away:1"]);
    sim.tell(failed(ImageFailure::Pull));
    assert!(sim.wait(19).is_empty());
    assert_eq!(sim.wait(1), ["image far/away:1"]);
    let ready = PodEvent::ImageReady { container: "c".into(), image_id: "far/away@sha256:1".into() };
    assert_eq!(sim.tell(ready), ["start c 0"]);
    assert_eq!(sim.record.containers["c"].image_id, "far/away@sha256:1");
}

#[test]
fn waiting_pod_continues_when_its_object_arrives() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    sim.sandbox_ready();
    let failed = PodEvent::StartFailed {
        container: "c".into(),
        id: sim.id("c"),
        failure: StartFailure::Config,
        message: "configmap \"x\" not found".into(),
    };
    assert!(sim.tell(failed).is_empty());
    assert_eq!(sim.waiting("c"), ("CreateContainerConfigError".into(), "configmap \"x\" not found".into()));
    assert_eq!(sim.wake_s(), Some(10));
    sim.s += 1;
    assert_eq!(sim.tell(PodEvent::DependencyChanged), ["start c 0"], "the attempt was never used");
}

#[test]
fn a_process_that_cannot_start_counts_as_an_attempt() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    sim.sandbox_ready();
    let failed = |sim: &Sim| PodEvent::StartFailed {
        container: "c".into(),
        id: sim.id("c"),
        failure: StartFailure::Run,
        message: "exec: \"nope\": not found".into(),
    };
    let news = failed(&sim);
    assert!(sim.tell(news).is_empty());
    assert_eq!(sim.waiting("c").0, "RunContainerError");
    assert_eq!(sim.record.containers["c"].last.as_ref().unwrap().exit_code, 128);
    assert_eq!(sim.wait(10), ["start c 1"]);
    let news = failed(&sim);
    sim.tell(news);
    assert_eq!(sim.waiting("c").0, "CrashLoopBackOff");

    let mut sim = Sim::new(one("Never"));
    sim.turn();
    sim.sandbox_ready();
    let news = failed(&sim);
    assert_eq!(sim.tell(news), ["teardown"]);
    assert!(!sim.record.terminal.as_ref().unwrap().succeeded);
}

#[test]
fn a_sandbox_that_fails_is_tried_again() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    let failed = PodEvent::SandboxFailed { reason: "FailedMount".into(), message: "no".into() };
    for delay in [1, 2, 4, 8, 16, 30, 30] {
        assert!(sim.tell(failed.clone()).is_empty());
        assert!(sim.wait(delay - 1).is_empty());
        assert_eq!(sim.wait(1), ["sandbox"]);
    }
    sim.tell(failed);
    assert_eq!(sim.tell(PodEvent::DependencyChanged), ["sandbox"]);
}

#[test]
fn a_reboot_starts_over() {
    let mut sim = Sim::new(pod(json!({
        "initContainers": [{"name": "i", "image": "init:1"}],
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    sim.turn();
    sim.sandbox_ready();
    sim.started("i");
    sim.exited("i", 0);
    sim.started("c");
    sim.tell(PodEvent::Removed { container: "i".into(), attempt: 0 });
    sim.boot = "b2".into();
    sim.s = 5;
    assert_eq!(sim.turn(), ["sandbox", "remove c 0"]);
    let t = sim.record.containers["c"].latest_end().unwrap();
    assert_eq!((t.exit_code, t.reason.as_str()), (255, "Unknown"));
    assert_eq!(sim.sandbox_ready(), ["start i 1"]);
    assert_eq!(sim.exited("i", 0), ["start c 1", "remove i 1"], "no back-off is left after a reboot");
}

#[test]
fn a_reboot_ends_a_never_pod() {
    let mut sim = Sim::new(one("Never"));
    sim.bring_up();
    sim.boot = "b2".into();
    assert_eq!(sim.turn(), ["teardown"]);
    assert!(!sim.record.terminal.as_ref().unwrap().succeeded);
    assert!(sim.tell(PodEvent::TornDown).is_empty());
}

#[test]
fn daemon_restart_resumes_running_steps() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    assert_eq!(sim.resumed(&[]), ["sandbox"]);
    sim.sandbox_ready();
    let id = sim.id("c");
    assert_eq!(sim.resumed(&[]), ["start c 0"], "the runtime never made it: the same attempt");
    assert!(sim.resumed(&[(&id, 0)]).is_empty());
    assert!(matches!(sim.record.containers["c"].state, ContainerState::Starting { .. }), "its answer will come");
    assert!(sim.resumed(&[(&id, 7)]).is_empty());
    assert!(matches!(sim.record.containers["c"].state, ContainerState::Running { pid: 7, .. }));
    assert!(sim.resumed(&[(&id, 7)]).is_empty(), "what runs is left alone");
    sim.tell(PodEvent::DeletionRequested { grace_s: 9 });
    assert_eq!(sim.resumed(&[(&id, 7)]), ["stop c 9"], "the signal may not have been sent");
    sim.exited("c", 0);
    assert_eq!(sim.resumed(&[]), ["teardown"]);
}

#[test]
fn unseen_end_has_an_unknown_exit() {
    let mut sim = Sim::new(one("Never"));
    sim.bring_up();
    sim.resumed(&[]);
    let t = sim.record.containers["c"].latest_end().unwrap().clone();
    assert_eq!((t.exit_code, t.reason.as_str()), (137, "ContainerStatusUnknown"));
}

#[test]
fn old_news_changes_nothing() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    let old = sim.id("c");
    sim.exited("c", 1);
    let before = sim.record.clone();
    sim.tell(PodEvent::Exited { container: "c".into(), id: old.clone(), exit: exit(9) });
    sim.tell(PodEvent::Started { container: "c".into(), id: old, pid: 1, started_at: at("b", 1).wall });
    sim.tell(PodEvent::TornDown);
    sim.tell(PodEvent::ImageReady { container: "nobody".into(), image_id: String::new() });
    assert_eq!(sim.record, before);
}

#[test]
fn a_pod_that_has_ended_in_the_api_never_runs_again() {
    let mut sim = Sim::new(one("Never"));
    sim.pod.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    assert!(sim.turn().is_empty());
    assert!(sim.record.terminal.as_ref().unwrap().succeeded);
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 30 }), ["gone"]);
}

#[test]
fn the_deadline_ends_a_pod() {
    let mut sim = Sim::new(pod(json!({
        "activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 3,
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    sim.bring_up();
    assert_eq!(sim.wake_s(), Some(60));
    assert_eq!(sim.wait(60), ["stop c 3"]);
    assert_eq!(sim.record.terminal.as_ref().unwrap().reason, "DeadlineExceeded");
    assert_eq!(sim.wait(3), ["kill c"]);
}

#[test]
fn the_deadline_runs_on_over_a_reboot() {
    let mut sim = Sim::new(pod(json!({"activeDeadlineSeconds": 60, "containers": [{"name": "c", "image": "img:1"}]})));
    sim.bring_up();
    sim.s = 40;
    sim.boot = "b2".into();
    sim.turn();
    assert_eq!(sim.wake_s(), Some(60), "the wall clock of these tests goes on with the seconds");
    sim.sandbox_ready();
    sim.started("c");
    sim.boot = "b3".into();
    sim.s = 10;
    sim.turn();
    assert_eq!(sim.wake_s(), Some(30), "a clock that falls back gives nothing back");
}

#[test]
fn unmountable_volume_is_waited_for() {
    let mut sim = Sim::new(pod(json!({
        "containers": [{"name": "c", "image": "img:1"}],
        "volumes": [{"name": "v", "rbd": {"image": "x", "monitors": ["m"]}}],
    })));
    assert!(sim.turn().is_empty());
    let event = "FailedMount: spec.volumes[0].rbd is not supported by this node";
    assert_eq!(sim.events, [event]);
    assert!(sim.tell(PodEvent::DependencyChanged).is_empty());
    assert_eq!(sim.events, [event], "said once");
    assert_eq!(sim.wake_s(), Some(600));
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 9 }), ["teardown"]);
}

#[test]
fn impossible_pod_is_refused_at_once() {
    let mut sim =
        Sim::new(pod(json!({"resourceClaims": [{"name": "r"}], "containers": [{"name": "c", "image": "img:1"}]})));
    assert!(sim.turn().is_empty());
    assert_eq!(sim.events, ["PodFeatureUnsupported: spec.resourceClaims is not supported by this node"]);
    assert_eq!(sim.record.terminal.as_ref().unwrap().reason, "PodFeatureUnsupported");
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 9 }), ["gone"]);
}

#[test]
fn pod_waits_while_ending_pods_hold_its_port() {
    let refusal = Refusal { reason: "NodePorts".into(), message: "no free ports".into() };
    let mut sim = Sim::new(one("Always"));
    sim.admission = Admission::Waits(refusal.clone());
    assert!(sim.turn().is_empty());
    assert_eq!((sim.wake_s(), sim.record.admitted, sim.record.terminal.is_some()), (Some(1), false, false));
    assert!(sim.wait(1).is_empty());
    assert_eq!(sim.events, ["WaitingForNode: waits for pods of this node that are ending: no free ports"]);
    let (_, status) = publish(&sim.pod, sim.record.clone(), &HostFacts::default(), &sim.now());
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    sim.admission = Admission::Admitted;
    assert_eq!(sim.wait(1), ["sandbox"]);
    // Another pod may come first.
    let mut late = Sim::new(one("Always"));
    late.admission = Admission::Waits(refusal.clone());
    late.turn();
    late.admission = Admission::Refused(refusal.clone());
    assert!(late.wait(1).is_empty());
    let (_, status) = publish(&late.pod, late.record.clone(), &HostFacts::default(), &late.now());
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("NodePorts")));
    // A pod that is deleted while it waits is removed.
    let mut gone = Sim::new(one("Always"));
    gone.admission = Admission::Waits(refusal);
    gone.turn();
    assert_eq!(gone.tell(PodEvent::DeletionRequested { grace_s: 9 }), ["gone"]);
}

#[test]
fn pod_waits_for_the_device_of_a_plugin() {
    let mut sim = Sim::new(one("Always"));
    sim.admission = Admission::WaitsForDevice("cannot allocate unregistered device example.com/gpu".into());
    assert!(sim.turn().is_empty());
    assert_eq!((sim.wake_s(), sim.record.admitted, sim.record.terminal.is_some()), (Some(10), false, false));
    assert!(sim.wait(10).is_empty());
    assert_eq!(sim.events, ["WaitingForDevice: cannot allocate unregistered device example.com/gpu"]);
    sim.admission = Admission::Admitted;
    assert_eq!(sim.wait(10), ["sandbox"]);
}

#[test]
fn deadline_counts_no_time_before_the_clock_was_set() {
    let mut sim =
        Sim::new(pod(json!({"activeDeadlineSeconds": 3600, "containers": [{"name": "c", "image": "img:1"}]})));
    sim.record.started_at = jiff::Timestamp::UNIX_EPOCH;
    sim.bring_up();
    sim.boot = "next".to_owned();
    sim.turn();
    assert_eq!(sim.record.terminal, None, "it has not run for fifty years");
}

#[test]
fn deadline_counts_no_time_that_the_clock_has_skipped() {
    let mut sim =
        Sim::new(pod(json!({"activeDeadlineSeconds": 3600, "containers": [{"name": "c", "image": "img:1"}]})));
    // The clock was two years behind when the pod began.
    sim.record.started_at = "2021-11-14T00:00:00Z".parse().unwrap();
    sim.bring_up();
    assert!(sim.wake_s().is_some_and(|second| second <= 600), "the clock may be set at any time");
    sim.s += 100;
    sim.boot = "next".to_owned();
    sim.turn();
    assert_eq!((sim.record.terminal.is_none(), u64::from(sim.record.active_before_s)), (true, sim.s));
    sim.sandbox_ready();
    sim.started("c");
    sim.s = 3600;
    sim.turn();
    assert_eq!(sim.record.terminal.as_ref().unwrap().reason, "DeadlineExceeded");
}

#[test]
fn deadline_counts_on_after_a_clock_that_was_ahead() {
    let mut sim =
        Sim::new(pod(json!({"activeDeadlineSeconds": 3600, "containers": [{"name": "c", "image": "img:1"}]})));
    sim.bring_up();
    // As after a turn while the clock was a year ahead.
    sim.record.active_from = Some("2024-11-14T00:00:00Z".parse().unwrap());
    sim.wait(600);
    assert_eq!(sim.record.active_from, None, "the clock is right again");
    sim.boot = "next".to_owned();
    sim.wait(1200);
    assert_eq!((sim.record.terminal.is_none(), sim.record.active_before_s), (true, 1800));
}

#[test]
fn an_eviction_stops_within_its_own_grace_and_fails_the_pod() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    let end = NodeEnd { grace_s: 1, disruption: true };
    let event = PodEvent::Evict { reason: "Evicted".into(), message: "The node was low. ".into(), end };
    assert_eq!(sim.tell(event.clone()), ["stop c 2"], "the least that any container gets");
    assert_eq!(sim.wait(2), ["kill c"]);
    assert_eq!(sim.exited("c", 137), ["teardown"]);
    let (_, status) = publish(&sim.pod, sim.record.clone(), &HostFacts::default(), &sim.now());
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some("The node was low. ")));
    let condition = status.conditions.iter().flatten().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!((&*condition.status, condition.reason.as_deref()), ("True", Some("TerminationByKubelet")));
    sim.tell(PodEvent::TornDown);
    assert!(sim.tell(event).is_empty(), "ended once");
}

#[test]
fn ephemeral_containers_run_once_and_count_for_nothing() {
    let mut sim = Sim::new(one("Never"));
    sim.bring_up();
    let mut more = sim.pod.clone();
    let debug = |name: &str| json!({"name": name, "image": "img:2", "targetContainerName": "c"});
    let mut spec = serde_json::to_value(&more.spec).unwrap();
    spec["ephemeralContainers"] = json!([debug("d"), debug("e")]);
    more.spec = serde_json::from_value(spec).unwrap();
    sim.pod = more;
    assert_eq!(sim.turn(), ["start d 0", "start e 0"]);
    sim.started("d");
    sim.started("e");
    assert_eq!(sim.exited("d", 1), ["remove d 0"]);
    assert!(sim.wait(1000).is_empty(), "never again");
    assert_eq!(sim.exited("c", 0), ["stop e 30", "remove c 0"], "the pod does not wait for it");
    assert!(sim.record.terminal.as_ref().unwrap().succeeded);
    assert_eq!(sim.exited("e", 143), ["teardown"]);
}

#[test]
fn the_holder_of_shared_processes_comes_first_and_goes_last() {
    let mut sim =
        Sim::new(pod(json!({"shareProcessNamespace": true, "containers": [{"name": "c", "image": "img:1"}]})));
    sim.turn();
    assert_eq!(sim.sandbox_ready(), ["start POD 0"]);
    assert_eq!(sim.started("POD"), ["start c 0"]);
    sim.started("c");
    assert_eq!(sim.exited("POD", 137), ["start POD 1", "remove POD 0"], "the kernel ends c with it");
    assert_eq!(sim.exited("c", 137), ["remove c 0"]);
    assert_eq!(sim.started("POD"), ["start c 1"]);
    sim.started("c");
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 5 }), ["stop c 5"]);
    assert_eq!(sim.exited("c", 0), ["stop POD 5", "remove c 1"]);
    assert_eq!(sim.exited("POD", 0), ["teardown"]);
    assert!(!sim.events.iter().any(|event| event.contains("POD")), "{:?}", sim.events);
}
