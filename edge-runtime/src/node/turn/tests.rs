//! Order of decision, commit and execution.

use edge_protocol::message::ToCloud;
use serde_json::json;

use super::super::bench::{Bench, running};
use super::*;
use crate::link::LinkHandle;
use crate::pod::record::{Deletion, SandboxState};

#[test]
fn step_is_executed_only_after_its_record_is_committed() {
    let mut bench = Bench::new();
    bench.add("u");
    let before = bench.record("u").clone();
    let folder = bench.node.cx.paths.pod("u");
    bench.node.cx.store.refuse_writes(true);
    assert!(bench.node.settle("u").is_err());
    assert!(!folder.exists(), "the sandbox was begun");
    let entry = bench.node.cx.pods.get("u").unwrap();
    assert!(entry.record == before && entry.unsaved, "the next turn decides the same");

    bench.node.cx.store.refuse_writes(false);
    bench.node.settle("u").unwrap();
    assert!(folder.exists());
    let entry = bench.node.cx.pods.get("u").unwrap();
    assert_ne!(entry.record.sandbox.state, SandboxState::None);
    assert!(!entry.unsaved);
    assert_eq!(bench.node.cx.store.pod_record("u").unwrap().as_ref(), Some(&entry.record));
}

#[test]
fn pod_that_is_forgotten_leaves_the_store_first() {
    let mut bench = Bench::new();
    bench.add("u");
    bench.node.settle("u").unwrap();
    let record = bench.record_mut("u");
    record.sandbox.state = SandboxState::Gone;
    record.deletion =
        Some(Deletion { requested_at: Default::default(), grace_s: 1, object_gone: true, reported: false });
    bench.node.cx.store.refuse_writes(true);
    assert!(bench.node.settle("u").is_err() && bench.node.cx.pods.contains("u"));
    bench.node.cx.store.refuse_writes(false);
    bench.node.settle("u").unwrap();
    assert!(!bench.node.cx.pods.contains("u"));
    assert_eq!(bench.node.cx.store.pod_record("u").unwrap(), None);
}

#[test]
fn reports_of_a_turn_leave_before_the_next_one() {
    let mut bench = Bench::new();
    let link = LinkHandle::for_tests(&bench.node.cx.paths, &[]);
    bench.node.cx.link = Some(link.clone());
    bench.node.cx.outgoing.connected(Vec::new(), Mono(0));
    for uid in ["runs", "ended"] {
        bench.add(uid);
        bench.sandbox(uid, SandboxState::Ready { since: Default::default() });
        bench.container(uid, running(uid, 7));
    }
    link.says();
    bench.node.take_turn("runs", Mono(0)).unwrap();
    let said = link.says();
    let of = |report: &Report| matches!(report, Report::PodStatus { uid, .. } if uid == "runs");
    assert!(said.iter().any(|said| matches!(said, ToCloud::Up { report, .. } if of(report))), "{said:?}");
    bench.node.exit_sync.told("ended", "c0");
    bench.node.take_turn("ended", Mono(0)).unwrap();
    assert!(link.says().is_empty(), "its end is not on the medium");
}

/// Reports of one turn of the pod `u`, in order, by kind and uid. Events are left out.
fn told(bench: &mut Bench, steps: &[Step]) -> Vec<String> {
    let record = bench.record("u").clone();
    bench.node.cx.pods.get_mut("u").unwrap().reported = Value::Null;
    let now = bench.node.cx.clock.now();
    let reports = bench.node.reports("u", &record, json!({"phase": "Running"}), steps, &now);
    let of = |report: Report| match report {
        Report::PodStatus { uid, .. } => Some(format!("status of {uid}")),
        Report::PodGone { uid, .. } => Some(format!("end of {uid}")),
        Report::MirrorGone { static_uid, .. } => Some(format!("end of the mirror of {static_uid}")),
        _ => None,
    };
    reports.into_iter().filter_map(of).collect()
}

#[test]
fn reports_are_about_the_object_of_the_api() {
    let mut bench = Bench::new();
    bench.add("u");
    assert_eq!(told(&mut bench, &[]), ["status of u"]);
    assert_eq!(told(&mut bench, &[Step::ReportGone]), ["status of u", "end of u"]);
    let gone = Deletion { requested_at: Default::default(), grace_s: 1, object_gone: true, reported: false };
    bench.record_mut("u").deletion = Some(gone);
    assert_eq!(told(&mut bench, &[Step::ReportGone]), [""; 0], "nobody has it any more");

    bench.record_mut("u").source = PodSource::Static;
    assert_eq!(told(&mut bench, &[]), [""; 0], "the API has no mirror yet");
    bench.node.cx.pods.get_mut("u").unwrap().mirror_uid = Some("m".to_owned());
    assert_eq!(told(&mut bench, &[]), ["status of m"], "its mirror outlives its manifest");
    assert_eq!(told(&mut bench, &[Step::Forget]), ["status of m", "end of the mirror of u"]);
    bench.node.cx.pods.get_mut("u").unwrap().mirror_uid = None;
    assert_eq!(told(&mut bench, &[Step::Forget]), ["end of the mirror of u"], "one may be on its way");
}

#[test]
fn unchanged_status_is_not_reported_again() {
    let mut bench = Bench::new();
    bench.add("u");
    let (record, now) = (bench.record("u").clone(), bench.node.cx.clock.now());
    let mut count = |status: Value| bench.node.reports("u", &record, status, &[], &now).len();
    assert_eq!([count(json!(1)), count(json!(1)), count(json!(2))], [1, 0, 1]);
}

#[test]
fn each_end_is_told_by_the_first_report_that_has_it() {
    let text = String::new;
    let status = || Report::PodStatus { namespace: text(), name: text(), uid: text(), status: Value::Null };
    let gone = Report::PodGone { namespace: text(), name: text(), uid: text() };
    let mut told = 0;
    assert!(!tells_of_an_end(&mut told, 0, &[status()]));
    assert!(!tells_of_an_end(&mut told, 1, &[]) && told == 0, "its status is held");
    assert!(!tells_of_an_end(&mut told, 1, &[Report::Event { event: Value::Null }]) && told == 0);
    assert!(tells_of_an_end(&mut told, 1, &[status()]) && told == 1);
    assert!(!tells_of_an_end(&mut told, 1, &[status(), status()]), "later reports tell of the same end");
    assert!(tells_of_an_end(&mut told, 3, &[status(), status()]) && told == 3);
    assert!(tells_of_an_end(&mut told, 3, &[gone]), "the pod's own end");
}
