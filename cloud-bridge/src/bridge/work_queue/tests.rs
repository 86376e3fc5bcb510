//! Tests of the order of reports.

use serde_json::json;

use super::*;

fn status(uid: &str, phase: &str) -> Report {
    let status = json!({ "phase": phase });
    Report::PodStatus { namespace: "ns".into(), name: "p".into(), uid: uid.into(), status }
}

fn gone(uid: &str) -> Report {
    Report::PodGone { namespace: "ns".into(), name: "p".into(), uid: uid.into() }
}

#[test]
fn different_pods_run_at_once_and_one_pod_in_order() {
    let mut work_queue = WorkQueue::default();
    work_queue.push(1, status("a", "Running"));
    work_queue.push(2, status("b", "Running"));
    let first = work_queue.begin().unwrap();
    work_queue.push(3, gone("a"));
    let second = work_queue.begin().unwrap();
    assert_eq!((&first.lane, &second.lane), (&Lane::Pod("a".into()), &Lane::Pod("b".into())));
    assert_eq!(work_queue.begin(), None, "the end of a pod waits for its status");
    assert_eq!(work_queue.finish(first, Outcome::Written), [Answer::Reported(1)]);
    assert_eq!(work_queue.begin().unwrap().report, gone("a"));
}

#[test]
fn a_newer_status_replaces_a_waiting_one_and_answers_for_it() {
    let mut work_queue = WorkQueue::default();
    work_queue.push(1, status("a", "Pending"));
    let running = work_queue.begin().unwrap();
    work_queue.push(2, status("a", "Running"));
    work_queue.push(3, status("a", "Failed"));
    work_queue.finish(running, Outcome::Written);
    let next = work_queue.begin().unwrap();
    assert_eq!(next.report, status("a", "Failed"));
    assert_eq!(work_queue.finish(next, Outcome::Written), [Answer::Reported(2), Answer::Reported(3)]);
    assert!(work_queue.work_queue.is_empty());
}

#[test]
fn a_retry_keeps_the_order_grows_its_pause_and_takes_the_newest() {
    let mut work_queue = WorkQueue::default();
    work_queue.push(1, status("a", "Running"));
    work_queue.push(2, gone("a"));
    let mut attempt = work_queue.begin().unwrap();
    for pause in [200, 400, 800] {
        assert!(work_queue.finish(attempt, Outcome::Retry("503".into())).is_empty());
        attempt = work_queue.begin().unwrap();
        assert_eq!((&attempt.report, attempt.pause), (&status("a", "Running"), Duration::from_millis(pause)));
    }
    work_queue.finish(attempt, Outcome::Written);
    let attempt = work_queue.begin().unwrap();
    assert_eq!((attempt.report, attempt.pause), (gone("a"), Duration::ZERO));

    let mut work_queue = WorkQueue::default();
    work_queue.push(1, status("b", "Running"));
    let attempt = work_queue.begin().unwrap();
    work_queue.push(2, status("b", "Failed"));
    work_queue.finish(attempt, Outcome::Retry("503".into()));
    let attempt = work_queue.begin().unwrap();
    assert_eq!(attempt.report, status("b", "Failed"));
    assert_eq!(work_queue.finish(attempt, Outcome::Refused("no".into())).len(), 2);
}

#[test]
fn first_conflict_is_retried_at_once_and_later_ones_back_off() {
    let mut work_queue = WorkQueue::default();
    work_queue.push(1, status("a", "Running"));
    let mut attempt = work_queue.begin().unwrap();
    for pause in [0, 5, 10, 20] {
        assert!(work_queue.finish(attempt, Outcome::Conflict("409".into())).is_empty());
        attempt = work_queue.begin().unwrap();
        assert_eq!((&attempt.report, attempt.pause), (&status("a", "Running"), Duration::from_millis(pause)));
    }
    assert!(work_queue.finish(attempt, Outcome::Retry("503".into())).is_empty());
    attempt = work_queue.begin().unwrap();
    assert_eq!(attempt.pause, FIRST_PAUSE, "an API that fails is not asked more often");
    assert_eq!(work_queue.finish(attempt, Outcome::Written), [Answer::Reported(1)]);
    assert!(work_queue.work_queue.is_empty());
}

/// A policy or a right may be fixed: then the newest status is written, without the node.
#[test]
fn what_the_api_refuses_is_tried_again_in_a_while() {
    let mut work_queue = WorkQueue::default();
    work_queue.push(1, status("a", "Running"));
    let mut attempt = work_queue.begin().unwrap();
    for seconds in [20, 40, 80, 160, 300, 300] {
        assert!(work_queue.finish(attempt, Outcome::Later("no".into())).is_empty());
        attempt = work_queue.begin().unwrap();
        assert_eq!(attempt.pause, Duration::from_secs(seconds));
    }
    work_queue.push(2, status("a", "Failed"));
    assert!(work_queue.finish(attempt, Outcome::Later("no".into())).is_empty());
    let attempt = work_queue.begin().unwrap();
    assert_eq!(attempt.report, status("a", "Failed"));
    assert_eq!(work_queue.finish(attempt, Outcome::Written), [Answer::Reported(1), Answer::Reported(2)]);
    // Only few reports of a node wait like this: its window is for reports that can be written.
    let mut answers = Vec::new();
    for id in 0..100 {
        work_queue.push(id, status(&id.to_string(), "Running"));
        let attempt = work_queue.begin().unwrap();
        answers.extend(work_queue.finish(attempt, Outcome::Later("no".into())));
        work_queue.ready.clear();
    }
    assert_eq!(answers.len(), 100 - MOST_REFUSED);
}

#[test]
fn events_are_never_replaced_and_wait_only_for_their_like() {
    let event = |reason: &str, message: &str| Report::Event {
        event: json!({"reason": reason, "message": message, "involvedObject": {"uid": "u"}}),
    };
    let mut work_queue = WorkQueue::default();
    work_queue.push(1, event("Pulled", "a"));
    work_queue.push(2, event("Created", "a"));
    work_queue.push(3, event("Pulled", "b"));
    let first = work_queue.begin().unwrap();
    assert_eq!(work_queue.begin().unwrap().report, event("Created", "a"));
    assert_eq!(work_queue.begin(), None, "a repetition would be created again");
    assert_eq!(work_queue.finish(first, Outcome::Written), [Answer::Reported(1)]);
    assert_eq!(work_queue.begin().unwrap().report, event("Pulled", "b"));
}
