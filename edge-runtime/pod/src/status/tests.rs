//! What kubectl would show along the roads of `reconcile/tests.rs`.

use serde_json::{Value, json};

use super::super::event::{PodEvent, ProbeKind, StartFailure};
use super::super::refusal::{Admission, Refusal};
use super::super::testing::{Sim, one, pod};
use super::*;

fn show(sim: &mut Sim) -> PodStatus {
    let host =
        HostFacts { host_ips: vec!["192.0.2.7".parse().unwrap()], recursive_read_only: false, runtime: String::new() };
    let (record, status) = publish(&sim.pod, sim.record.clone(), &host, &sim.now());
    sim.record = record;
    status
}

/// Phase, Ready condition (status, reason) and first app container's status, for comparison.
fn brief(sim: &mut Sim) -> (String, String, Value) {
    let status = show(sim);
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready").unwrap().clone();
    let c = serde_json::to_value(&status.container_statuses.as_ref().unwrap()[0]).unwrap();
    (status.phase.unwrap(), format!("{} {}", ready.status, ready.reason.unwrap_or_default()), c)
}

#[test]
fn from_creating_to_ready() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    let (phase, ready, c) = brief(&mut sim);
    assert_eq!((phase.as_str(), ready.as_str()), ("Pending", "False ContainersNotReady"));
    assert_eq!(c["state"], json!({"waiting": {"reason": "ContainerCreating"}}));
    assert_eq!(show(&mut sim).pod_ip, None);
    sim.sandbox_ready();
    sim.s = 2;
    sim.started("c");
    let (phase, ready, c) = brief(&mut sim);
    assert_eq!((phase.as_str(), ready.as_str()), ("Running", "True "));
    assert_eq!(c["state"], json!({"running": {"startedAt": "2023-11-14T22:13:22Z"}}));
    assert_eq!(c["containerID"], json!(format!("runc://{}", sim.id("c"))));
    assert_eq!(c["imageID"], json!("sha256:img:1"));
    assert_eq!((&c["ready"], &c["started"], &c["restartCount"]), (&json!(true), &json!(true), &json!(0)));
    let status = show(&mut sim);
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.2.3"));
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.7"));
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    let names: Vec<_> = status.conditions.iter().flatten().map(|c| c.type_.as_str()).collect();
    assert_eq!(names, ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]);
}

#[test]
fn nothing_is_ready_before_its_startup_probe_has_succeeded() {
    let probe = json!({"exec": {"command": ["true"]}});
    let spec = json!({"containers": [{"name": "c", "image": "img:1", "startupProbe": probe}]});
    let mut sim = Sim::new(pod(spec));
    sim.turn();
    sim.sandbox_ready();
    sim.started("c");
    let (phase, ready, c) = brief(&mut sim);
    assert_eq!((phase.as_str(), ready.as_str()), ("Running", "False ContainersNotReady"));
    assert_eq!((&c["ready"], &c["started"]), (&json!(false), &json!(false)));
    let (container, id) = ("c".to_owned(), sim.id("c"));
    sim.tell(PodEvent::Probe { container, id, probe: ProbeKind::Startup, success: true });
    let (_, ready, c) = brief(&mut sim);
    assert_eq!((ready.as_str(), &c["ready"], &c["started"]), ("True ", &json!(true), &json!(true)));
}

#[test]
fn failed_probe_counts_whatever_the_exit_code() {
    let spec = json!({"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "img:1",
        "imagePullPolicy": "Always", "livenessProbe": {"exec": {"command": ["true"]}}}]});
    let mut sim = Sim::new(pod(spec));
    sim.turn();
    sim.sandbox_ready();
    sim.tell(PodEvent::ImageReady { container: "c".into(), image_id: "sha256:1".into() });
    sim.started("c");
    let (container, id) = ("c".to_owned(), sim.id("c"));
    sim.tell(PodEvent::Probe { container, id, probe: ProbeKind::Liveness, success: false });
    assert_eq!(sim.exited("c", 0), ["image img:1", "remove c 0"]);
    let (phase, _, c) = brief(&mut sim);
    assert_eq!(phase, "Running", "not ended, though no process is left");
    assert_eq!(c["state"], json!({"waiting": {"reason": "ContainerCreating"}}), "an end with code 0 would be final");
    assert_eq!(c["lastState"]["terminated"]["exitCode"], json!(0));
}

