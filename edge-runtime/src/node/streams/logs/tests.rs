//! Which log a request means, and which of its lines.

use std::rc::Rc;

use super::*;
use crate::node::pods::Entry;
use crate::pod::id::container_id;
use crate::pod::record::{PodRecord, PodSource};
use serde_json::json;

fn record(state: &Value, last: Option<u32>) -> ContainerRecord {
    let ended = |attempt| {
        json!({
            "id": "i", "attempt": attempt, "exit_code": 1, "reason": "Error", "finished_at": "2026-01-01T00:00:00Z",
            "finished_mono": 0,
        })
    };
    let mut record = serde_json::to_value(ContainerRecord::new(crate::pod::record::ContainerKind::App)).unwrap();
    record["attempt"] = json!(7);
    record["state"] = state.clone();
    record["last"] = last.map_or(Value::Null, ended);
    serde_json::from_value(record).unwrap()
}

#[test]
fn log_of_the_expected_attempt_is_chosen() {
    let running = json!({"state": "Running", "id": "x", "pid": 1, "started_at": "2026-01-01T00:00:00Z", "since": 0});
    let waiting = json!({"state": "Waiting", "reason": "CrashLoopBackOff"});
    assert_eq!(readable_attempt(&record(&running, Some(6)), false), Some(7));
    assert_eq!(readable_attempt(&record(&running, Some(6)), true), Some(6));
    assert_eq!(readable_attempt(&record(&running, None), true), None);
    assert_eq!(readable_attempt(&record(&waiting, Some(6)), false), Some(6));
    assert_eq!(readable_attempt(&record(&waiting, Some(6)), true), Some(6));
    assert_eq!(readable_attempt(&record(&waiting, None), false), None);
    let status = json!({"containerStatuses": [
        {"name": "a", "state": {"waiting": {"reason": "ErrImagePull"}}},
        {"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}},
    ]});
    assert_eq!(waiting_for(&status, "a"), "image can't be pulled");
    assert_eq!(waiting_for(&status, "b"), "PodInitializing");
    assert_eq!(waiting_for(&Value::Null, "c"), "ContainerCreating");
}

#[test]
fn oldest_line_is_that_of_the_seconds_or_else_the_time() {
    let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
    let of = |seconds, time: Option<&str>| first_time(now, seconds, time).map(|at| at.map(|at| at.to_string()));
    assert_eq!(of(None, None), Ok(None));
    assert_eq!(of(Some(60), Some("2020-01-01T00:00:00Z")), Ok(Some("2026-01-01T00:00:00Z".to_owned())));
    assert_eq!(of(None, Some("2020-01-01T01:00:00+01:00")), Ok(Some("2020-01-01T00:00:00Z".to_owned())));
    assert_eq!(of(Some(1 << 62), None), Ok(None), "older than any line");
    assert_eq!(of(Some(u64::MAX), None), Ok(None));
    for text in ["", "yesterday", "2026-01-01", "1767225660"] {
        assert_eq!(of(None, Some(text)), Err(format!("sinceTime {text} is not RFC 3339")));
    }
}

fn request(uid: &str, container: &str, previous: bool) -> StreamRequest {
    StreamRequest::Logs {
        namespace: "ns".into(),
        pod: "p".into(),
        uid: uid.into(),
        container: container.into(),
        follow: true,
        previous,
        timestamps: false,
        tail_lines: Some(5),
        since_seconds: None,
        since_time: None,
        limit_bytes: None,
    }
}

#[test]
fn followed_log_ends_with_the_attempt_that_it_is_of() {
    let (_folder, mut cx) = Context::in_a_folder();
    let record_of_pod = PodRecord::new("u", "ns", "p", PodSource::Api, &cx.clock.now());
    cx.pods.insert(Entry::new(Rc::default(), record_of_pod));
    let id = container_id("u", "c", 7);
    let running = json!({"state": "Running", "id": id, "pid": 1, "started_at": "2026-01-01T00:00:00Z", "since": 0});
    let containers = &mut cx.pods.get_mut("u").unwrap().record.containers;
    containers.insert("c".into(), record(&running, Some(6)));
    let (found, options) = asked_for(&cx, &request("", "c", false)).unwrap();
    assert!(found.running && found.attempt == 7 && found.id == id && found.directory.ends_with("c"));
    assert!(options.follow && options.tail_lines == Some(5) && options.since.is_none());
    let (found, _) = asked_for(&cx, &request("u", "c", true)).unwrap();
    assert!(!found.running && found.attempt == 6, "nothing more comes");

    let refused = |request: &StreamRequest| asked_for(&cx, request).map(drop).unwrap_err();
    assert_eq!(refused(&request("other", "c", false)), "pod ns/p is not on this node");
    assert_eq!(refused(&request("u", "d", false)), "container not found (\"d\")");
    assert!(refused(&StreamRequest::Stats {}).contains("does not know"));
}

#[test]
fn container_without_a_log_says_what_it_waits_for() {
    let (_folder, mut cx) = Context::in_a_folder();
    let record_of_pod = PodRecord::new("u", "ns", "p", PodSource::Api, &cx.clock.now());
    let mut entry = Entry::new(Rc::default(), record_of_pod);
    entry.record.containers.insert("c".into(), record(&json!({"state": "Waiting"}), None));
    cx.pods.insert(entry);
    let refused = |previous| asked_for(&cx, &request("u", "c", previous)).map(drop).unwrap_err();
    assert_eq!(refused(false), "container \"c\" in pod \"p\" is waiting to start: ContainerCreating");
    assert_eq!(refused(true), "previous terminated container \"c\" in pod \"p\" not found");
}
