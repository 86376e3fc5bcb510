//! Tests of the status of a job.

use super::*;

fn entry(node: usize, phase: OrderPhase) -> Entry {
    let step = ActionStep { action: "Pull".into(), status: true, reason: "r".repeat(200), time: "t".repeat(20) };
    Entry { action_flow: vec![step; 3], ..Entry::new(&format!("node-{node}"), phase, &"why".repeat(100)) }
}

#[test]
fn a_status_is_read_as_written_and_by_an_older_definition() {
    let mut status = Status { phase: Some(JobPhase::InProgress), reason: "r".into(), ..Status::default() };
    status.nodes = vec![entry(1, OrderPhase::Failure), Entry::new("b", OrderPhase::Pending, "")];
    let patch = status.patch("9");
    assert_eq!(patch["metadata"]["resourceVersion"], "9");
    assert_eq!(patch["status"]["counts"]["failure"], 1);
    assert_eq!(patch["status"]["nodeStatus"][1], json!({"nodeName": "b", "phase": "Pending"}));
    assert_eq!(Status::read(&patch["status"]), Some(status.clone()));
    assert!(patch["status"]["nodeStatus"].to_string().len() <= status.size());
    assert_eq!(Status::read(&json!(null)), Some(Status::default()));
    assert_eq!(Status::read(&json!({"phase": "Dance"})).unwrap().phase, Some(JobPhase::Unknown));
    assert_eq!(Status::read(&json!({"nodeStatus": [3]})), None);
}

#[test]
fn who_could_not_be_asked_has_not_failed() {
    let failed = |reason: &str| Entry::new("n", OrderPhase::Failure, reason).has_failed();
    assert!(failed("disk full") && failed("") && !failed("offline until the deadline") && !failed(DELETED));
}

#[test]
fn what_has_no_room_is_left_out_and_never_who_is_how_far() {
    let phases = [OrderPhase::Successful, OrderPhase::Failure, OrderPhase::InProgress, OrderPhase::Pending];
    let mut status = Status { phase: Some(JobPhase::InProgress), ..Status::default() };
    status.nodes = (0..400).map(|number| entry(number, phases[number % 4])).collect();
    let (before, small) = (status.counts(), 200_000);
    assert!(status.size() > 300_000);
    status.fit_into(small);
    assert!(status.size() <= small && status.counts() == before);
    let told =
        |phase| status.nodes.iter().filter(|entry| entry.phase == phase && !entry.action_flow.is_empty()).count();
    assert_eq!((told(OrderPhase::Successful), told(OrderPhase::InProgress)), (0, 100));
    status.fit_into(0);
    assert_eq!(status.counts(), before);
    assert!(status.size() < 400 * 160, "{}", status.size());
}

#[test]
fn ten_thousand_nodes_have_room_in_any_state() {
    let names = (0..10_000).map(|number| (format!("a-name-of-a-node-{number:05}"), true)).collect();
    has_room(&names).expect("room");
    for phase in [OrderPhase::InProgress, OrderPhase::Failure] {
        let mut status = Status { phase: Some(JobPhase::InProgress), ..Status::default() };
        status.nodes = (0..10_000).map(|number| entry(number, phase)).collect();
        status.fit();
        let bytes = status.patch("1").to_string().len();
        assert!(bytes < 1_400_000, "{bytes}");
    }
    let waits = ActionStep { action: "WaitingTurn".into(), ..ActionStep::default() };
    let waiting = |number| Entry { action_flow: vec![waits.clone(); 16], ..entry(number, OrderPhase::InProgress) };
    let mut status = Status { nodes: (0..10_000).map(waiting).collect(), ..Status::default() };
    status.fit();
    assert!(status.nodes.iter().all(Entry::waits_for_turn), "their time does not run");
    assert!(status.patch("1").to_string().len() < 1_400_000, "{}", status.patch("1").to_string().len());
    let many = (0..10_000).map(|number| (format!("{number}{}", "n".repeat(60)), true)).collect();
    assert!(has_room(&many).unwrap_err().contains("several jobs"));
}