#[test]
fn the_api_knows_since_when_a_pod_is_scheduled() {
    let mut sim = Sim::new(one("Always"));
    let known = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
                       {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
    sim.pod.status = serde_json::from_value(json!({"conditions": known})).unwrap();
    let status = serde_json::to_value(show(&mut sim)).unwrap();
    let since = |type_: &str| {
        let found = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == type_);
        found.unwrap()["lastTransitionTime"].as_str().unwrap().to_owned()
    };
    assert_eq!(since("PodScheduled"), "2020-01-01T00:00:00Z");
    assert_ne!(since("Ready"), "2020-01-01T00:00:00Z", "it is False now");
}

#[test]
fn conditions_keep_the_time_of_their_change() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    let first = show(&mut sim);
    sim.s = 50;
    assert_eq!(show(&mut sim), first, "nothing changed");
    sim.sandbox_ready();
    sim.started("c");
    let status = show(&mut sim);
    let since = |name: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|c| c.type_ == name).unwrap().last_transition_time.as_ref().unwrap().0.as_second() - 1_700_000_000
    };
    assert_eq!((since("Initialized"), since("Ready")), (0, 50));
}

#[test]
fn probes_decide_ready_and_started() {
    let probe = json!({"tcpSocket": {"port": 1}});
    let mut sim = Sim::new(pod(json!({"containers": [
        {"name": "c", "image": "img:1", "startupProbe": probe, "readinessProbe": probe}]})));
    sim.bring_up();
    let view = |sim: &mut Sim| {
        let c = brief(sim).2;
        (c["started"].as_bool().unwrap(), c["ready"].as_bool().unwrap())
    };
    assert_eq!(view(&mut sim), (false, false));
    for (probe, success, expected) in [
        (ProbeKind::Startup, true, (true, false)),
        (ProbeKind::Readiness, true, (true, true)),
        (ProbeKind::Readiness, false, (true, false)),
    ] {
        let id = sim.id("c");
        sim.tell(PodEvent::Probe { container: "c".into(), id, probe, success });
        assert_eq!(view(&mut sim), expected);
    }
    let status = show(&mut sim);
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "ContainersReady").unwrap();
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [c]"));
    sim.pod.spec.as_mut().unwrap().readiness_gates =
        Some(serde_json::from_value(json!([{"conditionType": "x/y"}])).unwrap());
    let id = sim.id("c");
    sim.tell(PodEvent::Probe { container: "c".into(), id, probe: ProbeKind::Readiness, success: true });
    assert_eq!(brief(&mut sim).1, "False ReadinessGatesNotReady");
}

#[test]
fn a_crash_loop_reads_as_usual() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    sim.exited("c", 1);
    let (phase, _, c) = brief(&mut sim);
    assert_eq!(phase, "Running");
    assert_eq!(c["state"]["terminated"]["exitCode"], json!(1), "the end stays in view until the next attempt runs");
    assert_eq!(c["restartCount"], json!(0));
    sim.started("c");
    let c = brief(&mut sim).2;
    assert_eq!((&c["restartCount"], &c["lastState"]["terminated"]["reason"]), (&json!(1), &json!("Error")));
    sim.exited("c", 1);
    let (phase, ready, c) = brief(&mut sim);
    assert_eq!((phase.as_str(), ready.as_str()), ("Running", "False ContainersNotReady"));
    assert_eq!(c["state"]["waiting"]["reason"], json!("CrashLoopBackOff"));
    assert_eq!(c["lastState"]["terminated"]["exitCode"], json!(1));
    assert_eq!(c["restartCount"], json!(1));
    assert!(c["containerID"].as_str().unwrap().starts_with("runc://"));
}

