//! Held starts and held stops, as events in and steps out.

use super::super::event::{ImageFailure, PodEvent, ProbeKind};
use super::super::record::{ContainerState, NodeEnd, PodRecord, PodSource, StartHold};
use super::super::status::{HostFacts, publish};
use super::super::testing::{Sim, annotated, at, one};

const HOLD_UPGRADE: &str = "edge.kubeedge.io/hold-upgrade";
const STOP_LOCK: &str = "sampan.dev/stop-lock";

fn held() -> Sim {
    let mut sim = Sim::new(annotated(HOLD_UPGRADE, "true"));
    assert!(sim.turn().is_empty());
    sim
}

/// A running pod whose stop lock is held, and may be for half an hour.
fn locked() -> Sim {
    let mut sim = Sim::new(annotated(STOP_LOCK, "30m"));
    sim.bring_up();
    sim.locked = Some(true);
    sim
}

/// Status and reason of a condition; empty without it.
fn condition(sim: &mut Sim, name: &str) -> (String, String) {
    let (record, status) = publish(&sim.pod, sim.record.clone(), &HostFacts::default(), &sim.now());
    sim.record = record;
    let found = status.conditions.into_iter().flatten().find(|condition| condition.type_ == name);
    found.map(|found| (found.status, found.reason.unwrap_or_default())).unwrap_or_default()
}

fn texts(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn pod_without_annotations_has_nothing_of_holds() {
    // That its lock is not looked at, `Sim` checks.
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    let record = serde_json::to_value(&sim.record).unwrap();
    assert!(record.get("start_hold").is_none() && record.get("stop_hold").is_none(), "{record}");
    assert_eq!([condition(&mut sim, "HeldUpgrade"), condition(&mut sim, "StopHeld")], [texts("", ""), texts("", "")]);
    assert_eq!(sim.tell(PodEvent::Released), Vec::<String>::new());
    assert_eq!(sim.record.start_hold, StartHold::Open);
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 30 }), ["stop c 30"]);
}

#[test]
fn held_pod_starts_when_it_is_released() {
    let mut sim = held();
    let message = "Upgrade is currently held due to edge-hold-upgrade annotation";
    assert_eq!(sim.events, [format!("HeldUpgrade: {message}")]);
    assert_eq!(sim.waiting("c"), ("HeldUpgrade".to_owned(), message.to_owned()));
    assert_eq!(condition(&mut sim, "HeldUpgrade"), texts("True", "HoldUpgradeEnabled"));
    assert_eq!((sim.wake, sim.wait(86_400)), (None, Vec::new()));
    assert_eq!(sim.tell(PodEvent::Released), ["sandbox"]);
    assert_eq!(sim.waiting("c"), (String::new(), String::new()));
    assert_eq!(condition(&mut sim, "HeldUpgrade"), texts("False", ""));
    assert_eq!(sim.sandbox_ready(), ["start c 0"]);
    sim.started("c");
    assert_eq!(sim.exited("c", 1), ["start c 1", "remove c 0"], "only the first start is held");
}

#[test]
fn removed_annotation_releases_a_pod_once() {
    let mut sim = held();
    let annotations = sim.pod.metadata.annotations.take();
    assert_eq!(sim.turn(), ["sandbox"]);
    sim.pod.metadata.annotations = annotations;
    assert_eq!(sim.sandbox_ready(), ["start c 0"]);
}

#[test]
fn running_pod_is_not_held() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    sim.pod = annotated("sampan.dev/hold", "");
    assert_eq!(sim.exited("c", 1), ["start c 1", "remove c 0"]);
    assert_eq!(sim.record.start_hold, StartHold::Open);
    // The daemon has lost its record, and knows an earlier attempt from the monitor.
    let mut sim = Sim::new(annotated(HOLD_UPGRADE, "true"));
    sim.record = PodRecord::new("u", "ns", "p", PodSource::Api, &at("b", 0));
    sim.record.containers.entry("c".to_owned()).or_default().attempt = 1;
    assert_eq!(sim.turn(), ["sandbox"]);
}

