//! What news of the monitor means for pods.

use super::super::bench::{Bench, running};
use super::*;
use crate::pod::record::ContainerState as State;

#[test]
fn reason_for_a_condition_is_one_short_line() {
    assert_eq!(brief("disk\tfull\n\u{1b}[31m"), "disk?full??[31m");
    assert_eq!((brief(""), brief(&"é".repeat(600)).chars().count()), (String::new(), 512));
}

fn exit(id: &str) -> ExitRecord {
    ExitRecord { id: id.to_owned(), code: 3, ..ExitRecord::default() }
}

fn state<'a>(bench: &'a Bench, uid: &str) -> &'a State {
    &bench.record(uid).containers["c"].state
}

#[test]
fn container_that_the_monitor_does_not_list_has_ended() {
    let mut bench = Bench::new();
    bench.node.cx.resumed = false;
    ["lost", "runs"].iter().for_each(|uid| bench.add(uid));
    bench.container("lost", running("lost", 7));
    let id = bench.container("runs", running("runs", 7));
    let phase = Phase::Running { pid: 7, started_at: String::new() };
    bench.node.resume(vec![ContainerState { id, phase }]).unwrap();
    assert!(bench.node.cx.resumed, "pods take turns from now on");
    let State::Terminated(end) = state(&bench, "lost") else { panic!("{:?}", state(&bench, "lost")) };
    assert_eq!(end.reason, "ContainerStatusUnknown");
    assert!(matches!(state(&bench, "runs"), State::Running { pid: 7, .. }));
}

#[test]
fn start_that_was_under_way_goes_on() {
    let mut bench = Bench::new();
    bench.add("u");
    let id = bench.container("u", State::waiting());
    let starting = State::Starting { id: id.clone(), reason: String::new(), message: String::new() };
    bench.container("u", starting.clone());
    bench.node.resume(vec![ContainerState { id: id.clone(), phase: Phase::Starting }]).unwrap();
    assert_eq!(*state(&bench, "u"), starting);
    let phase = Phase::Running { pid: 7, started_at: "2026-01-01T00:00:00Z".to_owned() };
    bench.node.resume(vec![ContainerState { id, phase }]).unwrap();
    let State::Running { started_at, .. } = state(&bench, "u") else { panic!("{:?}", state(&bench, "u")) };
    assert_eq!(started_at.to_string(), "2026-01-01T00:00:00Z", "by the monitor's clock");
}

#[test]
fn exit_of_the_list_is_known_and_stored() {
    let mut bench = Bench::new();
    bench.add("u");
    let id = bench.container("u", running("u", 7));
    let listed = ContainerState { phase: Phase::Exited(exit(&id)), id };
    bench.node.resume(vec![listed]).unwrap();
    let stored = bench.node.cx.store.pod_record("u").unwrap().unwrap();
    assert_eq!(stored.containers["c"].latest_end().map(|end| end.exit_code), Some(3));
}

#[test]
fn exit_that_cannot_be_stored_ends_the_daemon() {
    let mut bench = Bench::new();
    bench.add("u");
    let id = bench.container("u", running("u", 7));
    bench.node.cx.store.refuse_writes(true);
    assert!(bench.node.exited(&exit(&id)).is_err());
    bench.node.cx.store.refuse_writes(false);
    bench.node.exited(&exit(&id)).unwrap();
    let stored = bench.node.cx.store.pod_record("u").unwrap().unwrap();
    assert_eq!(stored.containers["c"].latest_end().map(|end| end.exit_code), Some(3));
}

#[test]
fn monitor_speaks_of_attempts_by_their_ids() {
    let mut bench = Bench::new();
    bench.add("u");
    let id = bench.container("u", State::waiting());
    let starting = State::Starting { id: id.clone(), reason: String::new(), message: String::new() };
    bench.container("u", starting.clone());
    let failed = |id: &str| MonitorEvent::StartFailed { id: id.to_owned(), message: "no such file".to_owned() };
    bench.node.take_monitor(failed("other")).unwrap();
    assert_eq!(*state(&bench, "u"), starting);
    bench.node.take_monitor(failed(&id)).unwrap();
    let State::Terminated(end) = state(&bench, "u") else { panic!("{:?}", state(&bench, "u")) };
    assert_eq!((end.reason.as_str(), end.message.as_str()), ("StartError", "no such file"));
}