#[test]
fn ends_show_once_no_process_is_left() {
    for (code, phase, reason) in [(0, "Succeeded", "PodCompleted"), (1, "Failed", "PodFailed")] {
        let mut sim = Sim::new(pod(json!({
            "restartPolicy": "Never",
            "initContainers": [{"name": "s", "image": "img:1", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "image": "img:1"}],
        })));
        sim.turn();
        sim.sandbox_ready();
        sim.started("s");
        sim.started("c");
        sim.exited("c", code);
        assert_eq!(brief(&mut sim).0, "Running", "the sidecar is being stopped");
        sim.exited("s", 143);
        let (shown, ready, c) = brief(&mut sim);
        assert_eq!((shown.as_str(), ready), (phase, format!("False {reason}")));
        assert_eq!(c["state"]["terminated"]["exitCode"], json!(code));
    }
}

#[test]
fn init_containers_in_the_status() {
    let mut sim = Sim::new(pod(json!({
        "initContainers": [{"name": "i", "image": "init:1"}],
        "containers": [{"name": "c", "image": "img:1"}],
    })));
    sim.turn();
    sim.sandbox_ready();
    sim.started("i");
    let status = show(&mut sim);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let c = serde_json::to_value(&status.container_statuses.unwrap()[0]).unwrap();
    assert_eq!(c["state"], json!({"waiting": {"reason": "PodInitializing"}}));
    let initialized = status.conditions.iter().flatten().find(|c| c.type_ == "Initialized").unwrap();
    assert_eq!(initialized.message.as_deref(), Some("containers with incomplete status: [i]"));
    sim.exited("i", 0);
    let status = show(&mut sim);
    assert!(status.init_container_statuses.unwrap()[0].ready);
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    sim.started("c");
    assert_eq!(brief(&mut sim).0, "Running");
}

#[test]
fn waiting_for_configuration() {
    let mut sim = Sim::new(one("Always"));
    sim.turn();
    sim.sandbox_ready();
    let (id, failure) = (sim.id("c"), StartFailure::Config);
    sim.tell(PodEvent::StartFailed { container: "c".into(), id, failure, message: "configmap \"x\" not found".into() });
    let (phase, _, c) = brief(&mut sim);
    assert_eq!(phase, "Pending");
    assert_eq!(
        c["state"]["waiting"],
        json!({"reason": "CreateContainerConfigError", "message": "configmap \"x\" not found"})
    );
    let before = show(&mut sim);
    sim.tell(PodEvent::DependencyChanged);
    assert_eq!(show(&mut sim), before, "a retry is no news until it ends");
}

#[test]
fn a_deleted_pod_ends_with_a_final_phase() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    sim.tell(PodEvent::DeletionRequested { grace_s: 30 });
    assert_eq!(brief(&mut sim).0, "Running");
    sim.exited("c", 0);
    sim.tell(PodEvent::TornDown);
    assert_eq!(brief(&mut sim).0, "Succeeded");

    let mut sim = Sim::new(one("Always"));
    sim.turn();
    sim.tell(PodEvent::DeletionRequested { grace_s: 30 });
    sim.sandbox_ready();
    sim.tell(PodEvent::TornDown);
    let (phase, ready, c) = brief(&mut sim);
    assert_eq!((phase.as_str(), ready.as_str()), ("Failed", "False ContainersNotReady"));
    assert_eq!(c["state"]["terminated"]["reason"], json!("ContainerStatusUnknown"));
}

#[test]
fn a_refused_pod() {
    let mut sim = Sim::new(one("Always"));
    let refuse = |_: &Pod| Admission::Refused(Refusal { reason: "OutOfcpu".into(), message: "no cpu".into() });
    let world =
        super::super::reconcile::World { image: &|_| None, admit: &refuse, resize: &|_| None, stop_locked: &|| false };
    let plan = super::super::reconcile::reconcile(&sim.pod, sim.record.clone(), &world, &sim.now());
    sim.record = plan.record;
    let status = show(&mut sim);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: no cpu"));
    assert_eq!(status.container_statuses, None);
}

#[test]
fn host_network_pods_have_the_nodes_address() {
    let mut sim = Sim::new(pod(json!({"hostNetwork": true, "containers": [{"name": "c", "image": "img:1"}]})));
    assert_eq!(show(&mut sim).pod_ip.as_deref(), Some("192.0.2.7"));
}
