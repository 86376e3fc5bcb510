use edge_runtime::paths::Paths;
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sampan_pod::record::{ContainerRecord, PodRecord, Terminated};

use super::super::look::{Daemon, Kept, Lookout};
use super::*;

const NOW: u32 = 1_800_000_000;
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>\n\u{2028}";

fn at(second: u32) -> Timestamp {
    Timestamp::from_second(second.into()).unwrap()
}

fn condition(kind: &str, status: &str, since: u32) -> NodeCondition {
    NodeCondition {
        type_: kind.into(),
        status: status.into(),
        last_transition_time: Some(Time(at(since))),
        ..NodeCondition::default()
    }
}

fn pod(name: &str, attempt: u32, ready: &str) -> (PodRecord, PodStatus) {
    let ended = Terminated {
        id: "i".into(),
        attempt: 0,
        exit_code: 1,
        signal: None,
        reason: "Error".into(),
        message: String::new(),
        started_at: None,
        finished_at: at(NOW - 500),
        finished_mono: Default::default(),
        stopped: None,
    };
    let container = ContainerRecord { attempt, last: (attempt > 0).then_some(ended), ..ContainerRecord::default() };
    let record = PodRecord {
        uid: name.into(),
        namespace: "shop".into(),
        name: name.into(),
        started_at: at(NOW - 1000),
        containers: [("c".to_owned(), container)].into(),
        ..PodRecord::default()
    };
    let status = json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": ready}],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
    });
    (record, serde_json::from_value(status).unwrap())
}

/// A node in good health.
fn well(now: u32) -> Facts {
    let daemon = Daemon {
        pid: Some(7),
        ready: Some(true),
        words: "[+]loop ok\n".into(),
        metrics: "sampan_node_info{version=\"1.2.3\"} 1\nprocess_resident_memory_bytes 3145728\n".into(),
    };
    let kept = Kept {
        conditions: vec![
            condition("Ready", "True", NOW - 900),
            condition("StorageHealthy", "True", NOW - 800),
            condition("Upgraded", "False", NOW - 700),
        ],
        pods: vec![pod("web", 2, "True"), pod("job", 0, "False")],
        ..Kept::default()
    };
    let mut facts = Facts { now, name: Some("edge-1".into()), daemon, kept: Some(kept), ..Facts::default() };
    (facts.link.connected, facts.link.since) = (true, at(NOW - 600).to_string());
    facts
}

