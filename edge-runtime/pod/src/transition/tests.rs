//! Records as the store keeps them.

use serde_json::json;

use super::super::event::ProbeKind;
use super::super::testing::{Sim, one};
use super::*;

#[test]
fn a_record_survives_its_json() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    sim.exited("c", 1);
    sim.started("c");
    sim.exited("c", 1);
    sim.tell(PodEvent::DeletionRequested { grace_s: 3 });
    let text = serde_json::to_string(&sim.record).unwrap();
    assert_eq!(serde_json::from_str::<PodRecord>(&text).unwrap(), sim.record);
    assert!(text.len() < 1500, "{} bytes are written with every change", text.len());
}

#[test]
fn a_record_of_an_older_build_is_read() {
    let old = json!({
        "uid": "u", "namespace": "ns", "name": "p", "source": "Api", "boot_id": "b",
        "started_at": "2023-11-14T22:13:20Z",
        "containers": {"c": {"kind": "App", "attempt": 2, "state": {"state": "Running", "id": "x", "pid": 7,
                             "started_at": "2023-11-14T22:13:20Z", "since": 5}}},
    });
    let record: PodRecord = serde_json::from_value(old).unwrap();
    assert_eq!(record.containers["c"].state.live_id(), Some("x"));
}

#[test]
fn a_verdict_belongs_to_its_attempt() {
    let mut sim = Sim::new(one("Always"));
    sim.bring_up();
    let id = sim.id("c");
    let news = |id: String| PodEvent::Probe { container: "c".into(), id, probe: ProbeKind::Readiness, success: true };
    let other = apply(sim.record.clone(), news("other".into()), &sim.now());
    assert_eq!(other.containers["c"].probes.readiness, None);
    let own = apply(sim.record.clone(), news(id), &sim.now());
    assert_eq!(own.containers["c"].probes.readiness, Some(true));
}
