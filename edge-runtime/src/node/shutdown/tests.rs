//! Order and deadlines of a shutdown.

use std::rc::Rc;

use sampan_monitor::exit::ExitRecord;
use serde_json::json;

use super::super::bench::{Bench, pod, running};
use super::super::pods::Pods;
use super::*;
use crate::monitor::client::MonitorEvent;
use crate::pod::clock::Now;
use crate::pod::record::{ContainerKind, ContainerRecord, PodSource, SignalState, Terminal};

fn now() -> Now {
    Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() }
}

#[test]
fn critical_pods_stop_last_and_ended_ones_not_at_all() {
    let mut pods = Pods::default();
    let specs = [
        ("a", json!({"priorityClassName": "system-node-critical"})),
        ("b", json!({})),
        ("c", json!({"priority": CRITICAL_PRIORITY})),
        ("d", json!({"priority": CRITICAL_PRIORITY - 1})),
        ("e", json!({"priority": -1})),
        ("ended", json!({})),
    ];
    for (uid, mut spec) in specs {
        spec["containers"] = json!([]);
        let pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let mut record = PodRecord::new(uid, "ns", uid, PodSource::Api, &now());
        if uid == "ended" {
            record.terminal = Some(Terminal { succeeded: true, reason: String::new(), message: String::new() });
        }
        pods.insert(Entry::new(Rc::new(pod), record));
    }
    assert_eq!(in_order(pods.iter()), [vec!["b", "d", "e"], vec!["a", "c"]]);
    assert_eq!(in_order(Pods::default().iter()), [vec![""; 0], vec![""; 0]]);
}

#[test]
fn group_waits_for_its_longest_pod_within_the_budget() {
    let longest = |own: &[u32], budget| longest(own.iter().copied(), Duration::from_secs(budget)).as_secs();
    assert_eq!(longest(&[], 20), 0, "an empty group costs no time");
    assert_eq!(longest(&[0, 0], 20), 0);
    assert_eq!((longest(&[3, 5], 20), longest(&[20, 5], 20), longest(&[21], 20)), (5, 20, 20));
    assert_eq!((longest(&[u32::MAX], 20), longest(&[30], 0)), (20, 0));
}

#[test]
fn group_is_killed_once_and_then_left() {
    let [live, gone] = [true, false];
    assert_eq!(next(live, true, false, true), Next::Wait);
    assert_eq!(next(live, true, false, false), Next::Kill);
    assert_eq!(next(live, true, true, true), Next::Wait, "the kernel takes a moment");
    assert_eq!(next(live, true, true, false), Next::Group, "a process that cannot be killed holds up no other pod");
    assert_eq!(next(gone, true, false, true), Next::Wait, "its end is to be reported");
    assert_eq!(next(gone, true, false, false), Next::Group);
    assert_eq!(next(gone, false, false, true), Next::Group, "no need to wait for the deadline");
}

#[test]
fn only_containers_with_a_process_are_stopped() {
    let wall = now().wall;
    let id = String::from;
    let stopping = |pid| ContainerState::Stopping {
        id: id("s"),
        pid,
        started_at: None,
        because: StopReason::Deleted,
        kill_at: Mono(0),
        spare_until: None,
        signal: SignalState::None,
    };
    let states = [
        ("a", ContainerState::Running { id: id("r"), pid: 1, started_at: wall, since: Mono(0) }),
        ("b", stopping(7)),
        ("c", stopping(0)),
        ("d", ContainerState::waiting()),
        ("e", ContainerState::Starting { id: id("x"), reason: id(""), message: id("") }),
    ];
    let mut record = PodRecord::new("u", "ns", "p", PodSource::Api, &now());
    assert_eq!(with_process(&record).count(), 0);
    for (name, state) in states {
        record.containers.insert(id(name), ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) });
    }
    assert_eq!(Vec::from_iter(with_process(&record)), [("a", "r"), ("b", "s"), ("c", "s")]);
}

/// A node with the pods `a`, which has a process, and `b`, which is critical. Its machine shuts down.
fn shutting_down(pods: AtShutdown) -> (Bench, String) {
    let mut bench = Bench::new();
    Rc::make_mut(&mut bench.node.cx.config).shutdown.pods = pods;
    ["a", "b"].iter().for_each(|uid| bench.add(uid));
    let id = bench.container("a", running("a", 7));
    let mut critical = pod("b", "b");
    critical.spec.as_mut().unwrap().priority = Some(CRITICAL_PRIORITY);
    bench.node.cx.pods.get_mut("b").unwrap().pod = Rc::new(critical);
    let run = bench.node.cx.paths.run();
    std::fs::create_dir_all(&run).unwrap();
    assert!(!bench.node.stop_asked().unwrap(), "the daemon ends, and its pods go on");
    std::fs::write(run.join(MARK), "").unwrap();
    assert!(bench.node.stop_asked().unwrap());
    (bench, id)
}

#[test]
fn second_signal_ends_the_daemon() {
    let (mut bench, _) = shutting_down(AtShutdown::Resume);
    assert!(!bench.node.stop_asked().unwrap());
}

#[test]
fn pods_that_go_on_at_the_next_boot_keep_their_records() {
    let (mut bench, id) = shutting_down(AtShutdown::Resume);
    let before = ["a", "b"].map(|uid| bench.record(uid).clone());
    bench.node.settle("b").unwrap();
    assert!(!bench.node.cx.paths.pod("b").exists(), "no pod is begun");
    let exit = ExitRecord { id, code: 143, ..ExitRecord::default() };
    let now = bench.node.cx.mono();
    assert!(bench.node.shutdown_step(now).is_err(), "a process is there");
    bench.node.take_monitor(MonitorEvent::Exited(exit)).unwrap();
    assert_eq!(bench.node.shutdown_step(now), Ok(()));
    assert_eq!(["a", "b"].map(|uid| bench.record(uid).clone()), before);
}

#[test]
fn process_that_does_not_stop_is_killed_and_left() {
    let (mut bench, _) = shutting_down(AtShutdown::Resume);
    let now = bench.node.cx.mono();
    let Err(Some(deadline)) = bench.node.shutdown_step(now) else { panic!("it is stopping") };
    assert!(deadline <= now.after(Duration::from_secs(20)) && !bench.node.shutdown.killed);
    assert_eq!(bench.node.shutdown_step(deadline), Err(Some(deadline.after(LAST))));
    assert!(bench.node.shutdown.killed);
    assert_eq!(bench.node.shutdown_step(deadline.after(LAST)), Ok(()));
}

#[test]
fn pods_that_fail_end_in_order_and_report_it() {
    let (mut bench, _) = shutting_down(AtShutdown::Fail);
    let ended = |bench: &Bench, uid: &str| bench.record(uid).terminal.is_some();
    assert!(ended(&bench, "a") && !ended(&bench, "b"), "critical pods stop last");
    let end = bench.record("a").node_end.clone();
    assert_eq!(end, Some(NodeEnd { grace_s: 20, disruption: true }));
    let now = bench.node.cx.mono();
    bench.container("a", ContainerState::waiting());
    assert!(bench.node.shutdown_step(now).is_err(), "its end is not reported yet");
    bench.sandbox("a", SandboxState::Gone);
    assert!(bench.node.shutdown_step(now).is_err() && ended(&bench, "b"));
    bench.sandbox("b", SandboxState::Gone);
    assert_eq!(bench.node.shutdown_step(now), Ok(()));
}