fn part(parts: &[(&'static str, String)], name: &str) -> Value {
    let found = parts.iter().find(|(part, _)| *part == name).map(|(_, text)| text);
    serde_json::from_str(found.unwrap_or_else(|| panic!("no {name}"))).unwrap()
}

#[test]
fn first_look_dates_the_present_state() {
    let parts = Board::default().take(well(NOW));
    let expected = json!([
        [NOW - 900, 1, 1],
        [NOW - 800, 6, 1],
        [NOW - 700, 4, 2],
        [NOW - 600, 0, 1],
        [NOW - 500, 3, 1],
        [NOW, 2, 1 << 16 | 2],
    ]);
    assert_eq!(part(&parts, "timeline"), expected);
    let row = part(&parts, "row");
    assert_eq!(row, json!(["edge-1", 1, NOW - 600, 1, 1, 2, 2, 0, 1, 2, 0, "1.2.3", "", 0, ""]));
    assert_eq!(part(&parts, "problems"), json!([]));
    let pods = part(&parts, "pods");
    assert_eq!(pods[0], json!(["shop", "job", "Running", false, 0, NOW - 1000, "CrashLoopBackOff", null, null]));
    assert!(parts.iter().all(|(_, text)| !text.contains('\n')), "each is one line");
}

#[test]
fn changes_are_noted_and_unreadable_state_is_ignored() {
    let mut board = Board::default();
    board.take(well(NOW));
    let mut worse = well(NOW + 10);
    worse.link.connected = false;
    worse.daemon.metrics = "sampan_node_info{version=\"1.2.4\"} 1\n".into();
    let kept = worse.kept.as_mut().unwrap();
    kept.pods = vec![pod("web", 5, "False"), pod("new", 0, "True"), pod("job", 0, "False")];
    kept.conditions
        .extend([condition("DiskPressure", "True", NOW + 9), condition("ClockSynchronized", "False", NOW + 9)]);
    let parts = board.take(worse);
    let all = part(&parts, "timeline");
    let new: Vec<Value> = all.as_array().unwrap()[6..].to_vec();
    let at = NOW + 10;
    let expected = json!([[at, 0, 0], [at, 5, 1 << 1 | 1 << 5], [at, 7, 0], [at, 2, 1 << 16 | 3], [at, 3, 3]]);
    assert_eq!(Value::from(new), expected);

    // The store cannot be read for a moment, and the daemon is gone: nothing is said of pods.
    let gone =
        Facts { now: NOW + 20, trouble: "store: locked".into(), name: Some("edge-1".into()), ..Facts::default() };
    let parts = board.take(gone);
    let all = part(&parts, "timeline");
    assert_eq!(all.as_array().unwrap()[11..], [json!([NOW + 20, 1, 0])]);
    let problems = part(&parts, "problems").to_string();
    assert!(problems.contains("does not run") && problems.contains("store: locked"), "{problems}");
    assert_eq!(part(&parts, "pods"), json!([]));
    let row = part(&parts, "row");
    assert_eq!((&row[1], &row[3], &row[4], &row[5]), (&json!(0), &json!(0), &json!(1), &json!(3)));
}

#[test]
fn unready_daemon_and_unjoined_device_are_problems() {
    let mut stuck = well(NOW);
    (stuck.daemon.ready, stuck.daemon.words) = (None, "timed out".into());
    let parts = Board::default().take(stuck);
    assert!(part(&parts, "problems")[0].as_str().unwrap().contains("does not answer: timed out"));
    let mut unready = well(NOW);
    (unready.daemon.ready, unready.daemon.words) = (Some(false), "[+]loop ok\n[-]node failed: no cni\n".into());
    unready.name = None;
    let parts = Board::default().take(unready);
    assert_eq!(part(&parts, "problems")[0], "The node is not ready: node failed: no cni");
    assert!(part(&parts, "problems")[1].as_str().unwrap().contains("not joined"));
    assert_eq!((&part(&parts, "row")[0], &part(&parts, "row")[3]), (&json!("this node"), &json!(2)));
}

#[test]
fn events_are_shortened_and_stay_text() {
    let event = |number: u32, message: &str| {
        json!({"lastTimestamp": at(NOW + number).to_string(), "type": "Warning", "reason": HOSTILE,
        "message": message, "count": 3, "involvedObject": {"kind": "Pod", "namespace": HOSTILE, "name": HOSTILE}})
    };
    let mut facts = well(NOW);
    facts.events = (0..300).map(|number| event(number, "m")).collect();
    facts.events.push(event(400, &"ä".repeat(1000)));
    facts.events.push(json!({"involvedObject": 7, "message": [], "lastTimestamp": "yesterday"}));
    let parts = Board::default().take(facts);
    let events = part(&parts, "events");
    assert_eq!(events.as_array().unwrap().len(), EVENTS.0);
    assert_eq!(events[0], json!([null, false, "node", "", "", 1]));
    assert_eq!(events[1][4].as_str().unwrap().len(), EVENTS.1);
    assert_eq!((&events[1][3], &events[1][5]), (&json!(HOSTILE), &json!(3)));
    assert!(parts.iter().all(|(_, text)| !text.contains('\n')));
}

#[test]
fn empty_root_shows_the_missing_parts() {
    let folder = tempfile::tempdir().unwrap();
    let facts = Lookout::new(&Paths::new(folder.path())).look();
    assert!(facts.kept.is_none() && facts.trouble.contains("no node has run here"), "{}", facts.trouble);
    let parts = Board::default().take(facts);
    assert_eq!(part(&parts, "problems").as_array().unwrap().len(), 3);
}