#[test]
fn held_pod_stays_held_over_a_reboot() {
    let mut sim = held();
    sim.boot.push('x');
    assert!(sim.turn().is_empty());
    assert_eq!(sim.waiting("c").0, "HeldUpgrade");
    assert_eq!(sim.tell(PodEvent::Released), ["sandbox"]);
}

#[test]
fn held_pod_can_be_deleted() {
    let mut sim = held();
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 30 }), ["gone"]);
    assert_eq!(condition(&mut sim, "HeldUpgrade"), texts("False", ""));
}

#[test]
fn images_of_a_held_pod_are_pulled_once() {
    let mut sim = Sim::new(annotated(HOLD_UPGRADE, "true"));
    sim.images.clear();
    assert_eq!(sim.turn(), ["image img:1"]);
    let (container, message) = ("c".to_owned(), "no route".to_owned());
    let failed = PodEvent::ImageFailed { container: container.clone(), failure: ImageFailure::Pull, message };
    assert!(sim.tell(failed).is_empty());
    assert_eq!(sim.waiting("c").0, "ErrImagePull");
    let pause = sim.wake_s().unwrap() - sim.s;
    assert_eq!(sim.wait(pause), ["image img:1"]);
    assert!(sim.tell(PodEvent::ImageReady { container, image_id: "sha256:1".to_owned() }).is_empty());
    assert_eq!(sim.waiting("c").0, "HeldUpgrade");
    assert!(sim.wait(60).is_empty(), "an image that is removed meanwhile is pulled at the start");
    // Another pull is on its way when the pod is released.
    sim.pod.spec.as_mut().unwrap().containers[0].image = Some("img:2".to_owned());
    assert_eq!(sim.turn(), ["image img:2"]);
    assert_eq!(sim.tell(PodEvent::Released), ["sandbox"]);
    assert_eq!(sim.sandbox_ready(), ["image img:2"]);
}

#[test]
fn init_containers_of_a_released_pod_run_in_order() {
    let mut sim = held();
    sim.images.clear();
    let spec = sim.pod.spec.as_mut().unwrap();
    let container = |name: &str| k8s_openapi::api::core::v1::Container {
        name: name.to_owned(),
        image: Some("init:1".to_owned()),
        ..Default::default()
    };
    spec.init_containers = Some(vec![container("first"), container("second")]);
    assert_eq!(sim.turn(), ["image init:1", "image init:1", "image img:1"]);
    assert_eq!(sim.tell(PodEvent::Released), ["sandbox"]);
    sim.images = vec!["init:1".to_owned(), "img:1".to_owned()];
    assert_eq!(sim.sandbox_ready(), ["start first 0"]);
}

#[test]
fn deletion_waits_for_the_stop_lock() {
    let mut sim = locked();
    assert!(sim.tell(PodEvent::DeletionRequested { grace_s: 30 }).is_empty());
    assert_eq!(sim.wake_s(), Some(sim.s + 2));
    assert_eq!(condition(&mut sim, "StopHeld"), texts("True", "StopLocked"));
    assert!(
        sim.events.len() == 1 && sim.events[0].contains("at the latest at 2023-11-14T22:43:20Z"),
        "{:?}",
        sim.events
    );
    assert!(sim.wait(1000).is_empty());
    assert_eq!(sim.events.len(), 1, "told once");
    sim.locked = Some(false);
    assert_eq!(sim.wait(2), ["stop c 30"], "the grace period begins when the lock is free");
    assert_eq!(condition(&mut sim, "StopHeld"), texts("False", ""));
    sim.locked = Some(true);
    assert!(sim.wait(29).is_empty());
    assert_eq!(sim.wait(1), ["kill c"], "a lock that is taken again holds nothing");
}

#[test]
fn stop_lock_expires() {
    let mut sim = locked();
    sim.tell(PodEvent::DeletionRequested { grace_s: 30 });
    assert!(sim.wait(1799).is_empty());
    assert_eq!(sim.wake_s(), Some(sim.s + 1));
    assert_eq!(sim.wait(1), ["stop c 30"]);
    assert!(sim.events[1].starts_with("StopLockExpired: "), "{:?}", sim.events);
}

#[test]
fn exit_of_the_last_container_ends_a_hold() {
    let mut sim = locked();
    sim.tell(PodEvent::DeletionRequested { grace_s: 30 });
    assert_eq!(sim.exited("c", 0), ["teardown"]);
    assert_eq!(sim.record.stop_hold, None);
}

#[test]
fn forced_deletion_is_not_held() {
    let mut sim = locked();
    assert_eq!(sim.tell(PodEvent::ObjectGone { grace_s: 30 }), ["stop c 30"]);
    let mut sim = locked();
    sim.pod.metadata.deletion_grace_period_seconds = Some(0);
    assert_eq!(sim.tell(PodEvent::DeletionRequested { grace_s: 0 }), ["stop c 2"]);
    // A manifest that is removed is an ordinary end.
    let mut sim = locked();
    sim.record.source = PodSource::Static;
    assert!(sim.tell(PodEvent::ObjectGone { grace_s: 30 }).is_empty());
    // The same during a hold.
    let mut sim = locked();
    sim.tell(PodEvent::DeletionRequested { grace_s: 30 });
    sim.s += 100;
    assert_eq!(sim.tell(PodEvent::ObjectGone { grace_s: 30 }), ["stop c 30"]);
}

#[test]
fn node_that_ends_a_pod_does_not_wait() {
    let evict = || PodEvent::Evict {
        reason: "Evicted".to_owned(),
        message: "no memory".to_owned(),
        end: NodeEnd { grace_s: 1, disruption: true },
    };
    let mut sim = locked();
    assert_eq!(sim.tell(evict()), ["stop c 2"]);
    let mut sim = locked();
    sim.tell(PodEvent::DeletionRequested { grace_s: 30 });
    sim.s += 100;
    assert_eq!(sim.tell(evict()), ["stop c 2"], "also during a hold, with the node's grace");
}

#[test]
fn restart_waits_for_the_stop_lock() {
    let failed = |sim: &mut Sim| {
        let (container, id) = ("c".to_owned(), sim.id("c"));
        sim.tell(PodEvent::Probe { container, id, probe: ProbeKind::Liveness, success: false })
    };
    let changed = |sim: &mut Sim| {
        sim.pod.spec.as_mut().unwrap().containers[0].image = Some("img:2".to_owned());
        sim.turn()
    };
    for begin in [failed as fn(&mut Sim) -> Vec<String>, changed] {
        let mut sim = locked();
        assert!(begin(&mut sim).is_empty());
        assert!(sim.wait(10).is_empty());
        assert!(matches!(sim.record.containers["c"].state, ContainerState::Running { .. }));
        sim.locked = Some(false);
        assert_eq!(sim.wait(2), ["stop c 30"]);
        let mut sim = locked();
        begin(&mut sim);
        assert_eq!(sim.wait(1800), ["stop c 30"], "at the latest then");
    }
}

#[test]
fn hold_ends_with_its_reason() {
    let mut sim = locked();
    sim.pod.spec.as_mut().unwrap().containers[0].image = Some("img:2".to_owned());
    sim.turn();
    assert!(sim.record.stop_hold.is_some());
    sim.pod.spec.as_mut().unwrap().containers[0].image = Some("img:1".to_owned());
    assert!(sim.turn().is_empty());
    assert_eq!((sim.record.stop_hold.as_ref(), sim.wake), (None, None));
}

#[test]
fn deletion_has_the_whole_limit_after_another_hold() {
    let mut sim = locked();
    sim.pod.spec.as_mut().unwrap().containers[0].image = Some("img:2".to_owned());
    sim.turn();
    sim.s += 1000;
    assert!(sim.tell(PodEvent::DeletionRequested { grace_s: 30 }).is_empty());
    assert!(sim.wait(1799).is_empty());
    assert_eq!(sim.wait(1), ["stop c 30"]);
}

#[test]
fn hold_of_a_stop_ends_with_the_boot() {
    let mut sim = locked();
    sim.tell(PodEvent::DeletionRequested { grace_s: 30 });
    sim.boot.push('x');
    sim.turn();
    assert_eq!(sim.record.stop_hold, None);
}
